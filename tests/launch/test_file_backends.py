"""Images through MMEngine's file backends: ``backend_args`` of a config."""
import shutil
from pathlib import Path

import lmdb
import torch
from launch.building import build_run, datasets
from load_tool import ROOT
from mmengine.runner import Runner

import cvt_dense  # noqa: F401
from cvt_dense.published import read_config


def load(data: Path, **options):
    """The config and data set as ``tools/train.py`` loads them."""
    options['test_dataloader.dataset.ann_file'] = 'val.txt'
    cfg = read_config(f'{ROOT}/configs/cvt_nano_shapes.py', options, str(data))
    return cfg, datasets(build_run(cfg, 'test'))['test']


def test_lmdb_gives_the_same_samples(shapes, tmp_path):
    """With list files instead of folders, which LMDB does not list."""
    data = Path(shutil.copytree(shapes / 'classification', tmp_path / 'data'))
    images = enumerate(sorted(data.glob('val/*/*')))
    (data / 'val.txt').write_text('\n'.join(f'{path.parent.name}/{path.name} {number}' for number, path in images))
    expected = list(load(data)[1])
    files = list(data.rglob('*.png'))
    with lmdb.open(str(tmp_path / 'images.lmdb'), map_size=2**26) as database, database.begin(write=True) as write:
        for path in files:
            write.put(str(path).encode(), path.read_bytes())
    for folder in {path.parent for path in files}:
        shutil.rmtree(folder)
    cfg, dataset = load(data, backend_args=dict(backend='lmdb', db_path=str(tmp_path / 'images.lmdb')))
    samples = list(Runner.build_dataloader(dict(cfg.test_dataloader, dataset=dataset, batch_size=1, num_workers=1)))
    assert len(samples) == len(expected) >= 2
    for sample, other in zip(samples, expected):
        assert torch.equal(sample['inputs'][0], other['inputs'])
