"""Rare classes weigh more in a segmentor's loss, by the pixels of the training's label maps."""
import mmseg
import numpy as np
import pytest
from load_tool import run_tool
from PIL import Image

from cvt_dense.launch.runs import TrainRun
from cvt_dense.launch.start import start_training
from cvt_dense.shapes import CLASSES


@pytest.mark.slow
@pytest.mark.skipif(mmseg.__version__ == '1.2.2', reason='it indexes the weights by the label of ignored pixels')
def test_weights_are_those_of_the_label_maps(shapes, tmp_path):
    maps = [np.asarray(Image.open(path)) for path in (shapes / 'segmentation').glob('annotations/training/*.png')]
    counts = np.bincount(np.concatenate(maps, axis=None), minlength=len(CLASSES) + 1)
    expected = np.where(counts, counts.clip(1)**-0.5 * counts.sum() / np.sqrt(counts).sum(), 1)
    options = {'train_cfg.max_iters': 1, 'train_cfg.val_interval': 5, 'train_dataloader.batch_size': 2,
               'default_hooks.class_weights.type': 'cvt_dense.ClassWeightsHook'}
    data = shapes / 'segmentation'
    runner = start_training(TrainRun('configs/upernet_cvt_nano_shapes.py', data_root=data, work_dir=tmp_path / 'run',
                                     options=options))
    runner.train()
    assert runner.model.decode_head.loss_decode.class_weight == pytest.approx(expected)
    binary = 'model.auxiliary_head=None', 'model.decode_head.loss_decode.use_sigmoid=True'  # no loss of one class
    assert 'class_weight' in run_tool(
        'train', 'configs/upernet_cvt_nano_shapes.py', '--data-root', data, '--work-dir', tmp_path / 'binary',
        '--cfg-options', *(f'{key}={value}' for key, value in options.items()), *binary, rc=2)
