"""A run that is stopped or crashes at any place ends, resumed, with the bits of a run that was not disturbed.

Here with runs of milliseconds; tests/engine/test_faults.py disturbs the three tasks.
"""
import itertools
import signal
from math import cos, pi
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, METRICS, MODELS, init_default_scope
from tiny_training import Crash, Disturb, assert_same_end, crash, load, stop
from torch import Tensor, nn

from cvt_dense.engine import CvTRunner
from cvt_dense.engine.checkpoint import find_checkpoint
from cvt_dense.errors import UserError

ITERATIONS = 12  # three epochs of four
RUNS = itertools.count()


@DATASETS.register_module()
class NoisyVectors(torch.utils.data.Dataset):
    """Eight vectors with noise, as an augmentation would add."""

    def __init__(self, noise: float = 1.):
        self.noise = noise

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return dict(inputs=torch.full((4, ), float(index)) + self.noise * torch.rand(4))


@MODELS.register_module()
class NoisyNet(BaseModel):

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.backbone = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 1))

    def forward(self, inputs: Tensor, mode: str) -> Any:
        outs = self.backbone(inputs)
        return dict(loss=outs.square().mean()) if mode == 'loss' else list(outs)


@METRICS.register_module()
class MeanOutput(BaseMetric):

    def process(self, data_batch: Any, data_samples: Any) -> None:
        self.results += [float(sample) for sample in data_samples]

    def compute_metrics(self, results: list) -> dict[str, float]:
        return dict(score=sum(results))


class QuickRunner(CvTRunner):
    """Does not look for compilers and GPUs, which takes longer than these runs."""

    def _log_env(self, env_cfg: dict[str, Any]) -> None:
        pass


@pytest.fixture(autouse=True)
def _handlers():
    old = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGTERM, old[0])
    signal.signal(signal.SIGUSR1, old[1])


def run(work_dir: Path, loop: str = 'epochs', accumulated: int = 1, disturb: Disturb | None = None,
        **settings: Any) -> CvTRunner:
    """Start the training in ``work_dir``, or resume it if there is a checkpoint."""
    epochs, init = loop == 'epochs', find_checkpoint(str(work_dir))
    sampler = dict(type='DefaultSampler' if epochs else 'InfiniteSampler', shuffle=True)
    loader = dict(dataset=dict(type='NoisyVectors'), batch_size=2, collate_fn=dict(type='default_collate'))
    init_default_scope('mmengine')
    cfg = Config(dict(
        model=dict(type='NoisyNet'), work_dir=str(work_dir), train_dataloader=dict(loader, sampler=sampler),
        val_dataloader=dict(loader, dataset=dict(type='NoisyVectors', noise=0.),
                            sampler=dict(type='DefaultSampler', shuffle=False)),
        train_cfg=dict(by_epoch=epochs, **dict(max_epochs=3) if epochs else dict(max_iters=ITERATIONS, val_interval=4)),
        val_cfg=dict(), val_evaluator=dict(type='MeanOutput'), auto_scale_lr=dict(base_batch_size=2, enable=True),
        optim_wrapper=dict(optimizer=dict(type='AdamW', lr=0.01), accumulative_counts=accumulated),
        param_scheduler=[dict(type='LinearLR', start_factor=0.1, end=3, by_epoch=False),
                         dict(type='CosineAnnealingLR', T_max=3, end=3, by_epoch=True, convert_to_iter_based=epochs)],
        default_hooks=dict(logger=None, runtime_info=dict(type='RuntimeInfoHook'), checkpoint=dict(
            type='cvt_dense.SafeCheckpointHook', interval=1 if epochs else 4, by_epoch=epochs, max_keep_ckpts=1,
            save_best='score', rule='greater')),
        custom_hooks=[dict(type='cvt_dense.SeedHook'),
                      dict(type='cvt_dense.EMAHook', momentum=0.2, update_buffers=True)],
        randomness=dict(seed=5), log_level='WARNING', experiment_name=f'resume{next(RUNS)}',
        resume=init is not None, load_from=init))
    cfg.merge_from_dict(settings)
    short = dict(optim_wrapper=cfg.optim_wrapper, param_scheduler=cfg.param_scheduler)  # its text is in each checkpoint
    runner = QuickRunner(**cfg, cfg=Config(short))
    if disturb is not None:
        runner.register_hook(disturb, 'VERY_HIGH')
    runner.train()
    return runner


