"""A classifier without a number of classes has as many as there are class folders."""
import shutil
import tarfile

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from PIL import Image
from templates_edited import write_template

import cvt_dense  # noqa: F401
from cvt_dense.config.class_folders import set_classes
from cvt_dense.config.read import read_config
from cvt_dense.errors import UserError
from cvt_dense.launch.build import load_datasets
from cvt_dense.launch.checks.weights import check_weights
from cvt_dense.launch.flags import TestFlags
from cvt_dense.launch.start import start_test


@pytest.fixture
def load(tmp_path_factory):
    """Read the template with other lines at its top, and options."""
    def load(data, lines=(), checkpoint=None, **options):
        config = write_template(tmp_path_factory.mktemp('template'), 'cvt13_custom', arch='nano', **dict(lines))
        cfg = read_config(str(config), options, data and str(data))
        set_classes(cfg, checkpoint)
        return cfg

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
    assert load(data, dict(train_images='elsewhere')).model.num_classes == 3  # the validation's
    assert load(data, **{'model.num_classes': 5}).model.num_classes == 5  # the checks compare it with the folders


@pytest.mark.parametrize('left', [1, 0])
def test_too_few_folders(data, left, load):
    for path in sorted((data / 'train').rglob('*'), reverse=True)[:6 - 2 * left]:
        path.unlink() if path.is_file() else path.rmdir()
    with pytest.raises(UserError, match='train_dataloader'):
        load(data)


@pytest.mark.parametrize('tar', [False, True])
def test_training_and_validation_must_have_the_same_classes(data, tar, load):
    (data / 'val/sun').rename(data / 'val/hail')
    splits = dict(train='train', val='val')
    if tar:
        for split in ('train', 'val'):
            splits[split] = f'{split}.tar'
            with tarfile.open(data / splits[split], 'w') as file:
                file.add(data / split, '')
    cfg = load(data, **{f'{split}_dataloader.dataset.split': name for split, name in splits.items()})
    assert cfg.model.num_classes == 3
    with pytest.raises(UserError, match='hail'):
        load_datasets(cfg, ['train', 'val'])


def test_without_data_the_checkpoint_tells(data, tmp_path, load):
    torch.save(dict(state_dict=MODELS.build(load(data).model).state_dict()), tmp_path / 'mine.pth')
    assert load(None).model.get('num_classes') is None
    assert load(None, checkpoint=str(tmp_path / 'mine.pth')).model.num_classes == 3


def test_weights_to_start_from_are_compared_before_a_run(data, tmp_path, load):
    def check(name):
        cfg = load(data, dict(pretrained=str(tmp_path / name)))
        check_weights(cfg, MODELS.build(cfg.model), dict(train=None))

    other = MODELS.build(dict(type='cvt_dense.CvT', arch=dict(embed_dims=(8, 16, 32), depths=(1, 1, 1),
                                                              num_heads=(1, 2, 4))))
    torch.save(other.state_dict(), tmp_path / 'other.pth')
    for name in ('none.pth', 'other.pth'):
        with pytest.raises(UserError, match=name):
            check(name)
    torch.save(MODELS.build(load(data).model).backbone.state_dict(), tmp_path / 'right.pth')
    check('right.pth')


@pytest.fixture
def trained(tmp_path):
    """A folder with test data of two classes, and a network that takes everything for the second."""
    for name in ('dark', 'light'):
        (tmp_path / 'val' / name).mkdir(parents=True)
        Image.new('RGB', (8, 8)).save(tmp_path / 'val' / name / '0.png')
    config = write_template(tmp_path, 'cvt13_custom', arch='nano')
    cfg = read_config(str(config), data_root=str(tmp_path))
    set_classes(cfg)
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    model = MODELS.build(cfg.model)
    torch.nn.init.zeros_(model.head.weight)
    model.head.bias.data = torch.tensor([0., 5.])
    torch.save(dict(state_dict=model.state_dict(), meta=dict(dataset_meta=dict(classes=('dark', 'light')))),
               tmp_path / 'mine.pth')
    return tmp_path, config


def test_a_test_numbers_the_folders_by_the_checkpoints_names(trained, run_tool):
    folder, config = trained
    shutil.rmtree(folder / 'val/dark')  # 'light' alone would be class 0
    out = run_tool('tools/test.py', config, folder / 'mine.pth', '--data-root', folder, '--work-dir',
                   folder / 'work').stdout
    assert 'accuracy/top1: 100.0' in out


def test_a_class_that_the_checkpoint_does_not_know_is_named(trained):
    folder, config = trained
    (folder / 'val/light').rename(folder / 'val/bright')
    with pytest.raises(UserError, match='bright.*light'):
        start_test(TestFlags(config=str(config), checkpoint=str(folder / 'mine.pth'), data_root=str(folder),
                             work_dir=str(folder / 'work')))


def test_a_checkpoints_names_number_the_folders_of_a_test(data, tmp_path, load):
    """A subset keeps its numbers; what training reads, and a config's own names, stay."""
    model = MODELS.build(load(data).model)
    meta = dict(dataset_meta=dict(classes=['rain', 'snow', 'sun']))
    torch.save(dict(state_dict=model.state_dict(), meta=meta), tmp_path / 'mine.pth')
    for path in [*(data / 'val/rain').iterdir(), data / 'val/rain', *(data / 'val/snow').iterdir(), data / 'val/snow']:
        path.unlink() if path.is_file() else path.rmdir()
    cfg = load(data, checkpoint=str(tmp_path / 'mine.pth'))
    dataset = load_datasets(cfg, ['test'])['test']
    assert [dataset[i]['labels'] for i in range(len(dataset))] == [2]
    assert 'metainfo' not in cfg.train_dataloader.dataset and cfg.model.num_classes == 3
