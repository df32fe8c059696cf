"""Adapt a copy of the config to this machine, its processes, and the checkpoint that is continued or tested.

These changes are not saved.
"""
import argparse
import copy
import os

import torch
from mmengine.config import Config
from mmengine.logging import print_log

from ..engine.checkpoint import find_checkpoint
from ..nodes import dicts, type_name
from .inference import set_corruptions, set_inference
from .read import check_amp
from .tta import set_slices, set_tta_pipeline
from .work_dir import test_folder, was_restarted


def adapt(cfg: Config, args: argparse.Namespace) -> Config:
    """Return a copy of ``cfg`` that is adapted to this start on this machine. The function is idempotent.

    Args:
        cfg: what :func:`.read.read_config` returned.
        args: flags of the tool; one that the tool does not have counts as not given.

    Raises:
        UserError: if a flag does not go with the config, another flag or this machine.
    """
    given = {name: value for name, value in vars(args).items() if value}
    cfg = copy.deepcopy(cfg)
    cfg.launcher = args.launcher
    if 'checkpoint' in given:
        cfg.load_from, cfg.resume = args.checkpoint, False
        cfg.work_dir = test_folder(cfg, args)
        set_inference(cfg, args)
    if hasattr(args, 'resume'):
        set_resume(cfg, args.resume)
    if 'tta' in given:
        set_tta_pipeline(cfg)
    if 'slice' in given:
        set_slices(cfg, args)
    if 'corrupt' in given:
        set_corruptions(cfg, args)
    if 'amp' in given:
        check_amp(cfg, args.amp)
    set_number_of_classes(cfg)
    adapt_loaders(cfg)
    adapt_optimizer(cfg)
    if cfg.launcher != 'none' and not torch.cuda.is_available():
        adapt_to_gloo(cfg)
    return cfg


def set_resume(cfg: Config, checkpoint: str | None) -> None:
    """Let the run continue from ``checkpoint``, or with 'auto' from the last complete one in the work dir.

    A process that torchrun has started again after a crash (``--max-restarts``) always continues from the work dir.
    Where that holds no checkpoint yet, the run starts from its beginning, and the log reports it.
    """
    restarted = was_restarted()
    if checkpoint is None and not restarted:
        return
    found = find_checkpoint(cfg.work_dir) if restarted or checkpoint == 'auto' else None
    if found is None and checkpoint != 'auto':
        found = checkpoint
    if found is None:
        print_log(f'{cfg.work_dir!r} holds no complete checkpoint: training from the beginning.',
                  logger='current')
        return
    cfg.resume, cfg.load_from = True, found


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
