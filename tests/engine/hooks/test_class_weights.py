"""Rare classes weigh more in a segmentor's loss, by the pixels of the training's label maps."""
import re

import mmseg
import numpy as np
import pytest
from load_tool import run_tool
from PIL import Image

from cvt_dense.shapes import CLASSES


@pytest.mark.slow
@pytest.mark.skipif(mmseg.__version__ == '1.2.2', reason='it indexes the weights by the label of ignored pixels')
def test_weights_are_those_of_the_label_maps(shapes, tmp_path):
    maps = [np.asarray(Image.open(path)) for path in (shapes / 'segmentation').glob('annotations/training/*.png')]
    counts = np.bincount(np.concatenate(maps, axis=None), minlength=len(CLASSES) + 1)
    expected = np.where(counts, counts.clip(1)**-0.5 * counts.sum() / np.sqrt(counts).sum(), 1)
    command = ('train', 'configs/upernet_cvt_nano_shapes.py', '--data-root', shapes / 'segmentation', '--work-dir',
               tmp_path / 'run', '--cfg-options', 'train_cfg.max_iters=1', 'train_cfg.val_interval=5',
               'train_dataloader.batch_size=2', 'default_hooks.logger.interval=1',
               'default_hooks.class_weights.type=cvt_dense.ClassWeightsHook')
    binary = 'model.auxiliary_head=None', 'model.decode_head.loss_decode.use_sigmoid=True'  # no loss of one class
    assert 'class_weight' in run_tool(*command, *binary, rc=2)
    plain = re.search(r'decode.loss_ce: ([\d.]+)', run_tool(*command[:-1]))[1]
    run_tool(*command, '--overwrite')
    log = max((tmp_path / 'run').glob('2*/*.log')).read_text()
    line = re.search('Weights of the classes in the loss: (.*)', log)[1]
    assert line.startswith('background 0.') and len(counts) == len(line.split(', '))
    assert [float(part.split()[-1]) for part in line.split(', ')] == pytest.approx(expected, abs=0.006)
    assert np.isfinite(float(loss := re.search(r'decode.loss_ce: ([\d.]+)', log)[1])) and loss != plain
