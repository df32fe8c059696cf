"""Compares a checkpoint with the model of a config before a run; reads only."""
import copy
import os

from mmengine.config import Config
from mmengine.registry import MODELS
from mmengine.runner import CheckpointLoader

from ..errors import CheckpointError, UserError
from ..weights.files import select_weights


def check_checkpoint(cfg: Config, path: str, strict: bool) -> None:
    """Compares a checkpoint's weights with the config's model.

    MMEngine loads with ``strict=False``: what does not fit is left out and training starts anyway.

    Args:
        path: checkpoint file or address.
        strict: every weight must be there and fit (resuming, testing); otherwise only CvT's must, as far
            as :func:`cvt_dense.checkpoint.compare` says, and heads may differ (fine-tuning).

    Raises:
        UserError, CheckpointError: no such file, not a checkpoint, or one for another architecture.
    """
    if '://' not in path and not os.path.exists(path):
        raise UserError(f'checkpoint {path!r} does not exist.')
    # First, because it registers what reads the authors' and other formats.
    model = MODELS.build(copy.deepcopy(cfg.model))
    try:
        tensors = select_weights(CheckpointLoader.load_checkpoint(path, map_location='cpu'), source=path)
        given = {name: value.shape for name, value in tensors.items()}
    except CheckpointError as error:
        raise UserError(str(error)) from error
    except Exception as error:  # whatever a file that is no checkpoint makes torch.load raise
        raise UserError(
            f'{path!r} cannot be read as a checkpoint ({type(error).__name__}: {error}).') from error
    for name, module in model.named_modules():
        if getattr(module, 'checks_loading', False):  # CvT's weights, as loading will check them
            prefix = name and f'{name}.'
            own = {key[len(prefix):]: value for key, value in tensors.items() if key.startswith(prefix)}
            module.check_loading(own, path)
    if not strict:
        return
    wanted = {name: value.shape for name, value in model.state_dict().items()}
    missing = [name for name in wanted if name not in given]
    unknown = [name for name in given if name not in wanted]
    misfits = [f'{name} {tuple(given[name])} instead of {tuple(wanted[name])}'
               for name in wanted if name in given and given[name] != wanted[name]]
    if missing or unknown or misfits:
        details = [f'{len(names)} {what}, e.g. {names[0]}' for what, names in (
            ('missing', missing), ('not in the model', unknown), ('of another shape', misfits)) if names]
        raise UserError(f'checkpoint {path!r} is for another architecture than the config: of {len(wanted)} '
                        f'weights {"; ".join(details)}. Use the config that it was trained with, or another '
                        'checkpoint.')
