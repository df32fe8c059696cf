"""Check the classes of data sets that are built, and call the other checks of them."""
from typing import Any

from mmengine.config import Config

from ...classes import Classes
from ...errors import UserError
from .images import check_files


def check_class_folders(cfg: Config, datasets: dict[str, Any]) -> None:
    """Check that training and validation number classes alike, and that a classifier has as many as it has outputs.

    Raises:
        UserError: a class has another number in each, or a classifier's class folders are fewer than its outputs.
    """
    outputs = cfg.model.get('num_classes')
    train, val = (Classes.of_data(datasets.get(stage), stage) for stage in ('train', 'val'))
    train.check_order(val)
    # A run that was started with --no-check may go on.
    if train and outputs is not None and len(train) < outputs and not cfg.get('resume'):
        raise UserError(f'model.num_classes={outputs}, but the training set has {len(train)} class folders, '
                        f'{train}: set it to {len(train)}, correct data_root, or train anyway with --no-check.')


DATASET_CHECKS = [check_class_folders, check_files]  # each takes cfg and the data sets by stage
