"""tools/attention.py on classifiers, and wrong input."""
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from load_tool import ROOT, run_tool
from PIL import Image
from random_weights import save_untrained

CONFIG = ROOT / 'configs' / 'cvt_nano_shapes.py'
LINEAR = dict(type='cvt_dense.LinearAttention')
ROPE = dict(rel_pos_cfg=dict(type='cvt_dense.RotaryPositions'))


def save_model(folder: Path, **backbone) -> tuple[Path, Path]:
    """Write the config of a classifier and its untrained checkpoint."""
    config = folder / 'config.py'
    arguments = ', '.join(f'{key}={value!r}' for key, value in backbone.items())
    config.write_text(f'_base_ = {str(CONFIG)!r}\nmodel = dict(backbone=dict({arguments}))\n')
    return save_untrained(config, folder / 'model.pth', list('abcdefgh'))


@pytest.fixture(scope='module')
def photo(tmp_path_factory) -> Path:
    """90 x 70 pixels."""
    path = tmp_path_factory.mktemp('photo') / 'photo.png'
    pixels = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((90, 70)).save(path)
    return path


run = partial(run_tool, 'attention')


def test_picture(photo, tmp_path):
    """CLS and each point have panels, and nothing is overwritten."""
    command = [*save_model(tmp_path, with_cls_token=True), photo, '--point', '80,10', '--point', '3,60',
               '--out-dir', tmp_path / 'out']
    assert f'photo.png -> {tmp_path}/out/photo.png' in run(*command)
    picture = np.asarray(Image.open(tmp_path / 'out/photo.png').convert('RGB'))
    assert picture.shape[0] > 900 and picture.shape[1] > 900 and len(np.unique(picture.reshape(-1, 3), axis=0)) > 1000
    assert '--force' in run(*command, rc=2)


@pytest.mark.parametrize('attn_cfg, blocks', [
    ([LINEAR, ROPE, None], ['stage2']), (LINEAR, [])], ids=str)
def test_blocks_that_cannot_be_recorded_are_left_out(photo, tmp_path, attn_cfg, blocks):
    command = [*save_model(tmp_path, attn_cfg=attn_cfg), photo, '--point', '80,10',
               '--out-dir', tmp_path / 'out']
    if not blocks:
        assert 'attn_cfg' in run(*command, rc=2)
        return
    assert f'recorded: {blocks[0]}.blocks.0' in run(*command)
    assert (tmp_path / 'out/photo.png').is_file()
