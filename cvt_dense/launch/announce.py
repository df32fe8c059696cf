"""Log a summary of a run before it begins: model, data, length, weights, device and folder."""
from typing import Any

import torch
from mmengine.config import Config
from mmengine.runner import Runner

from ..nodes import dicts, type_name, walk


def announce(runner: Runner, cfg: Config, datasets: dict[str, Any]) -> None:
    """Log the summary of a run.

    Args:
        runner: the run's Runner.
        cfg: the config as it runs here.
        datasets: by stage, those that the run uses.
    """
    training = 'train' in datasets
    lines = dict(model=_model(runner, cfg), data=_data(cfg, datasets))
    wrapper = cfg.get('optim_wrapper') or {}
    if training:
        lines['length'] = _length(cfg, len(datasets['train']), runner.world_size)
        optimizer, scaling = wrapper.get('optimizer') or {}, cfg.get('auto_scale_lr') or {}
        base = scaling.get('base_batch_size')
        batch, steps = cfg.train_dataloader.get('batch_size') or 0, wrapper.get('accumulative_counts', 1)
        total = batch * steps * runner.world_size
        scaled = f' for {base} images a step' if scaling.get('enable') else ''
        if base and total and base != total and not scaling.get('enable'):
            scaled = f', which is for {base} images a step, not for the {total} of this run: --auto-scale-lr scales it'
        lines['optimizer'] = f'{type_name(optimizer)}, learning rate {optimizer.get("lr")}{scaled}'
    lines['weights'] = _weights(cfg)
    amp = training and type_name(wrapper) in ('AmpOptimWrapper', 'AutocastOptimWrapper')
    lines['runs on'] = (f'{runner.world_size} x ' if runner.world_size > 1 else '') + (
        f'{torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"}, '
        f'{wrapper.get("dtype", "float16") if amp else "float32"}')
    lines['folder'] = runner.work_dir
    lines['log'] = runner.logger.log_file
    text = ''.join(f'\n  {name + ":":<11}{line}' for name, line in lines.items())
    runner.logger.info(('Training' if training else 'Testing') + text)


def _model(runner: Runner, cfg: Config) -> str:
    parameters = sum(parameter.numel() for parameter in runner.model.parameters())
    parts = {path.split('.')[-1]: type_name(node) for path, node in walk(cfg.model.to_dict())}
    parts = [parts[name] for name in ('backbone', 'neck', 'decode_head', 'bbox_head') if parts.get(name)]
    return f'{type_name(cfg.model)} with {", ".join(parts)}, {parameters / 1e6:.2f} million parameters'


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
    batch = f'{per_process * processes} images an iteration ({processes} x {per_process})'
    batch += f', {accumulated} iterations a step' if accumulated > 1 else ''
    unit = 'epochs' if loop.get('max_epochs') else 'iterations'
    total = f'{loop.get("max_epochs") or loop.get("max_iters")} {unit}'
    if unit == 'epochs':
        total += f' of {-(-images // (per_process * processes))} iterations'
    evaluation = f'evaluation every {loop.get("val_interval", 1)} {unit}' if cfg.get('val_cfg') is not None else (
        'no evaluation')
    return f'{total}, {batch}; {evaluation}'


def _weights(cfg: Config) -> str:
    if cfg.get('load_from'):
        return f'{"continuing from" if cfg.get("resume") else "all of"} {cfg.load_from}'
    pretrained = [(path or 'model', node['init_cfg']) for path, node in walk(cfg.model.to_dict())
                  if isinstance(node.get('init_cfg'), dict)]
    named = [f'{path} from {init["checkpoint"]}' for path, init in pretrained if init.get('checkpoint')]
    return f'{", ".join(named)}, the rest random' if named else 'random (from scratch)'
