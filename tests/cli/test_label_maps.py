"""Label maps whose classes count from 1, a network with a single output, and joined data sets, through the tools."""
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from load_tool import run_tool
from PIL import Image
from templates_edited import write_template

pytestmark = pytest.mark.slow

TOP = dict(arch='cvt-nano', pretrained=None, image_size=64, max_iters=1, batch_size=2)
BINARY = """
for _loader in (train_dataloader, val_dataloader, test_dataloader):
    _loader['dataset']['reduce_zero_label'] = True
for _head in (model['decode_head'], model['auxiliary_head']):
    _head.update(out_channels=1, threshold=0., loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=True))  # all road
"""
JOINED = """
for _loader in (train_dataloader, val_dataloader, test_dataloader):
    _evaluates = _loader is not train_dataloader
    _data = dict(_loader['dataset'], type='BaseSegDataset', test_mode=_evaluates)
    _both = [_data, dict(_data, data_root='{other}/')]
    _loader['dataset'] = dict(_delete_=True, type='ConcatDataset', datasets=_both)
"""


@pytest.fixture
def data(tmp_path) -> Path:
    """Two images in each of two folders, with the classes 1 and 2 and unlabelled pixels (0)."""
    rng = np.random.default_rng(0)
    for split in ('train', 'val'):
        for name in ('a/frame0', 'a/frame1', 'b/frame0', 'b/frame1'):
            labels = np.kron(rng.integers(0, 3, (4, 4)), np.ones((20, 20))).astype(np.uint8)
            pixels = np.where(labels[..., None] == 1, 60, rng.integers(90, 255, (80, 80, 3))).astype(np.uint8)
            for kind, array, suffix in (('images', pixels, '.jpg'), ('labels', labels, '.png')):
                path = tmp_path / 'data' / kind / split / f'{name}{suffix}'
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(array).save(path)
    return tmp_path / 'data'


def values(folder: Path, pattern: str = '*.png') -> dict[str, set[int]]:
    return {str(path.relative_to(folder)): set(np.unique(np.asarray(Image.open(path))).tolist())
            for path in folder.rglob(pattern)}


def test_single_output_and_classes_from_1(data, tmp_path):
    config = write_template(tmp_path, 'upernet_cvt13_custom', data_root=f'{data}/', **TOP)
    config.write_text(config.read_text() + BINARY)
    run_tool('train', config, '--work-dir', tmp_path / 'run')
    files = config, tmp_path / 'run/iter_1.pth'
    run_tool('predict', *files, data / 'images/val/a', '--out-dir', tmp_path / 'drawn',
             '--save', 'masks', '--slice', 64)
    for folder, pattern in ((tmp_path / 'drawn/masks/labels', '*.png'), (tmp_path / 'drawn', '*_labels.png')):
        saved = values(folder, pattern)
        assert len(saved) == 2 and set().union(*saved.values()) == {2}
    assert (tmp_path / 'drawn/masks/classes.txt').read_text().split()[1:] == ['background', 'road']
    run_tool('test', *files, '--work-dir', tmp_path / 'test', '--out', tmp_path / 'tested')
    tested = values(tmp_path / 'tested')
    assert tested == dict.fromkeys(('a/frame0.png', 'a/frame1.png', 'b/frame0.png', 'b/frame1.png'), {2})
    assert 'out_channels' in run_tool('test', *files, '--tta', rc=2)
    assert 'tested' in run_tool('test', *files, '--out', tmp_path / 'tested', rc=2)
    run_tool('diagnose', *files, '--out-dir', tmp_path / 'report')


def test_joined_data_sets(data, tmp_path):
    shutil.copytree(data, tmp_path / 'other')
    config = write_template(tmp_path, 'upernet_cvt13_custom', data_root=f'{data}/',
                            classes=('unlabelled', 'background', 'road'), **TOP)
    config.write_text(config.read_text() + JOINED.format(other=tmp_path / 'other'))
    output = run_tool('train', config, '--work-dir', tmp_path / 'run', '--val-loss')
    assert re.search(r'val/loss: [\d.]+', output)
    output = run_tool('diagnose', config, tmp_path / 'run/iter_1.pth', '--out-dir', tmp_path / 'report')
    assert '% of 8 images' in output
