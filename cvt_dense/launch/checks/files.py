"""Check the images and label maps of a data set that is built."""
from typing import Any

from mmengine.config import Config
from mmengine.fileio import get_file_backend

from ...datasets.listing import find_missing
from ...errors import UserError
from ...nodes import dicts
from .label_maps import check_label_maps
from .run import Run


def check_files(cfg: Config, run: Run) -> None:
    """Check that the images and label maps of MMDetection's and MMSegmentation's data sets exist and fit the model.

    Classes without a single pixel are named in the log. Label maps are read in threads, 2000 at most, evenly spread.
    Through ``backend_args`` only the first image is read.

    Raises:
        UserError: if files are missing; the backend has not got the first image; a label map is not one channel of
            whole numbers, or holds values beyond the classes; every pixel is ignored.
    """
    for stage, dataset in run.datasets.items():
        if type(dataset).__name__ == 'ImageDataset' or not hasattr(dataset, 'get_data_info') or not run.classes(stage):
            continue
        where = f'{stage}_dataloader'
        backends = [node['backend_args'] for node in dicts(cfg[where].dataset) if node.get('backend_args')]
        if backends:
            _check_backend(dataset.get_data_info(0)['img_path'], backends[0], where)
        else:
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


def _check_backend(path: str, backend_args: dict[str, Any], where: str) -> None:
    try:
        # Not fileio.get: the connection that it keeps open would not outlive the start of worker processes.
        content = get_file_backend(path, backend_args=backend_args).get(path)
    except Exception as error:  # each backend raises its own
        raise UserError(f'{where}: {path!r} cannot be read through backend_args={dict(backend_args)} '
                        f'({type(error).__name__}: {error}).') from error
    if not content:
        raise UserError(f'{where}: nothing is stored under {path!r} in backend_args={dict(backend_args)}. Keys must be '
                        "the images' paths as the data set has them; correct data_root and data_prefix, or the keys.")
