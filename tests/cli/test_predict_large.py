"""tools/predict.py with large images and videos, and tools/test.py --slice."""
import csv
import json
import math
import struct
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest
import supervision as sv
from load_tool import run_tool
from mmdet.registry import METRICS
from PIL import Image

from cvt_dense import inference as api
from cvt_dense.report.video import upright_frames

FRAMES, RATE = 12, 10.


predict = partial(run_tool, 'predict')


def write_video(path: Path, shapes: Path, codec: str, frames: int = FRAMES) -> Path:
    """A scene that moves to the left, a pixel a frame."""
    scene = cv2.imread(str(next((shapes / 'detection/train').glob('*.png'))))
    with sv.VideoSink(str(path), sv.VideoInfo(100, 100, RATE), codec=codec) as video:
        for i in range(frames):
            video.write_frame(np.ascontiguousarray(scene[:100, i:i + 100]))
    return path


def read_table(path: Path) -> list[dict[str, str]]:
    with open(path, newline='') as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize('degrees', [0, 90, 180, 270])
def test_turned_videos_are_upright(shapes, tmp_path, degrees):
    """A phone's file holds the frames as its sensor lies, and in its header (tkhd) the rotation."""
    clip = write_video(tmp_path / 'clip.mp4', shapes, 'mp4v')
    stored = next(sv.get_video_frames_generator(str(clip)))
    content = bytearray(clip.read_bytes())
    cos, sin = (round(f(math.radians(degrees))) * 2**16 for f in (math.cos, math.sin))
    start = content.find(b'tkhd') + 44
    content[start:start + 36] = struct.pack('>9i', cos, sin, 0, -sin, cos, 0, 0, 0, 2**30)
    clip.write_bytes(content)
    frames = list(upright_frames(clip, 1))
    assert len(frames) == FRAMES
    np.testing.assert_array_equal(frames[0], np.rot90(stored, -degrees // 90))


def test_video_of_a_detector(nano, shapes, tmp_path):
    clip = write_video(tmp_path / 'clip.mp4', shapes, 'mp4v')
    output = predict(*nano['detection'], clip, '--track', '--score-thr', '0.05', '--out-dir', tmp_path / 'out')
    assert f'{FRAMES} frames' in output and f'{clip} -> {tmp_path}/out/clip.mp4' in output
    assert sorted(path.name for path in (tmp_path / 'out').iterdir()) == ['clip.csv', 'clip.mp4']
    info, frames = sv.VideoInfo.from_video_path(str(tmp_path / 'out/clip.mp4')), sv.get_video_frames_generator
    assert (info.width, info.height, info.fps) == (500, 500, RATE)
    pairs = zip(frames(str(tmp_path / 'out/clip.mp4')), frames(str(clip)), strict=True)
    assert all(np.abs(drawn - cv2.resize(frame, (500, 500)).astype(float)).mean() > 2 for drawn, frame in pairs)
    rows = read_table(tmp_path / 'out/clip.csv')
    assert {int(row['frame']) for row in rows} == set(range(FRAMES))
    assert float(rows[-1]['second']) == pytest.approx((FRAMES - 1) / RATE) and rows[0]['class_name']
    tracks = [row['tracker_id'] for row in rows if int(row['tracker_id']) >= 0]
    assert tracks and max(tracks.count(track) for track in tracks) > FRAMES // 2


def test_video_of_a_segmentor(nano, shapes, tmp_path):
    """Every fifth frame, in slices."""
    clip = write_video(tmp_path / 'clip.avi', shapes, 'MJPG')
    predict(*nano['segmentation'], clip, '--every', 5, '--slice', 64, '--out-dir', tmp_path / 'out')
    info = sv.VideoInfo.from_video_path(str(tmp_path / 'out/clip.mp4'))
    assert (info.total_frames, info.fps) == (3, RATE / 5)
    fractions = {}
    for row in read_table(tmp_path / 'out/clip.csv'):
        fractions[row['frame']] = fractions.get(row['frame'], 0) + float(row['area_fraction'])
    assert list(fractions) == ['0', '5', '10'] and list(fractions.values()) == pytest.approx([1, 1, 1], abs=1e-4)


def test_large_image(nano, shapes, tmp_path, monkeypatch):
    """The label map has the image's size, the picture less."""
    monkeypatch.setattr('cvt_dense.report.pictures.LARGEST_PICTURE', 100)
    scene = Image.open(next((shapes / 'segmentation/images/validation').glob('*.png')))
    scene.resize((201, 160)).save(tmp_path / 'large.tif')
    scene.resize((60, 60)).save(tmp_path / 'small.png')
    files = tmp_path / 'large.tif', tmp_path / 'small.png'
    predict(*nano['segmentation'], *files, '--slice', 128, '--out-dir', tmp_path / 'out')
    names = ['large.png', 'large_labels.png', 'overview.png', 'small.png', 'small_labels.png']
    assert sorted(path.name for path in (tmp_path / 'out').iterdir()) == names
    labels, picture = (Image.open(tmp_path / 'out' / name) for name in names[1::-1])
    assert labels.size == (201, 160) and labels.mode == 'L' and picture.width / picture.height == pytest.approx(67 / 54)
    predict(*nano['detection'], files[0], '--slice', 128, '--score-thr', 0.05, '--out-dir', tmp_path / 'detection')
    assert [path.name for path in (tmp_path / 'detection').iterdir()] == ['large.png']


def test_slices_in_a_test(nano, shapes, tmp_path):
    """The scores and the saved predictions are those of the slices."""
    config, checkpoint = nano['detection']
    faster = ['--cfg-options', 'test_evaluator.type=FasterCocoMetric'] if METRICS.get('mmdet.FasterCocoMetric') else []
    run_tool('test', config, checkpoint, '--data-root', shapes / 'detection', '--work-dir', tmp_path / 'w',
             '--out', tmp_path / 'out', '--slice', 64, *faster)
    found = json.loads((tmp_path / 'out/predictions.bbox.json').read_text())
    model, names = api.load(config, checkpoint, device='cpu'), sorted((shapes / 'detection/val').glob('*.png'))
    expected = [api.predict(model, path, slice=64) for path in names]
    assert len(found) == sum(map(len, expected)) > 10
    assert sum(one['score'] for one in found) == pytest.approx(sum(one.confidence.sum() for one in expected), rel=1e-4)
