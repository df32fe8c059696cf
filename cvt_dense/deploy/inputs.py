"""Read the inputs that a config's test pipeline prepares: images, their sizes and their normalisation."""
import contextlib
import copy
import io
from typing import Any

import torch
from mmengine.config import Config
from mmengine.registry import DATASETS
from torch import Tensor, nn

from ..errors import UserError
from ..nodes import dicts, type_name


def _dataset(cfg: Config, stage: str) -> dict[str, Any]:
    """Return the config of a stage's data set ('train' or 'test'), of several that are joined the first."""
    loader = cfg.get(f'{stage}_dataloader') or cfg.get('val_dataloader')
    if not loader:
        raise UserError(f'{cfg.filename} has neither {stage}_dataloader nor val_dataloader, whose images are needed.')
    node = loader.dataset
    while 'dataset' in node or node.get('datasets'):
        node = node.get('dataset') or node.datasets[0]
    return node


def pipeline_normalise(cfg: Config) -> dict[str, Any] | None:
    """Return the step of the test pipeline that normalises images, which the data preprocessor mostly does; or None."""
    steps = dicts(cfg.get('test_dataloader') or cfg.get('val_dataloader') or {})
    return next((step for step in steps if type_name(step) == 'Normalize'), None)


def describe(cfg: Config, model: nn.Module) -> dict[str, Any]:
    """Return ``mean``, ``std``, ``bgr_to_rgb`` and, of a classifier, how images are cropped: see the metadata."""
    preprocessor, step = cfg.model.get('data_preprocessor') or {}, pipeline_normalise(cfg)
    about = dict(bgr_to_rgb=bool(preprocessor.get('bgr_to_rgb') or preprocessor.get('rgb_to_bgr')))
    if step is not None:
        about = dict(mean=list(step['mean']), std=list(step['std']), bgr_to_rgb=bool(step.get('to_rgb', True)))
    dataset = next((node for node in dicts(cfg.get('test_dataloader')) if type_name(node) == 'ImageDataset'), {})
    transform = dataset.get('transform')
    if transform is not None:  # the defaults are those of timm.data.create_transform
        about.update(crop_pct=transform.get('crop_pct') or 0.875, crop_mode=transform.get('crop_mode') or 'center',
                     interpolation=transform.get('interpolation', 'bilinear'))
    return about


def network_inputs(cfg: Config, model: nn.Module, stage: str, number: int | None = None, *, limit: int = 128,
                   padded: bool = True) -> list[Tensor]:
    """Read images of a data set as testing does, spread evenly over it.

    Args:
        cfg: the recipe's config.
        model: built from it; its data preprocessor takes part.
        stage: 'train' (in the test pipeline) or 'test'.
        number: the number of images; None: ``limit``, or all if there are fewer.
        padded: False cuts off what a detector's data preprocessor pads.

    Returns:
        What the network gets for each image: float32 (1, C, H, W), normalised.

    Raises:
        UserError: the config has no such data set, or the data set has fewer images.
    """
    settings, test = copy.deepcopy(_dataset(cfg, stage)), _dataset(cfg, 'test')
    settings.update({key: copy.deepcopy(test[key]) for key in ('pipeline', 'transform') if key in test})
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints what it does
        dataset = DATASETS.build(settings)
    number = min(limit, len(dataset)) if number is None else number
    if not 1 <= number <= len(dataset):
        raise UserError(f'--calibrate {number}: allowed are 1 to {len(dataset)}, the images of the {stage} data set.')
    found = []
    for i in torch.linspace(0, len(dataset) - 1, number).round().long().tolist():
        item = dataset[i]
        samples = [item['data_samples']] if 'data_samples' in item else None
        batch = dict(inputs=[item['inputs']], data_samples=samples) if samples else dict(
            inputs=torch.as_tensor(item['inputs'])[None])
        with torch.no_grad():
            image = model.data_preprocessor(batch, False)['inputs']
        if samples and not padded:
            height, width = samples[0].metainfo['img_shape'][:2]
            image = image[..., :height, :width]
        found.append(image.contiguous())
    return found


def config_size(cfg: Config) -> tuple[tuple[int, int] | None, bool]:
    """Read the size of test images from a config.

    Returns:
        Height and width (None where the config does not set them), and whether all images have this size.
    """
    test_cfg = cfg.model.get('test_cfg') or {}
    if test_cfg.get('mode') == 'slide':
        return tuple(test_cfg['crop_size']), True
    size = (cfg.model.get('data_preprocessor') or {}).get('size')
    for node in dicts((cfg.get('test_dataloader') or cfg.get('val_dataloader') or {}).get('dataset')):
        side = (node.get('transform') or {}).get('input_size') if type_name(node) == 'ImageDataset' else None
        if side is not None:
            return ((side, side) if isinstance(side, int) else tuple(side[-2:])), True
        scale = node.get('scale')
        if isinstance(scale, (list, tuple)) and len(scale) == 2:
            return ((min(scale), max(scale)), False) if node.get('keep_ratio') else ((scale[1], scale[0]), True)
    return (None if size is None else tuple(size)), False


def sizes(images: list[Tensor]) -> list[tuple[int, int]]:
    """Return the different heights and widths of images, the most frequent first."""
    shapes = [tuple(image.shape[2:]) for image in images]
    return sorted(set(shapes), key=lambda shape: -shapes.count(shape))
