"""Log a summary of a run before it begins: model, data, weights, length, device and folder."""
from typing import Any

import torch
from mmengine.config import Config
from mmengine.runner import Runner

from ..classes import Classes
from ..config.walk import type_name, walk
from ..errors import listed

AMP = dict(AmpOptimWrapper='float16', AutocastOptimWrapper='bfloat16')  # with their default precision
PARTS = ('backbone', 'neck', 'decode_head', 'bbox_head')  # of a model, those that are named


def announce(runner: Runner, cfg: Config, changes: list[str], datasets: dict[str, Any]) -> None:
    """Log the summary of a run.

    Args:
        runner: the run's Runner.
        cfg: the config as it runs here.
        changes: how it differs from the user's.
        datasets: by stage, those that the run uses.
    """
    nodes = list(walk(cfg.model.to_dict()))
    parts = [type_name(node) for path, node in nodes if path.split('.')[-1] in PARTS and type_name(node)]
    millions = sum(parameter.numel() for parameter in runner.model.parameters()) / 1e6
    stage, dataset = next(iter(datasets.items()))
    classes = list(map(str, Classes.of_data(dataset, stage).names))
    images = ', '.join(f'{stage} {len(dataset)} images' for stage, dataset in datasets.items())
    files = [node['file'] for _, node in nodes if type_name(node) == 'ExportedModel']
    files += [node['init_cfg'].get('checkpoint') or '' for _, node in nodes if isinstance(node.get('init_cfg'), dict)]
    wrapper = cfg.get('optim_wrapper') or {}
    precision = wrapper.get('dtype', AMP[type_name(wrapper)]) if type_name(wrapper) in AMP else 'float32'
    lines = {
        'model': f'{type_name(cfg.model)} with {", ".join(parts)}, {millions:.2f} million parameters',
        'data': f'{images}; {len(classes)} classes: {listed(classes, 10)}',
        'weights': cfg.get('load_from') or ', '.join(filter(None, files)) or 'random (from scratch)'}
    if 'train' in datasets:
        loop, batch, steps = cfg.train_cfg, cfg.train_dataloader.get('batch_size') or 1, wrapper.get(
            'accumulative_counts', 1)
        length = f'{loop.max_epochs} epochs' if loop.get('max_epochs') else f'{loop.get("max_iters")} iters'
        lines['length'] = f'{length}, {runner.world_size * batch * steps} images a step (processes x images x ' + (
            f'accumulated steps: {runner.world_size} x {batch} x {steps})')
        scaling = cfg.get('auto_scale_lr') or {}
        base = f' for {scaling.base_batch_size} images a step' if 'base_batch_size' in scaling else ''
        lines['optimizer'] = f'{type_name(wrapper.optimizer)}, learning rate {wrapper.optimizer.get("lr")}{base}' + (
            ', scaled to those of this run' if scaling.get('enable') else '; --auto-scale-lr scales it' * bool(base))
        lines['schedule'] = f'learning rate {runner.learning_rates or "unknown"}'
    if changes:
        lines['adapted'] = '; '.join(changes)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else 'CPU'
    lines |= {'runs on': f'{runner.world_size} x {device}, {precision}', 'folder': runner.work_dir,
              'log': runner.logger.log_file}
    runner.logger.info(''.join(f'\n  {name + ":":<11}{line}' for name, line in lines.items()))
