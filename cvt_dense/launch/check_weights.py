"""Compares a checkpoint with the model of a config before a run; reads only."""
import copy
import os
from collections.abc import Callable, Sequence

from mmengine.config import Config
from mmengine.dist import broadcast_object_list
from mmengine.registry import MODELS

from ..errors import CheckpointError, UserError
from ..weights import check_model, load_weights_file, select_weights
from .class_folders import needs_classes
from .command_line import check_exists


def check_checkpoint(cfg: Config, path: str, strict: bool) -> None:
    """Compares a checkpoint's weights with the config's model.

    MMEngine loads with ``strict=False``: what does not fit is left out and training starts anyway. The first
    process compares for all.

    Args:
        path: checkpoint file or address.
        strict: every weight must be there and fit (resuming, testing); otherwise only CvT's must, as far
            as :func:`cvt_dense.weights.compare` says, and heads may differ (fine-tuning).

    Raises:
        UserError, CheckpointError: no such file, not a checkpoint, or one for another architecture.
    """
    _in_first_process(cfg, lambda: _check(cfg, path, strict))


def check_pretrained(cfg: Config) -> None:
    """Builds the config's model and compares the weights that its backbone starts from (``init_cfg``), loading nothing.

    Raises:
        UserError, CheckpointError: a file or address that cannot be read, or weights of another architecture.
    """
    def check() -> None:
        for module in MODELS.build(copy.deepcopy(cfg.model)).modules():
            if hasattr(module, 'check_init_weights'):
                try:
                    module.check_init_weights()
                except FileNotFoundError as error:
                    raise UserError(f'{error} It is named by init_cfg (a template: pretrained), of the weights that '
                                    'training starts from; None trains from scratch.') from error

    _in_first_process(cfg, check)


def check_teacher(cfg: Config, classes: Sequence[str]) -> None:
    """Loads the teacher that a classifier's ``distillation`` names; nothing where there is none.

    Args:
        classes: names of the training set's; () if not known.

    Raises:
        UserError, CheckpointError: it has no weights, or they cannot be read or do not fit, or its classes are others.
    """
    settings = cfg.model.get('distillation')
    if not settings:
        return

    def check() -> None:
        from ..models.distillation import Distillation
        teacher = Distillation(**settings).teacher(cfg.model.num_classes)
        if teacher.classes and classes and tuple(teacher.classes) != tuple(classes):
            odd = [f'{a!r} for {b!r}' for a, b in zip(teacher.classes, classes) if a != b]
            raise UserError(f'the teacher ({teacher.source}) was trained on other classes, or in another order: '
                            f'{", ".join(odd[:3])}. Take one that was trained on these folders.')

    _in_first_process(cfg, check)


def _in_first_process(cfg: Config, check: Callable[[], None]) -> None:
    """Calls ``check`` in one process; all raise its error."""
    error: list[UserError | None] = [None]
    # One process builds the model and reads the file. With CUDA there may be no group yet: the others then wait
    # for this one where the Runner creates it, and the launcher ends them.
    if os.environ.get('RANK', '0') == '0' or cfg.get('launcher', 'none') == 'none':
        try:
            check()
        except UserError as e:
            error = [e]
    broadcast_object_list(error)
    if error[0] is not None:
        raise error[0]


def _check(cfg: Config, path: str, strict: bool) -> None:
    check_exists(path)
    try:
        tensors = select_weights(load_weights_file(path), source=path)
    except CheckpointError as error:
        raise UserError(str(error)) from error
    if needs_classes(cfg) and strict and 'head.weight' in tensors:
        cfg.model.num_classes = len(tensors['head.weight'])
    model = MODELS.build(copy.deepcopy(cfg.model))
    from ..models.exported import ExportedBackbone
    # What an exported backbone holds itself, a whole model's checkpoint has too.
    exported = tuple(f'{name}.' for name, module in model.named_modules() if isinstance(module, ExportedBackbone))
    tensors = {name: value for name, value in tensors.items() if not name.startswith(exported)}
    check_model(model, tensors, path, strict)
