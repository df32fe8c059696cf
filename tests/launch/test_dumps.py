"""The config that a run writes into its work directory equals the user's, and training from it repeats the run."""
import re
from pathlib import Path

import pytest
from load_tool import run_tool
from mmengine.config import Config
from tiny_training import differences, load, write_config

FLAGS = ('--auto-scale-lr', '--amp', 'bf16')


@pytest.fixture(scope='module')
def generations(tmp_path_factory) -> tuple[Path, list[tuple[Path, str]]]:
    """(folder, (work dir, output) of a run, of one from its dump, and of one from that one's dump)."""
    folder = tmp_path_factory.mktemp('dumps')
    config, runs = write_config(folder), []
    options = ('--cfg-options', 'optim_wrapper.accumulative_counts=2', 'train_cfg.max_epochs=2',
               'auto_scale_lr.base_batch_size=96')
    for number in range(3):
        work_dir = folder / str(number) / 'work'
        runs.append((work_dir, run_tool('train', config, '--work-dir', work_dir, *FLAGS, *options)))
        config, options = work_dir / 'tiny.py', ()
    return folder, runs


def test_three_generations_are_one_run(generations):
    _, runs = generations
    dumps = [dict(Config.fromfile(work_dir / 'tiny.py').to_dict(), work_dir=None) for work_dir, _ in runs]
    assert dumps[0] == dumps[1] == dumps[2]
    wrapper, scaling = dumps[0]['optim_wrapper'], dumps[0]['auto_scale_lr']
    assert (wrapper['type'], wrapper['dtype']) == ('cvt_dense.AutocastOptimWrapper', 'bfloat16')
    assert scaling == dict(base_batch_size=96, enable=True) and wrapper['optimizer']['lr'] == 2e-3
    rates = [re.findall(r'lr: ([\d.e+-]+)', output) for _, output in runs]
    assert len(rates[0]) == 2 * 6 and rates[0] == rates[1] == rates[2]
    assert all('CPU, bfloat16' in output for _, output in runs)
    for work_dir, output in runs:
        assert 'Scaling the original LR by 0.25' in output  # 12 images * 2 accumulated of 96
        assert differences(runs[0][0] / 'epoch_2.pth', work_dir / 'epoch_2.pth') == []
        curves, = work_dir.glob('*/vis_data/config.py')
        assert Config.fromfile(curves).to_dict() == Config.fromfile(work_dir / 'tiny.py').to_dict()
        written = Config.fromstring(load(work_dir / 'epoch_2.pth')['meta']['cfg'], '.py')
        assert written.optim_wrapper.type == 'cvt_dense.AutocastOptimWrapper'


def test_testing_and_resuming_leave_the_dump_alone(generations):
    folder, runs = generations
    dump = runs[0][0] / 'tiny.py'
    before = dump.read_text()
    run_tool('test', dump, runs[0][0] / 'epoch_2.pth', '--work-dir', runs[0][0], '--cfg-options',
             'test_dataloader.batch_size=7')
    assert dump.read_text() == before
    run_tool('train', dump, '--resume')
    assert dump.read_text() == before
