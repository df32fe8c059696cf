"""Check the images and label maps of a data set that is built."""
from typing import Any

from mmengine.config import Config

from ...config.data_sets import class_names
from ...datasets.listing import find_missing
from ...errors import UserError
from ...nodes import dicts
from .label_maps import check_label_maps


def check_files(cfg: Config, datasets: dict[str, Any]) -> None:
    """Check that the images and label maps of MMDetection's and MMSegmentation's data sets exist and fit the model.

    Classes without a single pixel are named in the log. Label maps are read in threads, 2000 at most, evenly spread.
    Files behind ``backend_args`` are not looked for.

    Raises:
        UserError: if files are missing; a label map is not one channel of
            whole numbers, or holds values beyond the classes; every pixel is ignored.
    """
    for stage, dataset in datasets.items():
        listed = type(dataset).__name__ == 'ImageDataset'  # it has checked its files itself
        if listed or not hasattr(dataset, 'get_data_info') or not class_names(dataset):
            continue
        where = f'{stage}_dataloader'
        if not any(node.get('backend_args') for node in dicts(cfg[where].dataset)):
            _check_stage(dataset, cfg.model, where)


def _check_stage(dataset: Any, model: dict[str, Any], where: str) -> None:
    files: dict[str, list[str]] = dict(img_path=[], seg_map_path=[])
    for i in range(len(dataset)):
        info = dataset.get_data_info(i)
        for key, paths in files.items():
            if isinstance(info.get(key), str):
                paths.append(info[key])
    for key, paths in files.items():
        missing = find_missing(paths)
        if missing:
            raise UserError(f'{where}: {len(missing)} of {len(paths)} files do not exist, e.g. {missing[0]!r}. '
                            f'Correct {"data_prefix" if key == "img_path" else "data_prefix or seg_map_suffix"}, or '
                            'complete the data.')
    if files['seg_map_path'] and 'decode_head' in model:
        check_label_maps(files['seg_map_path'], dataset, model, where)
