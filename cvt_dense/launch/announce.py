"""What a run says before it begins: what is trained or tested, on what, for how long, from which weights, where."""
from typing import Any

import torch
from mmengine.config import Config
from mmengine.runner import Runner

from ..nodes import dicts, type_name, walk


def announce(runner: Runner, cfg: Config, datasets: dict[str, Any]) -> None:
    """Logs it.

    Args:
        runner: of the run.
        cfg: the config as it runs here.
        datasets: by stage, those that the run uses.
    """
    training = 'train' in datasets
    lines = dict(model=_model(runner, cfg), data=_data(cfg, datasets))
    if training:
        lines['length'] = _length(cfg, len(datasets['train']), runner.world_size)
        lines['optimizer'] = _optimizer(cfg)
    lines['weights'] = _weights(cfg)
    lines['runs on'] = _device(cfg, runner.world_size, training)
    lines['folder'] = runner.work_dir
    lines['log'] = f'{runner.logger.log_file} (and the config, the environment, what packages say)'
    text = ''.join(f'\n  {name + ":":<11}{line}' for name, line in lines.items())
    runner.logger.info(('Training' if training else 'Testing') + text)


def _model(runner: Runner, cfg: Config) -> str:
    parameters = sum(parameter.numel() for parameter in runner.model.parameters())
    parts = [type_name(cfg.model)]
    for name in ('backbone', 'neck', 'decode_head', 'bbox_head'):
        inside = next((node for path, node in walk(cfg.model.to_dict()) if path.split('.')[-1] == name), None)
        if inside is not None and type_name(inside):
            parts.append(type_name(inside))
    return f'{" with ".join([parts[0], ", ".join(parts[1:])]) if parts[1:] else parts[0]}, ' \
           f'{parameters / 1e6:.2f} million parameters'


def _data(cfg: Config, datasets: dict[str, Any]) -> str:
    counts = ', '.join(f'{stage} {len(dataset)} images' for stage, dataset in datasets.items())
    roots = {node['data_root']: None for stage in datasets for node in dicts(cfg[f'{stage}_dataloader'])
             if node.get('data_root')}
    classes = (getattr(next(iter(datasets.values())), 'metainfo', None) or {}).get('classes') or ()
    named = f'; {len(classes)} classes: {", ".join(map(str, classes[:10]))}{", ..." if len(classes) > 10 else ""}'
    return counts + (f' in {", ".join(roots)}' if roots else '') + (named if classes else '')


def _length(cfg: Config, images: int, processes: int) -> str:
    per_process, loop = cfg.train_dataloader.get('batch_size') or 1, cfg.get('train_cfg') or {}
    accumulated = (cfg.get('optim_wrapper') or {}).get('accumulative_counts', 1)
    batch = f'{_count(per_process * processes, "image")} an iteration' + (f' ({processes} x {per_process})'
                                                               if processes > 1 else '')
    batch += f', {accumulated} iterations a step' if accumulated > 1 else ''
    if loop.get('max_epochs'):
        iterations = -(-images // (per_process * processes))
        total, unit = f'{_count(loop["max_epochs"], "epoch")} of {_count(iterations, "iteration")}', 'epoch'
    else:
        total, unit = _count(loop.get('max_iters'), 'iteration'), 'iteration'
    if cfg.get('val_cfg') is None:
        return f'{total}, {batch}; no evaluation'
    every = loop.get('val_interval', 1)
    return f'{total}, {batch}; evaluation every {unit if every == 1 else _count(every, unit)}'


def _count(number: int, thing: str) -> str:
    return f'{number} {thing}{"s" * (number != 1)}'


def _optimizer(cfg: Config) -> str:
    optimizer = (cfg.get('optim_wrapper') or {}).get('optimizer') or {}
    scaling = cfg.get('auto_scale_lr') or {}
    scaled = f' for {scaling.get("base_batch_size")} images a step' if scaling.get('enable') else ''
    return f'{type_name(optimizer)}, learning rate {optimizer.get("lr")}{scaled}'


def _weights(cfg: Config) -> str:
    if cfg.get('load_from'):
        return f'{"going on from" if cfg.get("resume") else "all of"} {cfg.load_from}'
    pretrained = [(path or 'model', node['init_cfg']) for path, node in walk(cfg.model.to_dict())
                  if isinstance(node.get('init_cfg'), dict)]
    named = [f'{path} from {init["checkpoint"]}' for path, init in pretrained if init.get('checkpoint')]
    return f'{", ".join(named)}, the rest random' if named else 'random (from scratch)'


def _device(cfg: Config, processes: int, training: bool) -> str:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else 'CPU'
    wrapper = cfg.get('optim_wrapper') or {}
    amp = training and type_name(wrapper) in ('AmpOptimWrapper', 'AutocastOptimWrapper')
    return (f'{processes} x ' if processes > 1 else '') + \
        f'{device}, {wrapper.get("dtype", "float16") if amp else "float32"}'
