"""Training images as a recipe tests them: what int8 takes its ranges from."""
import copy

import torch
from mmengine.config import Config
from mmengine.registry import DATASETS
from torch import Tensor

from ..errors import UserError
from ..nodes import dicts, type_name
from .data_sets import leaf_datasets


def calibration_images(cfg: Config, number: int | None) -> list[Tensor]:
    """Images of the training set, spread evenly over it, in the test data set's pipeline.

    Of data sets joined into one, the first gives them.

    Args:
        cfg: of the recipe.
        number: of images; None: 128, or all if there are fewer.

    Returns:
        of each raw pixels, uint8 (1, 3, H, W), RGB; H and W as the pipeline leaves them.

    Raises:
        UserError: there is no training or test data set, or it has fewer images.
    """
    loaders = [cfg.get(f'{stage}_dataloader') or cfg.get('val_dataloader') for stage in ('train', 'test')]
    if not all(loaders):
        raise UserError(f'{cfg.filename}: int8 takes its ranges from training images in the test pipeline; the config '
                        'has no train_dataloader, or neither test_dataloader nor val_dataloader.')
    train, test = (next(leaf_datasets(copy.deepcopy(loader.dataset))) for loader in loaders)
    for key in ('pipeline', 'transform'):
        if key in test:
            train[key] = test[key]
    dataset = DATASETS.build(train)
    if number is None:
        number = min(128, len(dataset))
    if not 1 <= number <= len(dataset):
        raise UserError(f'--calibrate {number}: allowed are 1 to {len(dataset)}, the images of the training set.')
    turned = type_name(train) != 'ImageDataset'  # mm reads images as BGR
    images = []
    for i in torch.linspace(0, len(dataset) - 1, number).round().long().tolist():
        image = torch.as_tensor(dataset[i]['inputs'])
        images.append((image.flip(0) if turned else image)[None].contiguous())
    return images


def test_size(cfg: Config) -> tuple[int, int] | None:
    """Height and width that the test pipeline makes, rounded up to a multiple of 32; None where it does not say."""
    loader = cfg.get('test_dataloader') or cfg.get('val_dataloader') or {}
    size = (cfg.model.get('data_preprocessor') or {}).get('size')
    for node in dicts(loader.get('dataset') or {}):
        if type_name(node) == 'ImageDataset' and isinstance((node.get('transform') or {}).get('input_size'), int):
            return (node['transform']['input_size'], ) * 2
        scale = node.get('scale')
        if size is None and isinstance(scale, (list, tuple)) and len(scale) == 2:
            size = (min(scale), max(scale)) if node.get('keep_ratio') else (scale[1], scale[0])
    return None if size is None else (-(-size[0] // 32) * 32, -(-size[1] // 32) * 32)
