"""Compare the weights that a run loads with its config's model, without loading them into the run's model."""
from collections.abc import Sequence

from mmengine.config import Config
from torch import nn

from ...errors import CheckpointError, UserError
from ...weights import check_model, load_weights_file, select_weights
from ..class_folders import needs_classes
from ..command_line import check_exists
from .run import Run


def check_weights(cfg: Config, run: Run) -> None:
    """Check the checkpoint that a run continues, fine-tunes or tests, or else the weights of ``init_cfg``.

    Raises:
        UserError, CheckpointError: if a file cannot be read, or is for another architecture.
    """
    if cfg.get('load_from'):
        check_checkpoint(cfg, cfg.load_from, strict=bool(cfg.get('resume')) or 'train' not in run.stages, run=run)
    else:
        check_pretrained(run.model(cfg))
    if 'train' in run.stages and cfg.model.get('distillation'):
        check_teacher(cfg, run)


def check_checkpoint(cfg: Config, path: str, strict: bool, run: Run | None = None) -> None:
    """Compare a checkpoint's weights with the config's model, which MMEngine would load with ``strict=False``.

    Args:
        cfg: the model's config; where it leaves a classifier's ``num_classes`` open, that of the checkpoint is set.
        path: checkpoint file or URL.
        strict: whether every weight must be there and fit (resuming, testing); otherwise only CvT's must, as far as
            :func:`cvt_dense.weights.compare` checks, and heads may differ (fine-tuning).
        run: whose model is compared; None: one is built.

    Raises:
        UserError, CheckpointError: if there is no such file, it is not a checkpoint, or for another architecture.
    """
    check_exists(path)
    try:
        content = load_weights_file(path)
        tensors = select_weights(content, source=path)
    except CheckpointError as error:
        raise UserError(str(error)) from error
    if needs_classes(cfg) and strict and 'head.weight' in tensors:
        cfg.model.num_classes = len(tensors['head.weight'])
    model = (run or Run([])).model(cfg)
    from ...deploy.exported import ExportedBackbone
    # A whole model's checkpoint also has the weights that an exported backbone contains.
    exported = tuple(f'{name}.' for name, module in model.named_modules() if isinstance(module, ExportedBackbone))
    tensors = {name: value for name, value in tensors.items() if not name.startswith(exported)}
    check_model(model, tensors, path, strict)
    _check_order(path, ((content.get('meta') or {}).get('dataset_meta') or {}).get('classes'), run)


def _check_order(path: str, classes: Sequence[str] | None, run: Run | None) -> None:
    """Check that a test set does not have the checkpoint's classes in another order, which would mix up the scores."""
    names = run and run.classes('test')
    if names and classes and list(names) != list(classes) and sorted(names) == sorted(classes):
        raise UserError(f'checkpoint {path!r} was trained on the classes in another order than test_dataloader has '
                        f'them: write metainfo.classes={list(classes)}.')


def check_pretrained(model: nn.Module) -> None:
    """Compare the weights of a backbone's ``init_cfg`` with the backbone, without loading them.

    Raises:
        UserError, CheckpointError: if a file or URL cannot be read, or is of another architecture.
    """
    for module in model.modules():
        if hasattr(module, 'check_init_weights'):
            try:
                module.check_init_weights()
            except FileNotFoundError as error:
                raise UserError(f'{error} It is named by init_cfg (in a template: pretrained); None trains from '
                                'scratch.') from error


def check_teacher(cfg: Config, run: Run) -> None:
    """Load the teacher that a classifier's ``distillation`` names.

    Raises:
        UserError, CheckpointError: if it has no weights, they cannot be read or do not fit, or its classes are others.
    """
    from ...models.distillation import Distillation
    classes = run.classes('train') or ()
    teacher = Distillation(**cfg.model.distillation).teacher(cfg.model.num_classes)
    if teacher.classes and classes and tuple(teacher.classes) != tuple(classes):
        odd = [f'{a!r} for {b!r}' for a, b in zip(teacher.classes, classes) if a != b]
        raise UserError(f'the teacher ({teacher.source}) was trained on other classes, or in another order: '
                        f'{", ".join(odd[:3])}. Take one that was trained on these folders.')
