"""Compare the weights that a run loads with its model and its classes, without loading them."""
from typing import Any

from mmengine.config import Config
from torch import nn

from ...config.settings import class_names
from ...errors import UserError
from ...inference.model import check_checkpoint, check_preprocessing
from ...weights import check_order, classes_of


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
        check_preprocessing(cfg, model, cfg.get('load_from'))


def _check_init_weights(model: nn.Module) -> None:
    try:
        for module in model.modules():
            if hasattr(module, 'check_init_weights'):
                module.check_init_weights()
    except FileNotFoundError as error:
        raise UserError(f'{error} It is named by init_cfg (in a template: pretrained); None trains from scratch.'
                        ) from error
