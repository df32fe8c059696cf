"""Adapt a config to this machine and its processes. These changes are not saved."""
import os

import torch
from mmengine.config import Config
from mmengine.logging import print_log

from ..nodes import dicts, type_name


def adapt_to_machine(cfg: Config, launcher: str) -> None:
    """Change what this machine or MMEngine's Runner here does not take.

    Args:
        cfg: changed in place.
        launcher: see :class:`.flags.Flags`.
    """
    cfg.launcher = launcher
    set_number_of_classes(cfg)
    adapt_loaders(cfg)
    adapt_optimizer(cfg)
    if launcher != 'none' and not torch.cuda.is_available():
        adapt_to_gloo(cfg)


def set_number_of_classes(cfg: Config) -> None:
    """Set the classifier's number of outputs in each image data set, so that it can refuse larger labels."""
    for loader in (cfg[key] for key in cfg if key.endswith('_dataloader')):
        for node in dicts(loader):
            if type_name(node) == 'ImageDataset':
                node.setdefault('num_classes', cfg.model.get('num_classes'))


def adapt_loaders(cfg: Config) -> None:
    """Remove loader settings that PyTorch refuses without workers, or warns about without CUDA or cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1
    for loader in (cfg[key] for key in cfg if key.endswith('_dataloader') and cfg[key]):
        loader.num_workers = min(loader.get('num_workers', 0), cores)
        if loader.num_workers == 0:
            loader.pop('persistent_workers', None)
        if not torch.cuda.is_available():
            loader.pop('pin_memory', None)


def adapt_optimizer(cfg: Config) -> None:
    """Train in float32 where there is no GPU, and in one process with an optimizer that is not sharded."""
    wrapper = cfg.get('optim_wrapper') or {}
    if type_name(wrapper) == 'AmpOptimWrapper' and not torch.cuda.is_available():
        wrapper.type = 'OptimWrapper'  # MMEngine's AmpOptimWrapper asserts a GPU
        for key in ('dtype', 'loss_scale', 'use_fsdp'):
            wrapper.pop(key, None)
        print_log('No GPU: running in float32 instead of mixed precision.', logger='current', level=30)
    optimizer = wrapper.get('optimizer') or {}
    if cfg.launcher == 'none' and type_name(optimizer) == 'ZeroRedundancyOptimizer':
        optimizer.type = optimizer.pop('optimizer_type')  # one process: no others to share the state with


def adapt_to_gloo(cfg: Config) -> None:
    """Prepare for several processes on CPUs: DDP without devices, and BN instead of SyncBN, which has no CPU kernel.

    MMEngine replaces SyncBN itself in a single process.
    """
    wrapper = dict(broadcast_buffers=False, find_unused_parameters=cfg.get('find_unused_parameters', False))
    wrapper.update(cfg.get('model_wrapper_cfg') or {}, device_ids=None)
    cfg.model_wrapper_cfg = wrapper
    cfg.sync_bn = None
    synced = [node for node in dicts(cfg.model) if type_name(node) in ('SyncBN', 'MMSyncBN')]
    for node in synced:
        node['type'] = 'BN'
    if synced and os.environ.get('RANK', '0') == '0':
        print_log('SyncBN has no CPU kernel and was replaced by BN: statistics are those of each process.',
                  logger='current', level=30)
