"""Check the channels of images against the data set, the normalisation and the backbone."""
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mmengine.config import Config
from mmengine.dist import get_world_size
from mmengine.registry import TRANSFORMS

from ...config.data_sets import leaf_datasets
from ...errors import UserError
from ...nodes import dicts, type_name

REMEDY = ('Give all three the same: model.backbone.in_channels, the mean and std that normalise (of the data '
          'preprocessor, or of a Normalize in each pipeline), and the transform that loads the images.')


def check_normalisers(cfg: Config, stages: Sequence[str]) -> None:
    """Compare the channels of a backbone of ours with those of what normalises its images; reads no data.

    Raises:
        UserError: if the numbers differ, or a classifier needs images with other than 3 channels.
    """
    for stage, wanted in _stages(cfg, stages):
        where = f'{stage}_dataloader'
        leaves = list(leaf_datasets(cfg[where].dataset))
        normalisers = [('model.data_preprocessor', cfg.model.get('data_preprocessor') or {})]
        normalisers += [(f'{where}: Normalize', node) for node in dicts(leaves) if type_name(node) == 'Normalize']
        for name, node in normalisers:
            given = len(node.get('mean') or ())
            if given not in (0, wanted) and not (given == 1 and name.startswith('model')):
                raise UserError(f'{name}.mean has {given} values, but model.backbone.in_channels is {wanted}. {REMEDY}')
        if wanted != 3 and any(type_name(leaf) == 'ImageDataset' for leaf in leaves):
            raise UserError(f'{where} loads images as RGB, with 3 channels, but model.backbone.in_channels is '
                            f'{wanted}: ImageDataset has no others. Detection and segmentation load any number '
                            '(upernet_cvt13_multichannel.py).')


def check_levels(cfg: Config, stages: Sequence[str]) -> None:
    """Check that the neck uses every map of a CvT where several processes train.

    The norm of a map that is left out gets no gradient, and DistributedDataParallel ends at the second iteration.

    Raises:
        UserError: if the neck leaves maps out.
    """
    model = cfg.get('model') or {}
    if ('train' not in stages or get_world_size() == 1 or cfg.get('find_unused_parameters')
            or type_name(model.get('backbone')) != 'CvT'):
        return
    level = max((node.get('start_level') or 0 for node in dicts(model.get('neck'))), default=0)
    if level:
        raise UserError(f'model.neck.start_level={level} leaves out the first maps of the backbone, whose norms then '
                        'get no gradient, which training in several processes does not allow: leave these maps out of '
                        'model.backbone.out_indices and of model.neck.in_channels, and set model.neck.start_level=0.')


def check_channels(cfg: Config, datasets: dict[str, Any]) -> None:
    """Compare the channels of a backbone of ours with those of the first image, unless it takes 3.

    Raises:
        UserError: if the numbers differ.
    """
    for stage, wanted in _stages(cfg, datasets):
        dataset, where = datasets[stage], f'{stage}_dataloader'
        leaf = next(leaf_datasets(cfg[where].dataset))
        loader = (leaf.get('pipeline') or [{}])[0]
        if wanted == 3 or not hasattr(dataset, 'get_data_info') or not loader or not len(dataset):
            continue
        with TRANSFORMS.switch_scope_and_registry(cfg.get('default_scope')) as registry:
            loaded = registry.build(dict(loader))(dataset.get_data_info(0))
        if 'img' not in loaded:
            continue
        shape = loaded['img'].shape
        given = shape[2] if len(shape) > 2 else 1
        if given != wanted:
            raise UserError(f'{where}: {loaded.get("img_path")!r} is loaded by {type_name(loader)} with {given} '
                            f'channels (an array of {shape}: height, width, channels), but '
                            f'model.backbone.in_channels is {wanted}. {REMEDY}')


def _stages(cfg: Config, stages: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield each stage whose images go into a CvT, and the channels that it takes."""
    backbone: dict[str, Any] = (cfg.get('model') or {}).get('backbone') or {}
    if type_name(backbone) == 'CvT':
        for stage in stages:
            if (cfg.get(f'{stage}_dataloader') or {}).get('dataset'):
                yield stage, backbone.get('in_channels', 3)
