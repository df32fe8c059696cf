"""Check the folders and COCO files of a config, without an import of the data sets' packages, which takes seconds."""
import os
from collections.abc import Sequence

from mmengine.config import Config

from ..config.data_sets import leaf_datasets
from ..errors import UserError
from ..nodes import dicts, type_name


def check_paths(cfg: Config, stages: Sequence[str]) -> None:
    """Check that the folders and COCO files of the data loaders of ``stages`` exist.

    Raises:
        UserError: if a file or folder is missing.
    """
    for stage in stages:
        for dataset in leaf_datasets((cfg.get(f'{stage}_dataloader') or {}).get('dataset') or {}):
            _check(dataset, f'{stage}_dataloader')


def _check(dataset: dict, where: str) -> None:
    root = dataset.get('data_root') or ''
    if any(node.get('backend_args') for node in dicts(dataset)):  # not on the file system
        return
    if type_name(dataset) == 'ImageDataset' and not os.path.isdir(root):
        raise UserError(f'data root {root!r} is not a folder; give the right one with --data-root DIR or data_root '
                        'in the config.')
    for name, folder in (dataset.get('data_prefix') or {}).items():
        path = os.path.join(root, folder) if isinstance(folder, str) else ''
        if path and not os.path.isdir(path):  # '' where the annotations have whole paths
            raise UserError(f'{where}: the folder {path!r} (data_prefix.{name}) does not exist; correct data_root or '
                            'data_prefix, or give --data-root DIR.')
    file = os.path.join(root, dataset.get('ann_file') or '')
    if type_name(dataset) == 'CocoDataset' and not os.path.isfile(file):
        raise UserError(f'{where}: the annotation file {file!r} does not exist; correct data_root or ann_file, or '
                        'give --data-root DIR.')
