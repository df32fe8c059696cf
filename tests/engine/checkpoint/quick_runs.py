"""Runs of milliseconds, for tests that stop, resume and save."""
import itertools
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.evaluator import BaseMetric
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, METRICS, MODELS, init_default_scope
from torch import Tensor, nn

from cvt_dense.engine import CvTRunner
from cvt_dense.engine.checkpoint import find_checkpoint

ITERATIONS = 12  # three epochs of four
RUNS = itertools.count()


@DATASETS.register_module()
class NoisyVectors(torch.utils.data.Dataset):
    """Eight vectors with noise, as an augmentation would add."""

    def __init__(self, noise: float = 1., length: int = 8):
        self.noise, self.length = noise, length

    def __len__(self) -> int:
        return self.length

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


def run(work_dir: Path, loop: str = 'epochs', accumulated: int = 1, disturb: Hook | None = None,
        **options: Any) -> CvTRunner:
    """Start the training in ``work_dir``, or resume it if there is a checkpoint."""
    runner = build(work_dir, loop, accumulated, **options)
    if disturb is not None:
        runner.register_hook(disturb, 'VERY_HIGH')
    runner.train()
    return runner


def settings(work_dir: Path, loop: str = 'epochs', accumulated: int = 1, **options: Any) -> Config:
    """Return the config of a run."""
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
        custom_hooks=[dict(type='cvt_dense.EMAHook', momentum=0.2, update_buffers=True)],
        randomness=dict(seed=5, diff_rank_seed=True), log_level='WARNING', experiment_name=f'resume{next(RUNS)}',
        resume=init is not None, load_from=init))
    cfg.merge_from_dict(options)
    return cfg


def build(*args: Any, **options: Any) -> CvTRunner:
    """Build the runner of :func:`settings`."""
    cfg = settings(*args, **options)
    # Its text is in each checkpoint.
    short = {key: cfg[key] for key in ('optim_wrapper', 'param_scheduler', 'train_cfg')}
    return QuickRunner(**cfg, cfg=Config(short, format_python_code=False))
