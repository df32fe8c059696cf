"""Build the model and the Runner of a run on this machine."""
import copy
import inspect
import itertools
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.dist import is_main_process, sync_random_seed
from mmengine.model import BaseModel
from mmengine.optim import AmpOptimWrapper
from mmengine.registry import MODELS, OPTIM_WRAPPERS, RUNNERS, DefaultScope
from mmengine.runner import Runner, set_random_seed
from torch.utils.data import DataLoader

from ..config.walk import class_of
from ..console import prints_to_log
from ..engine.runner import CvTRunner
from ..errors import UserError, refusals_of
from ..weights import register_safe_loading
from ..weights.strict_loading import StrictLoading, pretrained_cfgs

RUNS = itertools.count()  # of this process, whose loggers and message hubs MMEngine keeps by name


def prepare(cfg: Config, checkpoint: str | None = None, launcher: str = 'none') -> tuple[Config, list[str], int]:
    """Return the config as it runs here, how it differs from the user's, and the seed; seed this process.

    Args:
        cfg: the user's config, which is not changed.
        checkpoint: file that a training continues from.
        launcher: what started the processes of the run.
    """
    register_safe_loading()
    # As MMEngine's Runner does; init_default_scope would warn of the scope that an earlier run has left.
    DefaultScope.get_instance(f'run_{next(RUNS)}', scope_name=cfg.get('default_scope') or 'mmengine')
    running = copy.deepcopy(cfg)
    running.launcher = launcher
    running.resume, running.load_from = bool(checkpoint), checkpoint or cfg.get('load_from')
    changes = adapt_to_machine(running)
    running.randomness = dict(running.get('randomness') or {})
    if running.randomness.get('seed') is None:
        running.randomness.seed = sync_random_seed()
    return running, changes, set_random_seed(**running.randomness)


def adapt_to_machine(cfg: Config) -> list[str]:
    """Replace settings that this machine or MMEngine's Runner does not support, such as more workers than cores.

    Args:
        cfg: a copy of the user's config, changed in place.

    Returns:
        The changes in words.
    """
    changes = []
    gpu = torch.cuda.is_available()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1
    for key in [key for key in cfg if key.endswith('_dataloader') and cfg[key]]:
        loader = cfg[key]
        if loader.get('num_workers', 0) > cores:
            changes.append(f'{key}.num_workers is {cores}, as there are cores')
            loader.num_workers = cores
        if not loader.get('num_workers'):
            for setting in ('persistent_workers', 'prefetch_factor'):  # which PyTorch refuses without workers
                loader.pop(setting, None)
        loader.pin_memory = gpu and loader.get('pin_memory', False)
    wrapper = cfg.get('optim_wrapper') or {}
    kind = class_of(wrapper, cfg, OPTIM_WRAPPERS) if 'type' in wrapper else None
    # MMEngine's AmpOptimWrapper asserts a GPU.
    if kind and issubclass(kind, AmpOptimWrapper) and not gpu:
        wrapper.type = 'OptimWrapper'
        for key in ('dtype', 'loss_scale', 'use_fsdp'):
            wrapper.pop(key, None)
        changes.append('float32 instead of mixed precision, without a GPU')
    return changes


def build_model(cfg: Config) -> BaseModel:
    """Build the model of a training; it will read no pretrained weights that those of a checkpoint replace.

    Raises:
        UserError: its class refuses a setting.
    """
    with refusals_of('model'), prints_to_log():
        model = MODELS.build(copy.deepcopy(cfg.model))
    for module in model.modules() if cfg.get('load_from') else ():
        # A resumed run has all weights in its checkpoint; another one those of this project's modules at least.
        if pretrained_cfgs(module) and (cfg.resume or isinstance(module, StrictLoading)):
            module.init_cfg = None
    return model


def build_runner(saved: Config, running: Config, model: BaseModel, loaders: dict[str, DataLoader]) -> CvTRunner:
    """Build the Runner around a model and data loaders that are built; it is the first to write.

    Args:
        saved: the user's config, which the checkpoints keep.
        running: the config that runs here.
        model: the model, with its wrappers.
        loaders: by stage, those that the run uses.

    Raises:
        UserError: a setting is refused; what the Runner has written is removed.
    """
    named = running.get('runner_type', 'Runner')
    kind = RUNNERS.get(named) if isinstance(named, str) else named
    if kind is not Runner and not issubclass(kind, CvTRunner):
        raise UserError(f"runner_type={named!r}: allowed are MMEngine's Runner and classes derived from "
                        'cvt_dense.engine.CvTRunner.')
    kind = CvTRunner if kind is Runner else kind
    names = [name for name in inspect.signature(Runner.__init__).parameters if name in running]
    arguments = {name: copy.deepcopy(running[name]) for name in names if name != 'data_preprocessor'}
    arguments |= {f'{stage}_dataloader': loader for stage, loader in loaders.items()}
    name = running.get('experiment_name') or Path(saved.filename).stem
    with _leaves_no_trace(Path(running.work_dir)), refusals_of('a setting of the run'), warnings.catch_warnings():
        warnings.simplefilter('ignore')  # mmseg warns of its own defaults
        return kind(**dict(arguments, model=model, experiment_name=f'{name}_{next(RUNS)}'), cfg=saved)


@contextmanager
def _leaves_no_trace(folder: Path) -> Iterator[None]:
    """Remove the new folder of logs, and ``folder`` if it is new, where the block refuses to start a run."""
    new, before = not folder.exists(), {*folder.glob('*/')}
    try:
        yield
    except UserError:
        if is_main_process():
            for logs in {*folder.glob('*/')} - before:
                shutil.rmtree(logs, ignore_errors=True)
            with suppress(OSError):  # it holds something else
                if new:
                    folder.rmdir()
        raise
