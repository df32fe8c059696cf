"""The config that a run writes into its work directory equals the user's, and training from it repeats the run."""
import re

import pytest
from load_tool import run_tool
from mmengine.config import Config
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_training import differences, load, write_config

pytestmark = pytest.mark.slow

FLAGS = ('--auto-scale-lr', '--amp', 'bf16', '--val-loss')
TRACKERS = [dict(type='LocalVisBackend'), dict(type='TensorboardVisBackend')]


def test_a_dump_and_its_own_dump_are_the_same_run(tmp_path):
    config, runs = write_config(tmp_path), []
    config.write_text(f"{config.read_text()}\nvisualizer = dict(type='Visualizer', vis_backends={TRACKERS})\n")
    options = ('--cfg-options', 'optim_wrapper.accumulative_counts=2', 'train_cfg.max_epochs=2',
               'auto_scale_lr.base_batch_size=96', 'val_dataloader.pin_memory=True')
    for name in ('first', 'second'):
        work_dir = tmp_path / name
        runs.append((work_dir, run_tool('train', config, '--work-dir', work_dir, *FLAGS, *options)))
        config, options = work_dir / 'tiny.py', ()
    dumps = [dict(Config.fromfile(work_dir / 'tiny.py').to_dict(), work_dir=None) for work_dir, _ in runs]
    assert dumps[0] == dumps[1] and dumps[0]['val_dataloader']['pin_memory']  # which needs a GPU
    wrapper, scaling = dumps[0]['optim_wrapper'], dumps[0]['auto_scale_lr']
    assert (wrapper['type'], wrapper['dtype']) == ('cvt_dense.AutocastOptimWrapper', 'bfloat16')
    assert scaling == dict(base_batch_size=96, enable=True) and wrapper['optimizer']['lr'] == 2e-3
    rates = [re.findall(r'lr: ([\d.e+-]+)', output) for _, output in runs]
    assert len(rates[0]) == 2 * 6 and rates[0] == rates[1]
    assert differences(*(work_dir / 'epoch_2.pth' for work_dir, _ in runs)) == []
    assert '5.0000e-04' in rates[0]  # of 2e-3, for 12 images * 2 accumulated of 96
    for work_dir, _ in runs:
        curves, = work_dir.glob('*/vis_data/config.py')
        assert Config.fromfile(curves).to_dict() == Config.fromfile(work_dir / 'tiny.py').to_dict()
        assert len(EventAccumulator(str(curves.parent)).Reload().Tensors('config/text_summary')) == 1
        written = Config.fromstring(load(work_dir / 'epoch_2.pth')['meta']['cfg'], '.py')
        assert written.optim_wrapper.type == 'cvt_dense.AutocastOptimWrapper'

    before = (tmp_path / 'tiny.py').read_text()  # lies in the work directory, and is not replaced by its dump
    run_tool('train', tmp_path / 'tiny.py', '--work-dir', tmp_path, '--cfg-options', 'train_cfg.max_epochs=1')
    assert (tmp_path / 'tiny.py').read_text() == before

    # Testing and resuming leave the dump alone.
    work_dir, dump = runs[0][0], runs[0][0] / 'tiny.py'
    before = dump.read_text()
    run_tool('test', dump, work_dir / 'epoch_2.pth', '--work-dir', work_dir, '--cfg-options',
             'test_dataloader.batch_size=7')
    assert dump.read_text() == before
    run_tool('train', dump, '--resume')
    assert dump.read_text() == before
