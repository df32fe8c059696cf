"""Runs of a classifier and a detector that crash, are stopped or killed end with the weights of a run that was not.

tests/engine/checkpoint/test_resume.py disturbs the runs of a smaller network at more moments.

Both runs draw random numbers wherever the recipes do: in mmdet's pipelines, in the sampling of boxes, in dropout and
drop path. The detector accumulates 3 iterations, of which an epoch (4), after which it saves, is no multiple.
"""
import os
import select
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from load_tool import ROOT, forget_runs
from mmengine.hooks import Hook
from tiny_training import Crash, Disturb, assert_same_end, crash, load, start, stop, write_config

from cvt_dense.engine.checkpoint import Stopped, find_checkpoint
from cvt_dense.launch.runs import TrainRun
from cvt_dense.launch.start import start_training
from cvt_dense.shapes import generate

pytestmark = pytest.mark.slow

# Sampler and batch sampler as in the COCO recipes.
DETECTION = """
_base_ = {base!r}
arch = dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6))
optim_wrapper = dict(accumulative_counts=3)
custom_hooks = [dict(type='cvt_dense.EMAHook', update_buffers=True)]
val_dataloader = val_evaluator = val_cfg = test_dataloader = test_evaluator = test_cfg = None
model = dict(
    backbone=dict(arch=dict(_delete_=True, **arch), drop_path_rate=0.2),
    neck=dict(in_channels=[8, 24, 48]))
train_dataloader = dict(
    batch_size=2, num_workers=0,
    sampler=dict(_delete_=True, type='DefaultSampler', shuffle=True),
    batch_sampler=dict(type='AspectRatioBatchSampler'),
    dataset=dict(data_root={data!r}))
train_cfg = dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=3)
param_scheduler = [dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=12)]
default_hooks = dict(checkpoint=dict(by_epoch=True, interval=1), logger=dict(interval=1))
log_processor = dict(by_epoch=True)
"""


@pytest.fixture(scope='module')
def configs(tmp_path_factory) -> dict[str, Path]:
    """A config of each task, and its data."""
    folder = tmp_path_factory.mktemp('crashes')
    data = generate(folder / 'shapes', train=8, val=1, train_per_class=1, val_per_class=1) / 'detection'
    base = f'{ROOT}/configs/maskrcnn_cvt_nano_shapes.py'
    (folder / 'detection.py').write_text(DETECTION.format(base=base, data=str(data)))
    return dict(classification=write_config(folder), detection=folder / 'detection.py')


def train(config: Path, work_dir: Path, disturb: Hook | None = None, workers: int = 0) -> None:
    """Start a run in this process, or go on with it."""
    forget_runs()
    runner = start_training(TrainRun(config, work_dir=work_dir, resume='auto', options={
        'train_dataloader.num_workers': workers, 'train_dataloader.persistent_workers': False}))
    if disturb is not None:
        runner.register_hook(disturb, 'VERY_HIGH')
    try:
        runner.train()
    finally:  # the garbage collector would take the loader's queues before it ends its workers, for which it waits 5 s
        vars(runner.train_loop).pop('dataloader_iterator', None)


@pytest.fixture(scope='module')
def whole(configs) -> Callable[[str], Path]:
    """Return the work dir of a task's undisturbed run."""

    def run(task: str) -> Path:
        work_dir = configs[task].parent / f'{task}_whole'
        if not work_dir.exists():
            train(configs[task], work_dir)
        return work_dir

    return run


@pytest.mark.parametrize('task, action', [('classification', stop), ('detection', crash)])
def test_disturbed_inside_an_epoch(configs, whole, tmp_path, task, action):
    """With workers, which have loaded batches in advance, and continued without."""
    with pytest.raises(Crash if action is crash else Stopped):
        train(configs[task], tmp_path, Disturb(action, 7), workers=1)
    assert (tmp_path / 'preempted.pth').exists() == (action is stop)
    train(configs[task], tmp_path)
    assert_same_end(tmp_path, whole(task))


def test_killed_while_writing_a_checkpoint(configs, whole, tmp_path):
    """The old checkpoint is deleted after the new one is complete, although only one is kept."""
    command = 'tools/train.py', configs['classification'], '--work-dir', tmp_path / 'run'
    with start(*command, output=tmp_path / 'output.txt') as process:
        process.wait_for_text('Checkpoints will be saved')
        os.mkfifo(tmp_path / 'run/.partial-epoch_8.pth')  # takes 64 KB of the last checkpoint
        pipe = os.open(tmp_path / 'run/.partial-epoch_8.pth', os.O_RDONLY | os.O_NONBLOCK)
        process.wait_for(lambda: select.select([pipe], [], [], 0)[0] and os.read(pipe, 1))  # nothing may be written yet
        os.killpg(process.popen.pid, signal.SIGKILL)
        os.close(pipe)
    assert load(find_checkpoint(str(tmp_path / 'run')))['meta']['epoch'] == 7
    train(configs['classification'], tmp_path / 'run')
    assert_same_end(tmp_path / 'run', whole('classification'))
