"""tools/benchmark.py data."""
import re
import tarfile

import pytest
from load_tool import run_tool
from tiny_training import write_config


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    return write_config(tmp_path_factory.mktemp('benchmark'))


def test_a_tar_file_beside_the_model(config):
    train = config.parent / 'data' / 'train'
    with tarfile.open(f'{train}.tar', 'w') as tar:
        tar.add(train, '.')
    output = run_tool('benchmark', 'data', config, '--workers', '0,1', '--steps', '2', '--cfg-options',
                      'train_dataloader.dataset.split=train.tar')
    found = re.findall(r'^(data, \d workers|training step, cpu) +([\d.]+)$', output, re.M)
    rates = {name: float(rate) for name, rate in found}
    assert list(rates) == ['data, 0 workers', 'data, 1 workers', 'training step, cpu']
    data, training = max(rates['data, 0 workers'], rates['data, 1 workers']), rates['training step, cpu']
    assert ('The model limits' if data > training > 0 else 'The data limits') in output
