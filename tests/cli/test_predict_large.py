"""tools/predict.py and tools/test.py with --slice."""
import json

import pytest
from load_tool import run_tool
from PIL import Image

from cvt_dense import inference as api

pytestmark = pytest.mark.slow


def test_large_image(nano, shapes, tmp_path, monkeypatch):
    """The label map has the image's size, the picture less; the overview keeps small ones."""
    kept = []
    monkeypatch.setattr('cvt_dense.report.pictures.grid', lambda pictures, _: kept.extend(pictures) or pictures[0][1])
    monkeypatch.setattr('cvt_dense.cli.predict.SHOWN', 40)
    monkeypatch.setattr('cvt_dense.report.pictures.LARGEST_PICTURE', 100)
    scene = Image.open(next((shapes / 'segmentation/images/validation').glob('*.png')))
    scene.resize((201, 160)).save(tmp_path / 'large.tif')
    scene.resize((60, 60)).save(tmp_path / 'small.png')
    files = tmp_path / 'large.tif', tmp_path / 'small.png'
    run_tool('predict', *nano['segmentation'], *files, '--slice', 128, '--out-dir', tmp_path / 'out')
    names = ['large.png', 'large_labels.png', 'overview.png', 'small.png', 'small_labels.png']
    assert sorted(path.name for path in (tmp_path / 'out').iterdir()) == names
    labels, picture = (Image.open(tmp_path / 'out' / name) for name in names[1::-1])
    assert max(side for _, picture in kept for side in picture.shape) == 40
    assert labels.size == (201, 160) and labels.mode == 'L' and picture.width / picture.height == pytest.approx(67 / 54)
    run_tool('predict', *nano['detection'], files[0], '--slice', 128, '--score-thr', 0.05, '--out-dir',
             tmp_path / 'detection')
    assert [path.name for path in (tmp_path / 'detection').iterdir()] == ['large.png']


def test_slices_in_a_test(nano, shapes, tmp_path):
    """The scores and the saved predictions are those of the slices."""
    config, checkpoint = nano['detection']
    run_tool('test', config, checkpoint, '--data-root', shapes / 'detection', '--work-dir', tmp_path / 'w',
             '--out', tmp_path / 'out', '--slice', 64)
    saved = json.loads((tmp_path / 'out/predictions.bbox.json').read_text())
    model, names = api.load(config, checkpoint, device='cpu'), sorted((shapes / 'detection/val').glob('*.png'))
    expected = [api.predict(model, path, slice=64, by_class=True) for path in names]
    assert len(saved) == sum(map(len, expected)) > 10
    scores = sum(detections.confidence.sum() for detections in expected)
    assert sum(detection['score'] for detection in saved) == pytest.approx(scores, rel=1e-4)
