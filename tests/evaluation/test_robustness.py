"""tools/test.py --corrupt."""
import json
import math
from pathlib import Path

import pytest
import torch
from load_tool import run_tool
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from cvt_dense.datasets.corruption import use_corruptions
from cvt_dense.evaluation.robustness import summarise, table
from cvt_dense.launch.start import use_tta
from cvt_dense.nodes import type_name

ROOT = Path(__file__).resolve().parents[2]
CORRUPTED = dict(fog={1: dict(mIoU=40.), 3: dict(mIoU=20.)}, snow={1: dict(mIoU=10.), 3: dict(mIoU=0.)})


def test_means_by_hand():
    clean = dict(mIoU=50.)
    assert summarise(clean, CORRUPTED) == dict(mIoU=dict(P=50., mPC=17.5, rPC=0.35))
    assert math.isnan(summarise(dict(mIoU=0.), CORRUPTED)['mIoU']['rPC'])
    lines = [line.replace('|', ' ').split() for line in table(clean, CORRUPTED, 'mIoU').splitlines()]
    for row in (['clean', '50'], ['fog', '40', '20', '30'], ['snow', '10', '0', '5'], ['mean', '(mPC)', '17.5']):
        assert row in lines


@pytest.fixture(scope='module')
def segmentor(tmp_path_factory) -> tuple[Path, Path, Path]:
    """A folder, a config that keeps workers, and a checkpoint with random weights."""
    folder = tmp_path_factory.mktemp('corrupt')
    config = folder / 'upernet.py'
    config.write_text(f"_base_ = {str(ROOT / 'configs/upernet_cvt_nano_shapes.py')!r}\n"
                      'test_dataloader = dict(num_workers=1, persistent_workers=True)\n')
    cfg = Config.fromfile(config)
    init_default_scope('mmseg')
    torch.manual_seed(3)
    torch.save(dict(state_dict=MODELS.build(cfg.model).state_dict()), folder / 'random.pth')
    return folder, config, folder / 'random.pth'


def test_each_corruption_reaches_the_network(segmentor, shapes):
    folder, config, checkpoint = segmentor
    out = run_tool('test', config, checkpoint, '--data-root', shapes / 'segmentation', '--work-dir', folder / 'all',
                   '--corrupt', 'gaussian_noise,contrast', '--severity', '1,5')
    found = json.loads((folder / 'all/test/corruptions.json').read_text())
    values = [found['clean']['mIoU'], *(found['corrupted'][name][severity]['mIoU']
                                        for name in ('gaussian_noise', 'contrast') for severity in '15')]
    assert len(set(values)) >= 4  # every worker saw its pass's corruption; weak noise may change no label
    assert table(found['clean'], found['corrupted'], 'mIoU') in out
    assert found['summary']['mIoU']['mPC'] == pytest.approx(sum(values[1:]) / 4)


@pytest.mark.parametrize('name, tta', [('maskrcnn_cvt13_coco', False), ('upernet_cvt13_ade20k', True),
                                       ('cvt13_in1k', False)])
def test_images_are_corrupted_where_they_are_loaded(name, tta):
    cfg = Config.fromfile(ROOT / f'configs/{name}.py')
    if tta:
        use_tta(cfg)
    use_corruptions(cfg, 'all', [1, 2, 3, 4, 5])
    dataset = cfg.test_dataloader.dataset
    if 'in1k' in name:
        assert dataset.corruption == {}
    else:
        assert [type_name(step) for step in dataset.pipeline[:2]] == ['LoadImageFromFile', 'CorruptImage']
    assert len(cfg.test_cfg.corruptions) == 15 and not cfg.test_dataloader.persistent_workers
