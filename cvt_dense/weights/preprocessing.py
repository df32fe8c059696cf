"""What images published weights were trained on: mean and standard deviation of RGB in units of 0 to 255."""
import json
import re
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from torch import nn

from ..errors import UserError

IMAGENET = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
CVT_FILES = re.compile(r'cvt_dense://.*|hf://microsoft/cvt-.*|(.*/)?CvT-(13|21|w24)-\d+x\d+-IN-\d+k\.pth')

Normalisation = tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation


def trained_with(source: str) -> Normalisation | None:
    """Return the mean and standard deviation of the RGB images that weights were trained on, or None if unknown.

    Args:
        source: path or URL of a checkpoint: CvT's published weights, or a transformers model whose folder has a
            ``preprocessor_config.json``.
    """
    if CVT_FILES.fullmatch(source):
        return IMAGENET
    path = Path(source)
    about = (path if path.is_dir() else path.parent) / 'preprocessor_config.json'
    content = json.loads(about.read_text()) if about.is_file() else {}
    if not {'image_mean', 'image_std'} <= content.keys():
        return None
    return tuple(tuple(255. * value for value in content[key]) for key in ('image_mean', 'image_std'))


def check_preprocessing(cfg: Config, model: nn.Module, checkpoint: str | None = None) -> None:
    """Check that images are normalised as those that published weights were trained on.

    Args:
        cfg: whole config.
        model: the model that was built from it.
        checkpoint: whose weights the model gets; None: those of ``init_cfg``.

    Raises:
        UserError: they are not.
    """
    settings, inside = cfg.model.get('data_preprocessor') or {}, model.data_preprocessor
    if 'Normalize' in str(cfg.get('train_dataloader')) or 'data_preprocessor' in settings:  # another one does it
        return
    rgb = getattr(model, 'task', None) == 'classification' or settings.get('bgr_to_rgb') or settings.get('rgb_to_bgr')
    used = [getattr(inside, key, torch.full([3], fill)).flatten().tolist() for key, fill in (('mean', 0.), ('std', 1.))]
    sources = {checkpoint: trained_with(checkpoint)} if checkpoint else {
        source: known for module in model.modules() for source, known in getattr(module, 'trained_with', dict)().items()
        if getattr(module, 'backbone', module).in_channels == 3}
    for source, known in sources.items():
        if known and len(used[0]) == 3 and not (rgb and np.allclose(used, known, atol=1e-2)):
            raise UserError(
                f'{source} was trained on RGB images with mean {known[0]} and standard deviation {known[1]}; '
                f'model.data_preprocessor makes {"RGB" if rgb else "BGR"} images with {used[0]} and {used[1]}. Set its '
                'mean, std and bgr_to_rgb=True accordingly.')