@pytest.fixture(scope='module', params=[('epochs', 1), ('epochs', 3), ('iterations', 3)],
                ids=lambda param: f'{param[0]}-{param[1]}')
def undisturbed(request, tmp_path_factory) -> tuple[str, int, Path]:
    loop, accumulated = request.param  # epochs of four iterations end between two steps of three
    folder = tmp_path_factory.mktemp('undisturbed')
    run(folder, loop, accumulated)
    return loop, accumulated, folder


@pytest.mark.parametrize('mode, iterations', [('train', (2, 4, 7, 11)), ('val', (4, 12))])
@pytest.mark.parametrize('action', [stop, crash])
def test_disturbed_in_the_training_or_an_evaluation(undisturbed, tmp_path, action, mode, iterations):
    """A stop waits for the optimizer's next step."""
    loop, accumulated, expected = undisturbed
    for iteration in iterations:
        folder, done = tmp_path / str(iteration), iteration + (mode == 'train')
        with pytest.raises(SystemExit if action is stop else Crash):
            run(folder, loop, accumulated, Disturb(action, iteration, mode))
        if action is stop:
            meta = load(folder / 'preempted.pth')['meta']
            assert meta['iter'] == -(-done // accumulated) * accumulated
        run(folder, loop, accumulated)
        assert_same_end(folder, expected)


@pytest.mark.parametrize('schedule', [True, False])
def test_another_batch_size(tmp_path, schedule, capsys):
    """The epoch continues at the same fraction of the images; the learning rate follows the total batch."""
    settings = {} if schedule else dict(param_scheduler=None)
    with pytest.raises(SystemExit):
        run(tmp_path, disturb=Disturb(stop, 5, 'train'), **settings)
    assert load(tmp_path / 'preempted.pth')['meta']['iter'] == 6
    runner = run(tmp_path, **{'train_dataloader.batch_size': 4}, **settings)
    assert runner.iter == 6  # three epochs of two; it went on with the fourth
    group = runner.optim_wrapper.param_groups[0]
    expected = 0.02 * (1 + cos(pi * 5 / 6)) / 2 if schedule else 0.02  # after five of six iterations of the cosine
    assert group.get('initial_lr', 0.02) == 0.02 and group['lr'] == pytest.approx(expected, rel=1e-3)
    assert 'load_from' not in capsys.readouterr().out
    run(tmp_path, **{'optim_wrapper.optimizer.lr': 0.05}, **settings)
    assert 'load_from' in capsys.readouterr().out  # how another learning rate would be taken


def test_a_longer_training(tmp_path, capsys):
    """Its rate is that of a run that began with its length; a rate of 0 for the rest of a training is an error."""
    shorter, longer = ([dict(type='PolyLR', eta_min=0., end=end, by_epoch=False)] for end in (ITERATIONS, 24))
    run(tmp_path, 'iterations', param_scheduler=shorter)
    with pytest.raises(UserError, match='param_scheduler.0'):
        run(tmp_path, 'iterations', param_scheduler=shorter, **{'train_cfg.max_iters': 24})
    runner = run(tmp_path, 'iterations', param_scheduler=longer, **{'train_cfg.max_iters': 18})
    assert runner.optim_wrapper.param_groups[0]['lr'] == pytest.approx(0.01 * 5 / 23)  # it is 0 before the last one
    assert 'param_scheduler' in capsys.readouterr().out  # a training that ends before its schedule
