"""A classifier without a number of classes has as many as there are class folders."""
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from mmengine.registry import MODELS
from PIL import Image

import cvt_dense  # noqa: F401
from cvt_dense.errors import UserError
from cvt_dense.launch import settings
from cvt_dense.launch.check_weights import check_checkpoint, check_pretrained

CONFIG = str(Path(__file__).resolve().parents[2] / 'configs/cvt13_custom.py')


def complete(data, **options):
    return settings.load_config(Namespace(config=CONFIG, cfg_options=dict(arch='nano', **options), work_dir=None,
                                          data_root=data and str(data)))


@pytest.fixture
def data(tmp_path):
    for name in ('rain', 'snow', 'sun'):
        for split in ('train', 'val'):
            (tmp_path / split / name).mkdir(parents=True)
            Image.new('RGB', (8, 8)).save(tmp_path / split / name / '0.png')
    return tmp_path


def test_number_of_folders(data):
    assert complete(data).model.num_classes == 3
    assert complete(data, train_images='elsewhere').model.num_classes == 3  # the validation's
    cfg = complete(data, **{'model.num_classes': 5})
    assert cfg.model.num_classes == 5  # said aloud; the checks compare it with the folders


def test_too_few_folders(data):
    for name, left in (('rain', 'holds 1 class folder'), ('sun', 'holds no class folders')):
        (data / 'train' / name / '0.png').unlink()
        (data / 'train' / name).rmdir()
        if name == 'rain':
            (data / 'train/snow/0.png').unlink()
            (data / 'train/snow').rmdir()
        with pytest.raises(UserError, match=f"train_dataloader: '.*train' {left}.*; a classifier needs two or more"):
            complete(data)


def test_without_data_the_checkpoint_tells(data, tmp_path):
    trained = MODELS.build(complete(data).model)
    torch.save(dict(state_dict=trained.state_dict()), tmp_path / 'mine.pth')
    cfg = complete(None)
    assert cfg.model.get('num_classes') is None
    check_checkpoint(cfg, str(tmp_path / 'mine.pth'), strict=True)
    assert cfg.model.num_classes == 3


def test_weights_to_start_from_are_compared_before_a_run(data, tmp_path):
    cfg = complete(data, pretrained=str(tmp_path / 'none.pth'))
    with pytest.raises(UserError, match=r'none.pth does not exist\. It is named by init_cfg \(a template: '):
        check_pretrained(cfg)
    other = MODELS.build(dict(type='cvt_dense.CvT', arch=dict(embed_dims=(8, 16, 32), depths=(1, 1, 1),
                                                              num_heads=(1, 2, 4))))
    torch.save(other.state_dict(), tmp_path / 'other.pth')
    cfg = complete(data, pretrained=str(tmp_path / 'other.pth'))
    with pytest.raises(UserError, match='other.pth'):
        check_pretrained(cfg)
    torch.save(MODELS.build(cfg.model).backbone.state_dict(), tmp_path / 'right.pth')
    check_pretrained(complete(data, pretrained=str(tmp_path / 'right.pth')))
