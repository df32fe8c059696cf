"""Build the data loaders of a run."""
import copy
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.logging import print_log
from mmengine.registry import DATASETS, MODELS
from mmengine.runner import Runner
from torch.utils.data import DataLoader

from ..annotations.data_sets import check_annotations
from ..classes import Classes
from ..config.walk import class_of, leaf_datasets
from ..console import prints_to_log
from ..engine.hooks.unreadable_images import skip_unreadable_images
from ..errors import UserError, listed
from ..pretraining import ImageClassifier, ImageDataset
from ..pretraining.listing import find_classes
from .distributed import on_first_process


@prints_to_log()  # pycocotools and mmdet
def load_data(cfg: Config, stages: Sequence[str], seed: int | None = None, check: bool = True,
              classes: Classes = Classes()) -> dict[str, DataLoader]:
    """Build the data loaders of a config, whose class folders are numbered by one list for all stages.

    Args:
        cfg: the config as it runs here.
        stages: any of 'train', 'val' and 'test'.
        seed: of the order of the images.
        check: whether annotation files are checked before they are read.
        classes: those of a file that is tested. Without names, those of the first data set.

    Returns:
        The data loader of each stage that the config has.

    Raises:
        UserError: a data set is empty, refuses its files or would learn them wrongly, or a classifier has fewer than
            two classes.
    """
    if check:
        on_first_process(check_annotations, cfg, stages)
    loaders: dict[str, DataLoader] = {}
    for stage in stages:
        settings = cfg.get(f'{stage}_dataloader')
        if not settings or not isinstance(settings.get('dataset'), dict):
            if stage == 'val' and (kept := [key for key in ('val_cfg', 'val_evaluator') if cfg.get(key) is not None]):
                raise UserError(f'val_dataloader is None, and {" and ".join(kept)} not: set all three, or none.')
            continue
        dataset = build_dataset(cfg, stage, classes)
        skip_unreadable_images(dataset, (cfg.model.get('backbone') or {}).get('in_channels', 3))
        classes = classes or Classes.of_data(dataset, stage)
        with_data = dict(settings, dataset=dataset)
        try:
            loaders[stage] = Runner.build_dataloader(
                with_data, seed, bool((cfg.get('randomness') or {}).get('diff_rank_seed')))
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise UserError(f'{stage}_dataloader cannot be built: {type(error).__name__}: {error}') from error
    if not loaders:
        raise UserError(f'{cfg.filename!r} has no {stages[-1]}_dataloader with a dataset.')
    number_outputs(cfg, loaders)
    return loaders


def build_dataset(cfg: Config, stage: str, classes: Classes) -> Any:
    """Build the data set of a stage; see :func:`load_data`."""
    settings = copy.deepcopy(cfg[f'{stage}_dataloader'].dataset)
    try:
        for leaf in leaf_datasets(settings):
            if issubclass(class_of(leaf, cfg) or object, ImageDataset):
                number_folders(leaf, classes)
                leaf.setdefault('num_classes', cfg.model.get('num_classes'))  # labels that are larger are refused
        dataset = DATASETS.build(settings)
        if not len(dataset):
            raise FileNotFoundError('it is empty')
        if isinstance(about := getattr(dataset, 'metainfo', None), list):  # ConcatDataset's, of each data set
            key = min(key for key in {*chain(*about)} if any(one.get(key) != about[0].get(key) for one in about))
            raise ValueError(f'it joins data sets with other {key}, {listed([one.get(key) for one in about])}')
    # MMEngine raises ValueError if it is empty, MMDetection RuntimeError without the package of an augmentation.
    except (ImportError, KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        given = {key: value for key, value in settings.items() if key != 'pipeline'}
        advice = ' Correct data_root, data_prefix, ann_file or img_suffix.' if isinstance(error, OSError) else ''
        raise UserError(f'{stage}_dataloader: the data set cannot be built: {str(error).rstrip(".")}.{advice} Its '
                        f'settings are {given}.') from error
    return dataset


def number_folders(dataset: dict[str, Any], classes: Classes) -> None:
    """Give a data set's class folders, which may lack some, the numbers of ``classes``, unless all have other names.

    Args:
        dataset: config of an :class:`~cvt_dense.pretraining.ImageDataset`, changed in place.
        classes: nothing is changed without names, or where the config names classes itself.
    """
    root, about = Path(dataset.get('data_root') or '', dataset.get('split') or ''), dataset.get('metainfo') or {}
    if classes and not dataset.get('ann_file') and not about.get('classes') and root.exists() and (
            {*classes.names} & {*find_classes(str(root))}):
        dataset['metainfo'] = dict(about, classes=classes.names)


def number_outputs(cfg: Config, loaders: dict[str, DataLoader]) -> None:
    """Give a classifier whose config leaves ``model.num_classes`` open an output for each class of its data.

    Raises:
        UserError: there are fewer than two classes.
    """
    if cfg.model.get('num_classes') is not None or not issubclass(
            class_of(cfg.model, cfg, MODELS) or object, ImageClassifier):
        return
    stage, loader = next(iter(loaders.items()))
    classes = Classes.of_data(loader.dataset, stage)
    if len(classes) == 1:
        raise UserError(f'{classes.source} has one class, {classes}; a classifier needs two. Correct data_root.')
    if classes:
        cfg.model.num_classes = len(classes)
    else:
        print_log('The data name no classes, and model.num_classes is not set: the classifier has 1000 outputs.',
                  logger='current', level=30)
