"""Published weights for images of any number of channels, and a network of four that is trained on its own data."""
import re
from pathlib import Path
from unittest import mock

import mmseg.datasets.transforms.loading
import numpy as np
import pytest
import tifffile
import torch
from load_tool import run_tool
from mmengine.registry import MODELS
from PIL import Image
from templates_edited import write_template

from cvt_dense.launch.runs import TrainRun
from cvt_dense.launch.start import start_training
from cvt_dense.models import CvT
from cvt_dense.pretraining import ImageClassifier
from cvt_dense.weights import CheckpointError, convert

pytestmark = pytest.mark.slow

ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6))
FIRST = 'stage0.patch_embed.proj.weight'


@pytest.fixture(scope='module')
def published(tmp_path_factory) -> Path:
    """A folder with a classifier's weights as the authors and as Hugging Face name them, and the RGB convolution."""
    folder = tmp_path_factory.mktemp('published')
    torch.manual_seed(0)
    model = ImageClassifier(dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token'), num_classes=5)
    for name in ('microsoft', 'huggingface'):
        torch.save(convert(model.state_dict(), name), folder / f'{name}.pth')
    return folder


def load(file: Path, channels: int, whole: bool = False) -> CvT:
    """Return the backbone, which is loaded by itself or as a part of a whole classifier."""
    backbone = dict(type='cvt_dense.CvT', arch=ARCH, in_channels=channels)
    init_cfg = dict(type='Pretrained', checkpoint=str(file), in_channels='adapt')
    model = (ImageClassifier(dict(backbone, out_type='cls_token'), 5, init_cfg=init_cfg) if whole else
             MODELS.build(dict(backbone, init_cfg=init_cfg)))
    model.init_weights()
    return model.backbone if whole else model


@pytest.mark.parametrize('channels, name, whole', [
    (1, 'microsoft', True), (3, 'microsoft', False), (4, 'huggingface', False), (12, 'huggingface', True)])
def test_values_are_the_rules(published, channels, name, whole):
    rgb = torch.load(published / 'microsoft.pth')[FIRST]
    with mock.patch('cvt_dense.weights.channels.print_log') as log:
        adapted = load(published / f'{name}.pth', channels, whole).state_dict()[FIRST]
    each = torch.stack([rgb[:, i % 3] * 3 / channels for i in range(channels)], 1)
    torch.testing.assert_close(adapted, rgb.sum(1, keepdim=True) if channels == 1 else each)
    assert log.call_count == (channels != 3)


def test_other_channels_than_the_files_need_a_choice(published, tmp_path):
    init_cfg = dict(type='Pretrained', checkpoint=str(published / 'microsoft.pth'))
    for settings, error in ((dict(), CheckpointError), (dict(in_channels='repeat'), ValueError)):
        with pytest.raises(error, match='in_channels'):
            CvT(ARCH, in_channels=4, init_cfg=init_cfg | settings).init_weights()
    torch.save(load(published / 'microsoft.pth', 4).state_dict(), tmp_path / 'four.pth')
    with pytest.raises(CheckpointError, match='four.pth'):
        load(tmp_path / 'four.pth', 5)


# -- data of four channels -----------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def data(tmp_path_factory) -> Path:
    """Label maps that follow from the fourth channel alone, as TIFF for training and as NumPy arrays beside it."""
    folder, rng = tmp_path_factory.mktemp('four'), np.random.default_rng(0)
    for split, number in (('train', 8), ('val', 4)):
        for kind in ('images', 'arrays', 'labels'):
            (folder / kind / split).mkdir(parents=True)
        for i in range(number):
            labels = np.zeros((32, 32), np.uint8)
            top, left = rng.integers(0, 16, 2)
            labels[top:top + 16, left:left + 16] = 1
            image = rng.integers(0, 1000, (32, 32, 4)).astype(np.uint16)
            image[..., 3] = image[..., 3] // 4 + 700 * labels.astype(np.uint16)
            tifffile.imwrite(folder / f'images/{split}/{i}.tif', image, photometric='minisblack', planarconfig='contig')
            np.save(folder / f'arrays/{split}/{i}.npy', image)
            Image.fromarray(labels).save(folder / f'labels/{split}/{i}.png')
    return folder


@pytest.fixture(scope='module')
def config(data, published) -> Path:
    return write_template(data, 'upernet_cvt13_multichannel', data_root=str(data), mean=(500., ) * 4,
                          std=(300., ) * 4, classes=('dark', 'bright'), arch='cvt-nano', image_size=32, batch_size=4,
                          max_iters=40)


@pytest.mark.skipif(not hasattr(mmseg.datasets.transforms.loading, 'LoadImageFromNpyFile'),
                    reason="upstream's MMSegmentation 1.2.2 reads no NumPy files")
def test_trained_and_drawn(data, config, tmp_path):
    runner = start_training(TrainRun(config, work_dir=tmp_path / 'run', options={
        'train_cfg.val_interval': 40, 'default_hooks.checkpoint.interval': 40}))
    runner.train()
    log = Path(runner.logger.log_file).read_text()
    assert "in_channels='adapt'" in log
    assert float(re.findall(r'mIoU: ([\d.]+)', log)[-1]) > 60, log[-3000:]  # all 'dark': 39
    out = run_tool('predict', config, next((tmp_path / 'run').glob('best_*.pth')), data / 'images/val/0.tif',
                   data / 'arrays/val/1.npy', '--out-dir', tmp_path / 'drawn')
    assert out.count('bright') == 2 and (tmp_path / 'drawn/1.png').exists()
