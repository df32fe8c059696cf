"""Adapt a copy of a config to this machine and its processes."""
import os

import torch
from mmengine.config import Config
from mmengine.registry import MODELS

from ..config.walk import class_of, dicts, type_name


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
    if cfg.get('load_from'):  # replaces all pretrained weights, whose file may be on another machine
        for node in dicts(cfg.model):
            if type_name(node.get('init_cfg')) == 'Pretrained' and (
                    cfg.get('resume') or hasattr(class_of(node, cfg, MODELS), 'load_strictly')):
                node['init_cfg'] = None
    wrapper = cfg.get('optim_wrapper') or {}
    if type_name(wrapper) == 'AmpOptimWrapper' and not gpu:
        wrapper.type = 'OptimWrapper'  # MMEngine's AmpOptimWrapper asserts a GPU
        for key in ('dtype', 'loss_scale', 'use_fsdp'):
            wrapper.pop(key, None)
        changes.append('float32 instead of mixed precision, without a GPU')
    return changes
