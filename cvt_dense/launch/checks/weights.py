"""Compare the weights that a run loads with its model and its classes, without loading them."""
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from torch import nn

from ...config.settings import class_names, dicts, type_name
from ...errors import UserError
from ...inference.model import DENSE, check_checkpoint
from ...models.task import task_of
from ...weights import check_order, classes_of
from ...weights.preprocessing import trained_with


def check_weights(cfg: Config, model: nn.Module, datasets: dict[str, Any]) -> None:
    """Check the file that a run continues, fine-tunes or tests (otherwise that of ``init_cfg``), and the teacher.

    Args:
        cfg: the run's config.
        model: the model that was built from it.
        datasets: by stage, those that the run uses.

    Raises:
        UserError: a file cannot be read, is for another architecture, or has a class of the data under another number.
    """
    stage = 'train' if 'train' in datasets else 'test'
    data = class_names(datasets.get(stage)) or (), f'metainfo.classes of {stage}_dataloader'
    if getattr(model, 'distillation', None) and stage == 'train':
        try:
            teacher = model.distillation.teacher(model.num_classes)
        except (OSError, RuntimeError, TypeError) as error:  # of MMEngine's builder, of timm and of the Hub
            raise UserError(f'model.distillation.teacher: {type(error).__name__}: {error}') from error
        check_order(teacher.source, teacher.classes, *data)
    if hasattr(model, 'exported'):
        check_order(str(model.exported.file), classes_of(model.exported.metadata), *data)
    elif cfg.get('load_from'):
        strict = bool(cfg.get('resume')) or stage == 'test'
        content = check_checkpoint(model, cfg.load_from, strict)
        if strict:  # otherwise HeadClassesHook gives each class its rows
            check_order(cfg.load_from, classes_of(content), *data)
    else:
        _check_init_weights(model)
    if not cfg.get('resume') and not hasattr(model, 'exported'):
        check_preprocessing(cfg, model)


def _check_init_weights(model: nn.Module) -> None:
    try:
        for module in model.modules():
            if hasattr(module, 'check_init_weights'):
                module.check_init_weights()
    except FileNotFoundError as error:
        raise UserError(f'{error} It is named by init_cfg (in a template: pretrained); None trains from scratch.'
                        ) from error


def check_preprocessing(cfg: Config, model: nn.Module) -> None:
    """Check that images are normalised as those that published weights were trained on.

    Args:
        cfg: the run's config, whose ``load_from`` takes the place of the model's ``init_cfg``.
        model: the model that was built from it.

    Raises:
        UserError: they are not.
    """
    settings, inside = cfg.model.get('data_preprocessor') or {}, model.data_preprocessor
    if any(type_name(node) == 'Normalize' for node in dicts(cfg.get('train_dataloader'))):  # instead of the model
        return
    rgb = task_of(model) not in DENSE or bool(settings.get('bgr_to_rgb') or settings.get('rgb_to_bgr'))
    used = [getattr(inside, key, torch.full([3], fill)).flatten().tolist() for key, fill in (('mean', 0.), ('std', 1.))]
    sources = {cfg.load_from: trained_with(cfg.load_from)} if cfg.get('load_from') else {
        source: known for module in model.modules() for source, known in getattr(module, 'trained_with', dict)().items()
        if getattr(module, 'backbone', module).in_channels == 3}
    for source, known in sources.items():
        if known and len(used[0]) == 3 and not (rgb and np.allclose(used, known, atol=1e-2)):
            raise UserError(
                f'{source} was trained on RGB images with mean {known[0]} and standard deviation {known[1]}; '
                f'model.data_preprocessor makes {"RGB" if rgb else "BGR"} images with {used[0]} and {used[1]}. Set its '
                'mean, std and bgr_to_rgb=True accordingly.')
