"""A classifier without a number of classes has as many as there are class folders."""
import re
import shutil

import pytest
import torch
from launch.building import build_run, datasets
from load_tool import run_tool
from mmengine.registry import MODELS
from PIL import Image
from templates_edited import write_template

import cvt_dense  # noqa: F401
from cvt_dense.errors import UserError
from cvt_dense.inference.model import TrainedFile, build_trained
from cvt_dense.published import read_config


@pytest.fixture
def load(tmp_path_factory):
    """Read the template with other lines at its top, and options."""
    def load(data, lines=(), checkpoint=None, **options):
        config = write_template(tmp_path_factory.mktemp('template'), 'cvt13_custom', arch='cvt-nano', **dict(lines))
        cfg = read_config(str(config), options, data and str(data))
        if checkpoint:
            build_trained(cfg, TrainedFile(checkpoint))
        return build_run(cfg, 'train', 'val', checked=False).cfg if data and not checkpoint else cfg

    return load


@pytest.fixture
def data(tmp_path):
    for name in ('rain', 'snow', 'sun', '.ipynb_checkpoints'):
        for split in ('train', 'val'):
            (tmp_path / split / name).mkdir(parents=True)
            Image.new('RGB', (8, 8)).save(tmp_path / split / name / '0.png')
    return tmp_path


def test_number_of_folders(data, load):
    assert load(data).model.num_classes == 3
    assert load(data, **{'model.num_classes': 5}).model.num_classes == 5  # the checks compare it with the folders


def test_training_and_validation_must_have_the_same_classes(data, load):
    (data / 'val/sun').rename(data / 'val/hail')
    with pytest.raises(UserError, match='hail'):
        build_run(load(data), 'train', 'val')
    shutil.rmtree(data / 'train')
    (data / 'train/rain').mkdir(parents=True)
    with pytest.raises(UserError, match='train_dataloader'):
        load(data)


def test_a_validation_folder_may_lack_classes(data, load):
    shutil.rmtree(data / 'val/rain')
    val = datasets(build_run(load(data), 'train', 'val'))['val']
    assert [val.get_data_info(i)['label'] for i in range(len(val))] == [1, 2]


def test_without_data_the_checkpoint_tells(data, tmp_path, load):
    torch.save(dict(state_dict=MODELS.build(load(data).model).state_dict()), tmp_path / 'mine.pth')
    assert load(None).model.get('num_classes') is None
    assert load(None, checkpoint=str(tmp_path / 'mine.pth')).model.num_classes == 3


@pytest.fixture
def third(data, load):
    """A config, and a checkpoint that takes every image for the third of its classes, the only one of the test."""
    cfg = load(data)
    model = MODELS.build(cfg.model)
    torch.nn.init.zeros_(model.head.weight)
    model.head.bias.data = torch.tensor([0., 0., 5.])
    meta = dict(dataset_meta=dict(classes=('rain', 'snow', 'sun')))
    torch.save(dict(state_dict=model.state_dict(), meta=meta), data / 'mine.pth')
    for name in ('rain', 'snow'):
        shutil.rmtree(data / 'val' / name)
    return cfg.filename, data / 'mine.pth'


def test_a_test_numbers_the_folders_by_the_names_that_come_with_weights(third, data):
    assert 'accuracy/top1: 100.0' in run_tool('test', *third, '--data-root', data, '--work-dir', data / 'work')


@pytest.mark.parametrize('names, rc', [('[sun,rain,snow]', 2), ('[hail,snow,sun]', 0)])
def test_a_test_refuses_another_order_and_tells_other_names(third, data, names, rc):
    option = f'test_dataloader.dataset.metainfo.classes={names}'
    assert 'metainfo.classes' in run_tool('test', *third, '--data-root', data, '--work-dir', data / 'work',
                                          '--cfg-options', option, rc=rc)


def test_a_resumed_training_refuses_another_order(third, data):
    config, checkpoint = third
    (data / 'train/snow').rename(data / 'train/hail')
    for name in ('hail', 'rain'):
        shutil.copytree(data / 'val/sun', data / 'val' / name)
    said = run_tool('train', config, '--data-root', data, '--work-dir', data / 'work', '--resume', checkpoint, rc=2)
    assert re.search("error: .*mine.pth.*'snow'", said)
