"""Images and label maps through MMEngine's file backends: ``backend_args`` of a config."""
import shutil
from argparse import Namespace
from pathlib import Path

import lmdb
import pytest
import torch
from _shapes import generate
from mmengine.registry import init_default_scope
from mmengine.runner import Runner

import cvt_dense  # noqa: F401
from cvt_dense.errors import UserError
from cvt_dense.launch import build, settings

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = dict(classification='cvt_nano_shapes', detection='maskrcnn_cvt_nano_shapes',
               segmentation='upernet_cvt_nano_shapes')


@pytest.fixture
def data(tmp_path) -> Path:
    """The generated shapes with list files for the tasks whose data sets can also list folders."""
    folder = generate(tmp_path / 'data', size=64, train=2, val=3, train_per_class=1, val_per_class=1)
    lists = dict(classification='', segmentation='')
    for number, path in enumerate(sorted((folder / 'classification' / 'val').glob('*/*'))):
        lists['classification'] += f'{path.parent.name}/{path.name} {number}\n'
    for path in sorted((folder / 'segmentation' / 'images' / 'validation').iterdir()):
        lists['segmentation'] += f'{path.stem}\n'
    for task, lines in lists.items():
        (folder / task / 'val.txt').write_text(lines)
    return folder


def pack(folder: Path, database: Path) -> None:
    """Moves every image and label map below ``folder`` into an LMDB, under its path."""
    files = [path for path in folder.rglob('*') if path.suffix in ('.png', '.jpg', '.JPEG')]
    with lmdb.open(str(database), map_size=2**26) as environment, environment.begin(write=True) as transaction:
        for path in files:
            transaction.put(str(path).encode(), path.read_bytes())
            path.unlink()
    assert files


def load(task: str, data: Path, **options):
    """The config as ``tools/train.py`` loads it."""
    if task != 'detection':
        options['val_dataloader.dataset.ann_file'] = 'val.txt'
    cfg = settings.load_config(Namespace(
        config=f'{ROOT}/configs/{CONFIGS[task]}.py', cfg_options=options, data_root=str(data / task), launcher='none',
        local_rank=0, work_dir=None))
    init_default_scope(cfg.default_scope)
    return cfg


@pytest.mark.parametrize('task', CONFIGS)
def test_lmdb_gives_the_same_samples(task, data, tmp_path):
    expected = list(build.build_datasets(load(task, data), ['val'])['val'])
    pack(data / task, tmp_path / 'images.lmdb')
    for folder in ('train', 'val', 'images', 'annotations/validation'):
        shutil.rmtree(data / task / folder, ignore_errors=True)
    cfg = load(task, data, backend_args=dict(backend='lmdb', db_path=str(tmp_path / 'images.lmdb')))
    dataset = build.build_datasets(cfg, ['val'])['val']
    loader = dict(cfg.val_dataloader, dataset=dataset, batch_size=1, num_workers=1)
    samples = list(Runner.build_dataloader(loader))
    assert len(samples) == len(expected) >= 3
    for sample, other in zip(samples, expected):
        assert torch.equal(sample['inputs'][0], other['inputs'])
        if task == 'segmentation':
            assert torch.equal(sample['data_samples'][0].gt_sem_seg.data, other['data_samples'].gt_sem_seg.data)


def test_annotations_too_through_a_backend_that_has_files(data):
    args = dict(backend='petrel', path_mapping={str(data): 's3://shapes'})
    cfg = load('detection', data, backend_args=args)
    for node in (cfg.val_dataloader.dataset, cfg.val_dataloader.dataset.pipeline[0], cfg.val_evaluator):
        assert node.backend_args == args
    assert 'backend_args' not in cfg.model


def test_mistakes(data, tmp_path):
    pack(tmp_path / 'data' / 'segmentation', tmp_path / 'images.lmdb')
    args = dict(backend='lmdb', db_path=str(tmp_path / 'images.lmdb'))
    with pytest.raises(UserError, match="val_dataloader: nothing is stored under '.*detection.*' in backend_args=.*"
                                        'Keys must be'):
        build.build_datasets(load('detection', data, backend_args=args), ['val'])
    with pytest.raises(UserError, match='train_dataloader: images are read through backend_args, which cannot list '
                                        'them; set dataset.ann_file'):
        build.build_datasets(load('segmentation', data, backend_args=args), ['train'])
    with pytest.raises(ValueError, match='backend_args=.* reads images, but cannot list them: set ann_file'):
        build.build_datasets(load('classification', data, backend_args=args), ['train'])
    with pytest.raises(UserError, match=r'cannot be read through backend_args=.*gone.lmdb.*No such file'):
        build.build_datasets(load('detection', data, backend_args=dict(args, db_path='gone.lmdb')), ['val'])
    with pytest.raises(UserError, match="backend_args.backend='lmbd': allowed are .*'lmdb', 'local'"):
        load('detection', data, backend_args=dict(backend='lmbd'))
