"""tools/predict.py and tools/test.py with --slice."""
import json
import re
import struct
from functools import partial

import cv2
import numpy as np
import pytest
import supervision as sv
from load_tool import run_tool
from PIL import Image

from cvt_dense import inference as api

predict = partial(run_tool, 'predict')


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
    run_tool('test', config, checkpoint, '--data-root', shapes / 'detection', '--work-dir', tmp_path / 'w',
             '--out', tmp_path / 'out', '--slice', 64)
    saved = json.loads((tmp_path / 'out/predictions.bbox.json').read_text())
    model, names = api.load(config, checkpoint, device='cpu'), sorted((shapes / 'detection/val').glob('*.png'))
    expected = [api.predict(model, path, slice=64) for path in names]
    assert len(saved) == sum(map(len, expected)) > 10
    scores = sum(detections.confidence.sum() for detections in expected)
    assert sum(detection['score'] for detection in saved) == pytest.approx(scores, rel=1e-4)


@pytest.mark.parametrize('task', ['detection', 'segmentation'])
def test_videos_are_turned_as_their_header_says(nano, shapes, tmp_path, task):
    writer = cv2.VideoWriter(str(tmp_path / 'clip.mp4'), cv2.VideoWriter_fourcc(*'mp4v'), 10, (96, 64))
    for _ in range(3):
        writer.write(np.full((64, 96, 3), 90, np.uint8))
    writer.release()
    clip = bytearray((tmp_path / 'clip.mp4').read_bytes())
    matrix = clip.find(b'tkhd') + 44  # of the track's rotation, behind version, times, and layer
    clip[matrix:matrix + 36] = struct.pack('>9i', 0, 65536, 0, -65536, 0, 0, 64 * 65536, 0, 1 << 30)
    (tmp_path / 'turned.mp4').write_bytes(clip)
    (tmp_path / 'empty.mp4').touch()
    cut = cv2.VideoWriter(str(tmp_path / 'cut.avi'), cv2.VideoWriter_fourcc(*'MJPG'), 10, (96, 64))
    for seed in range(30):
        cut.write(np.random.default_rng(seed).integers(0, 255, (64, 96, 3), dtype=np.uint8))
    cut.release()
    (tmp_path / 'cut.avi').write_bytes((tmp_path / 'cut.avi').read_bytes()[:-100_000])
    files = [*(tmp_path / f'{name}.mp4' for name in ('clip', 'turned', 'empty')), tmp_path / 'cut.avi']
    output = predict(*nano[task], *files, '--out-dir', tmp_path / 'out', rc=1)
    assert 'empty.mp4' in output and re.search(r'cut\.avi -> .*frames.* 30', output) and output.count('header') == 1
    for name, wide in (('clip', True), ('turned', False)):
        frames = list(sv.get_video_frames_generator(str(tmp_path / f'out/{name}.mp4')))
        assert len(frames) == 3 and (frames[0].shape[1] > frames[0].shape[0]) == wide
    assert not (tmp_path / 'out/empty.mp4').exists()
