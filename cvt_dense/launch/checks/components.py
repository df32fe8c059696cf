"""Build once, for the check, what MMEngine builds after its first files or even after the first epoch."""
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mmengine.config import Config
from mmengine.dist import get_world_size
from mmengine.optim import OptimWrapper, build_optim_wrapper
from mmengine.registry import (
    DATA_SAMPLERS,
    HOOKS,
    LOG_PROCESSORS,
    METRICS,
    OPTIMIZERS,
    PARAM_SCHEDULERS,
    VISBACKENDS,
    VISUALIZERS,
    Registry,
)
from mmengine.visualization import Visualizer

from ...errors import UserError
from ...nodes import type_name
from .run import Run
from .schedules import schedules_of


def check_components(cfg: Config, run: Run) -> None:
    """Build the optimizer, schedules, metrics, samplers and hooks of a run.

    Raises:
        UserError: if one cannot be built; the message names its setting.
    """
    for stage in run.stages:
        loader = cfg.get(f'{stage}_dataloader') or {}
        sampler = loader.get('sampler')
        if stage in run.datasets and isinstance(sampler, dict):
            with _names(f'{stage}_dataloader.sampler'):
                DATA_SAMPLERS.build(dict(sampler), default_args=dict(dataset=run.datasets[stage], seed=0))
        metrics = cfg.get(f'{stage}_evaluator') or []
        for metric in [metrics] if isinstance(metrics, dict) else metrics:
            if isinstance(metric, dict) and type_name(metric) != 'Evaluator':
                # COCO's annotations have been checked, and to read them again would take seconds.
                read = dict(ann_file=None) if type_name(metric) == 'CocoMetric' and metric.get('ann_file') else {}
                with _names(f'{stage}_evaluator'):
                    METRICS.build(dict(metric, **read))
    if 'train' in run.stages and cfg.get('optim_wrapper'):
        _check_optimizer(cfg, run)
    hooks = {f'default_hooks.{name}': hook for name, hook in (cfg.get('default_hooks') or {}).items()}
    hooks |= {f'custom_hooks.{i}': hook for i, hook in enumerate(cfg.get('custom_hooks') or [])}
    Visualizer.get_instance('check_components')  # hooks that draw ask for the last one that was made
    for name, hook in hooks.items():
        if isinstance(hook, dict):
            with _names(name):
                HOOKS.build({key: value for key, value in hook.items() if key != 'priority'})
    visualizer = cfg.get('visualizer') or {}
    _check_type(VISUALIZERS, 'visualizer', visualizer)
    for i, backend in enumerate(visualizer.get('vis_backends') or []):
        _check_type(VISBACKENDS, f'visualizer.vis_backends.{i}', backend)
    if cfg.get('log_processor'):
        with _names('log_processor'):
            LOG_PROCESSORS.build(dict(dict(type='LogProcessor'), **cfg.log_processor))


def _check_optimizer(cfg: Config, run: Run) -> None:
    if type_name(cfg.optim_wrapper.get('optimizer')) == 'ZeroRedundancyOptimizer':
        return  # it is built by all processes together
    _check_type(OPTIMIZERS, 'optim_wrapper.optimizer', cfg.optim_wrapper.get('optimizer'))
    with _names('optim_wrapper'):
        wrapper = build_optim_wrapper(run.model(cfg), cfg.optim_wrapper)
    if not isinstance(wrapper, OptimWrapper):
        return  # one for each part of the model, each with schedules of its own
    loop, dataset = cfg.get('train_cfg') or {}, run.datasets.get('train')
    batch = (cfg.train_dataloader.get('batch_size') or 1) * get_world_size()
    iterations = max(len(dataset) // batch, 1) if dataset is not None else 1000
    for place, schedule in schedules_of(cfg):
        epochs = schedule.get('by_epoch', True)
        end = loop.get('max_epochs' if epochs else 'max_iters') or 10**9
        with _names(place):
            PARAM_SCHEDULERS.build(dict(dict(end=end), **schedule),
                                   default_args=dict(optimizer=wrapper, epoch_length=iterations))


@contextmanager
def _names(setting: str) -> Iterator[None]:
    """Let the errors of what is built in here name their setting; what it logs is logged when a run builds it."""
    logging.disable(logging.WARNING)
    try:
        yield
    except Exception as error:  # whatever a constructor raises
        message = error.args[0] if isinstance(error, KeyError) and error.args else error
        raise UserError(f'{setting}: {type(error).__name__}: {message}') from error
    finally:
        logging.disable(logging.NOTSET)


def _check_type(registry: Registry, setting: str, node: Any) -> None:
    named = node.get('type') if isinstance(node, dict) else None
    with registry.switch_scope_and_registry(None) as own:  # that of the config's default_scope, e.g. mmdet's
        if isinstance(named, str) and own.get(named) is None:
            raise UserError(f'{setting}.type={named!r}: no such type is registered. Correct the name.')
