"""Channels of images: what the data set loads, what normalises it and what the backbone takes."""
from typing import Any

from mmengine.config import Config
from mmengine.registry import TRANSFORMS

from ...errors import UserError
from ...nodes import dicts, type_name
from .data_sets import is_first_process, leaf_datasets

REMEDY = ('Give all three the same: model.backbone.in_channels, the mean and std that normalise (of the data '
          'preprocessor, or of a Normalize in each pipeline), and the transform that loads the images.')


def check_channels(cfg: Config, dataset: Any, stage: str) -> None:
    """Compares the channels of a backbone of ours with those of its images and of what normalises them.

    One image is read, unless the backbone takes 3 channels.

    Args:
        cfg: complete config.
        dataset: built for ``{stage}_dataloader``.

    Raises:
        UserError: the numbers differ.
    """
    backbone, where = cfg.model.get('backbone') or {}, f'{stage}_dataloader'
    if type_name(backbone) != 'CvT' or not is_first_process():
        return
    wanted = backbone.get('in_channels', 3)
    leaves = list(leaf_datasets(cfg[where].dataset))
    normalisers = [('model.data_preprocessor', cfg.model.get('data_preprocessor') or {})]
    normalisers += [(f'{where}: Normalize', node) for node in dicts(leaves) if type_name(node) == 'Normalize']
    for name, node in normalisers:
        given = len(node.get('mean') or ())
        if given not in (0, wanted) and not (given == 1 and name.startswith('model')):
            raise UserError(f'{name}.mean has {given} values, but model.backbone.in_channels is {wanted}. {REMEDY}')
    for leaf in leaves:
        if type_name(leaf) == 'ImageDataset' and wanted != 3:
            raise UserError(f'{where} loads images as RGB, with 3 channels, but model.backbone.in_channels is '
                            f'{wanted}: ImageDataset knows no others. Detection and segmentation load any number '
                            '(upernet_cvt13_multichannel.py).')
    loader = (leaves[0].get('pipeline') or [{}])[0]
    if wanted == 3 or not hasattr(dataset, 'get_data_info') or not loader or not len(dataset):
        return
    with TRANSFORMS.switch_scope_and_registry(cfg.get('default_scope')) as registry:
        loaded = registry.build(dict(loader))(dataset.get_data_info(0))
    if 'img' not in loaded:
        return
    shape = loaded['img'].shape
    given = shape[2] if len(shape) > 2 else 1
    if given != wanted:
        raise UserError(f'{where}: {loaded.get("img_path")!r} is loaded by {type_name(loader)} with {given} channels '
                        f'(an array of {shape}: height, width, channels), but model.backbone.in_channels is {wanted}. '
                        f'{REMEDY}')
