"""Read the inputs that a config's test pipeline prepares, and how it prepares them."""
import copy
from collections.abc import Sequence
from typing import Any

import torch
from mmengine.config import Config
from mmengine.dataset import default_collate, pseudo_collate
from mmengine.registry import DATASETS, DefaultScope
from torch import Tensor, nn

from ..config import leaf_datasets


def describe(cfg: Config) -> dict[str, Any]:
    """Return ``bgr_to_rgb`` and how images are cropped or resized: see the metadata."""
    preprocessor = cfg.model.get('data_preprocessor') or {}
    about = dict(bgr_to_rgb=bool(preprocessor.get('bgr_to_rgb') or preprocessor.get('rgb_to_bgr')))
    test = next(leaf_datasets(cfg.test_dataloader.dataset)) if cfg.get('test_dataloader') else {}
    if (transform := test.get('transform')) is not None:  # the defaults are those of timm.data.create_transform
        about.update(crop_pct=transform.get('crop_pct') or 0.875, crop_mode=transform.get('crop_mode') or 'center',
                     interpolation=transform.get('interpolation', 'bilinear'))
    for step in test.get('pipeline') or ():
        if step.get('keep_ratio') and isinstance(step.get('scale'), Sequence):
            about['scale'] = sorted(step['scale'], reverse=True)
    return about


def network_inputs(cfg: Config, model: nn.Module, stage: str, most: int, padded: bool = True) -> list[Tensor]:
    """Read images of a data set as testing does, spread evenly over it.

    Args:
        cfg: the recipe's config.
        model: built from it; its data preprocessor takes part.
        stage: 'train' (in the test pipeline) or 'test'.
        most: the number of images, if the data set does not have fewer.
        padded: False cuts off what a detector's data preprocessor pads.

    Returns:
        What the network gets for each image: float32 (1, C, H, W), normalised.
    """
    own, test = (next(leaf_datasets((cfg.get(f'{name}_dataloader') or cfg.val_dataloader).dataset))
                 for name in (stage, 'test'))  # of several that are joined the first
    settings = dict(own, **{key: test[key] for key in ('pipeline', 'transform') if key in test})
    with DefaultScope.overwrite_default_scope(cfg.get('default_scope') or 'mmengine'):
        dataset = DATASETS.build(copy.deepcopy(settings))
    chosen = torch.linspace(0, len(dataset) - 1, min(most, len(dataset))).round().long().tolist()
    return [network_input(model, dataset[i], padded) for i in chosen]


def network_input(model: nn.Module, sample: dict[str, Any], padded: bool = True) -> Tensor:
    """Return what the network gets of a sample that a pipeline has made; see :func:`network_inputs`."""
    collate = pseudo_collate if 'data_samples' in sample else default_collate
    with torch.no_grad():
        image = model.data_preprocessor(collate([sample]), False)['inputs'].cpu()
    if not padded:
        height, width = sample['data_samples'].metainfo['img_shape'][:2]
        image = image[..., :height, :width]
    return image.contiguous()
