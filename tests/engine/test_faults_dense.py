"""Mask R-CNN and UperNet, killed at random moments, end with the weights of a run that was not.

``PYTHONPATH=.:tests python tests/engine/test_faults_dense.py 20 [detection]`` kills each of them, or the named one, 20
times, with 0 and 2 workers and 1 and 2 processes, and compares the end with that of an undisturbed run, bit for bit;
the test below does so once.

Both runs draw random numbers wherever the recipes do: in mmdet's and mmseg's pipelines, in the batch (mmdet; never
the size that the images have), in the sampling of boxes, in dropout and drop path. They accumulate 3 iterations, of
which neither an epoch (4) nor the interval of checkpoints (4) is a multiple. Detection counts epochs and groups images
by their shape, segmentation counts iterations.
"""
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from _shapes import generate
from tiny_training import ROOT, call, differences, kill_repeatedly, load

COMMON = """
arch = dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6))
optim_wrapper = dict(accumulative_counts=3)
custom_hooks = [dict(type='cvt_dense.EMAHook', update_buffers=True)]
"""
# Sampler and batch sampler as in the COCO recipes.
DETECTION = """
_base_ = '{root}/configs/maskrcnn_cvt_nano_shapes.py'
""" + COMMON + """
model = dict(
    data_preprocessor=dict(
        batch_augments=[dict(type='BatchSyncRandomResize', random_size_range=(32, 64), interval=1)]),
    backbone=dict(arch=dict(_delete_=True, **arch), drop_path_rate=0.2),
    neck=dict(in_channels=[8, 24, 48]))
train_dataloader = dict(
    batch_size=2,
    num_workers={workers},
    sampler=dict(_delete_=True, type='DefaultSampler', shuffle=True),
    batch_sampler=dict(type='AspectRatioBatchSampler'),
    dataset=dict(
        data_root='{data}/detection',
        pipeline=[
            dict(type='LoadImageFromFile'),
            dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
            dict(type='RandomChoiceResize', scales=[(96, 96), (128, 128)], keep_ratio=True),
            dict(type='RandomCrop', crop_size=(80, 96), allow_negative_crop=False),
            dict(type='PhotoMetricDistortion'),
            dict(type='RandomFlip', prob=0.5),
            dict(type='PackDetInputs')]))
val_dataloader = val_evaluator = val_cfg = test_dataloader = test_evaluator = test_cfg = None
train_cfg = dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=6)
param_scheduler = [dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=24)]
default_hooks = dict(checkpoint=dict(by_epoch=True, interval=1), logger=dict(interval=1))
log_processor = dict(by_epoch=True)
"""
SEGMENTATION = """
_base_ = '{root}/configs/upernet_cvt_nano_shapes.py'
""" + COMMON + """
model = dict(
    data_preprocessor=dict(size=(96, 96)),
    backbone=dict(arch=dict(_delete_=True, **arch), drop_path_rate=0.2),
    decode_head=dict(in_channels=[8, 24, 48]),
    auxiliary_head=dict(in_channels=48))
train_dataloader = dict(
    batch_size=2,
    num_workers={workers},
    dataset=dict(
        data_root='{data}/segmentation',
        pipeline=[
            dict(type='LoadImageFromFile'),
            dict(type='LoadAnnotations'),
            dict(type='RandomResize', scale=(128, 128), ratio_range=(0.8, 1.5), keep_ratio=True),
            dict(type='RandomCrop', crop_size=(96, 96), cat_max_ratio=0.75),
            dict(type='RandomFlip', prob=0.5),
            dict(type='PhotoMetricDistortion'),
            dict(type='PackSegInputs')]))
val_dataloader = val_evaluator = val_cfg = test_dataloader = test_evaluator = test_cfg = None
train_cfg = dict(_delete_=True, type='IterBasedTrainLoop', max_iters=24)
default_hooks = dict(checkpoint=dict(interval=4), logger=dict(interval=1))
"""
TASKS = dict(detection=(DETECTION, 'epoch_6.pth'), segmentation=(SEGMENTATION, 'iter_24.pth'))
WITHIN = 4.  # seconds: some of a run's 24 iterations


def command(folder: Path, task: str, workers: int, processes: int, work_dir: Path, fork: bool = True) -> tuple:
    """What starts or resumes a task's run, if ``fork`` without importing PyTorch again; writes its config."""
    config = folder / f'{task}_{workers}.py'
    config.write_text(TASKS[task][0].format(root=ROOT, data=folder / 'data', workers=workers))
    flags = '--work-dir', work_dir, '--resume'
    if processes == 1:
        return *(() if fork else (sys.executable, )), 'tools/train.py', config, *flags
    return ('tests/two_ranks.py', 'tools/train.py', config, *flags) if fork else (
        'tools/dist_train.sh', config, processes, *flags)


def undisturbed(folder: Path, task: str, processes: int) -> Path:
    """The last checkpoint of a run that nothing disturbs; it loads its data in the process itself."""
    work_dir = folder / f'{task}_{processes}_undisturbed'
    last = work_dir / TASKS[task][1]
    if not last.exists():
        call(*command(folder, task, 0, processes, work_dir), output=folder / f'{work_dir.name}.txt')
    # Two processes share an epoch of detection; an iteration of segmentation is as long for any number of them.
    assert load(last)['meta']['iter'] == (24 // processes if task == 'detection' else 24)
    return last


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('faults_dense')
    generate(folder / 'data', train=8, val=1, train_per_class=1, val_per_class=1)
    return folder


@pytest.mark.parametrize('task, workers, processes', [('detection', 2, 1), ('segmentation', 2, 2)])
def test_killed_at_a_random_moment(folder, task, workers, processes):
    work_dir = folder / f'{task}_killed'
    kill_repeatedly(command(folder, task, workers, processes, work_dir), work_dir, kills=1, within=WITHIN)
    assert differences(undisturbed(folder, task, processes), work_dir / TASKS[task][1]) == []


def main(kills: int, tasks: list[str]) -> None:
    folder = Path(tempfile.mkdtemp(prefix='faults_dense_'))
    generate(folder / 'data', train=8, val=1, train_per_class=1, val_per_class=1)
    for task in tasks:
        done, runs = 0, 0
        while done < kills:
            workers, processes = (0, 2)[runs % 2], (1, 2)[runs // 2 % 2]
            work_dir = folder / f'{task}_{runs}'
            done += kill_repeatedly(command(folder, task, workers, processes, work_dir, fork=False), work_dir,
                                    min(5, kills - done), WITHIN, seed=runs)
            runs += 1
            different = differences(undisturbed(folder, task, processes), work_dir / TASKS[task][1])
            print(f'{task}, {workers} workers, {processes} processes; {done} kills, {runs} runs: {len(different)} '
                  'values of the last checkpoint differ', flush=True)
            if different:
                sys.exit(f'{folder}: {different[:5]}')
    shutil.rmtree(folder)


if __name__ == '__main__':
    os.environ['CUDA_VISIBLE_DEVICES'] = ''
    main(int(sys.argv[1]), sys.argv[2:] or list(TASKS))
