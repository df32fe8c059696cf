"""Compare the weights that a run loads with its model and its classes, and call the other checks of a run."""
from typing import Any

from mmengine.config import Config
from mmengine.model import BaseTTAModel
from mmengine.runner import Runner
from torch import nn

from ...classes import Classes
from ...config.read import check_exists
from ...errors import UserError
from ...models.wrappers import unwrap
from ...weights import check_model, load_weights_file, select_weights
from ...weights.preprocessing import check_preprocessing
from .batches import check_batch_norm, check_loaders
from .schedule import check_schedule


def check_weights(runner: Runner, cfg: Config, datasets: dict[str, Any], content: dict[str, Any] | None) -> None:
    """Check the file that a run continues, fine-tunes or tests (otherwise that of ``init_cfg``), and the teacher.

    The weights are not loaded.

    Args:
        runner: the run's Runner.
        cfg: the config as it runs here.
        datasets: by stage, those that the run uses.
        content: what :func:`cvt_dense.inference.model.prepare_model` has read for a test.

    Raises:
        UserError: a file cannot be read, is for another architecture, or has a class of the data under another number.
    """
    model = unwrap(runner.model)
    model = model.module if isinstance(model, BaseTTAModel) else model
    stage = 'train' if 'train' in datasets else 'test'
    data = Classes.of_data(datasets.get(stage), stage)
    if getattr(model, 'distillation', None) and stage == 'train':
        try:
            teacher = model.distillation.teacher(model.num_classes)
        except (OSError, RuntimeError, TypeError) as error:  # of MMEngine's builder, of timm and of the Hub
            raise UserError(f'model.distillation.teacher: {type(error).__name__}: {error}') from error
        teacher.classes.check_order(data)
    if hasattr(model, 'exported'):
        Classes.of_file(content, str(model.exported.file)).check_order(data)
    elif file := cfg.get('load_from'):
        check_exists(file)
        content = content or load_weights_file(file)
        strict = bool(cfg.get('resume')) or stage == 'test'
        check_model(model, select_weights(content, source=file), file, strict)
        if strict:  # otherwise HeadClassesHook gives each class its rows
            Classes.of_file(content, file).check_order(data)
        else:
            _check_init_weights(model)  # of parts that the file may lack
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


# Each takes the Runner, the config as it runs here, the data sets by stage, and what a tested file holds.
RUN_CHECKS = [check_loaders, check_weights, check_batch_norm, check_schedule]
