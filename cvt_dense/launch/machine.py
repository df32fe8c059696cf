"""Adapt a config to this machine and its processes. These changes are not saved."""
import os

import torch
from mmengine.config import Config
from mmengine.logging import print_log

from ..config.settings import dicts, type_name


def adapt_to_machine(cfg: Config, launcher: str) -> None:
    """Replace settings that this machine or MMEngine's Runner does not support, such as more workers than cores.

    Args:
        cfg: changed in place.
        launcher: see :class:`.flags.Flags`.
    """
    cfg.launcher = launcher
    gpu = torch.cuda.is_available()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1
    for loader in (cfg[key] for key in cfg if key.endswith('_dataloader') and cfg[key]):
        loader.num_workers = min(loader.get('num_workers', 0), cores)
        if loader.num_workers == 0:
            loader.pop('persistent_workers', None)  # which PyTorch refuses without workers
        loader.pin_memory = gpu and loader.get('pin_memory', False)
        for node in dicts(loader):
            if type_name(node) == 'ImageDataset':  # which then refuses labels that are larger
                node.setdefault('num_classes', cfg.model.get('num_classes'))
    wrapper = cfg.get('optim_wrapper') or {}
    if type_name(wrapper) == 'AmpOptimWrapper' and not gpu:
        wrapper.type = 'OptimWrapper'  # MMEngine's AmpOptimWrapper asserts a GPU
        for key in ('dtype', 'loss_scale', 'use_fsdp'):
            wrapper.pop(key, None)
        print_log('No GPU: running in float32 instead of mixed precision.', logger='current', level=30)
    optimizer = wrapper.get('optimizer') or {}
    if launcher == 'none' and type_name(optimizer) == 'ZeroRedundancyOptimizer':
        optimizer.type = optimizer.pop('optimizer_type')  # one process: no others to share the state with
    if launcher != 'none' and not gpu:
        adapt_to_gloo(cfg)


def adapt_to_gloo(cfg: Config) -> None:
    """Prepare for several processes on CPUs: DDP without devices, and BN instead of SyncBN, which has no CPU kernel."""
    cfg.model_wrapper_cfg = dict(
        dict(broadcast_buffers=False, find_unused_parameters=cfg.get('find_unused_parameters', False)),
        **dict(cfg.get('model_wrapper_cfg') or {}, device_ids=None))
    cfg.sync_bn = None
    for node in dicts(cfg.model):
        if type_name(node) in ('SyncBN', 'MMSyncBN'):
            node['type'] = 'BN'
