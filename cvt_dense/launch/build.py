"""Build the data sets and the Runner of a config, each once, and check them."""
import argparse
import copy
import inspect
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.dist import broadcast_object_list, is_main_process
from mmengine.logging import print_log
from mmengine.registry import DATASETS, MODELS, RUNNERS, init_default_scope
from mmengine.runner import Runner

from ..atomic import atomic_path
from ..classes import Classes
from ..config.walk import class_of, leaf_datasets, type_name
from ..console import prints_to_log
from ..engine.hooks.unreadable_images import skip_unreadable_images
from ..engine.runner import CvTRunner, RunnerMixin
from ..errors import UserError, refusals_of
from ..models.task import task_of
from ..pretraining.listing import find_classes
from ..weights import register_safe_loading
from .announce import announce
from .checks.data import DATASET_CHECKS
from .checks.weights import RUN_CHECKS
from .distributed import is_first_process
from .machine import adapt_to_machine


def build(cfg: Config, flags: argparse.Namespace, stages: Sequence[str], checkpoint: str | None = None,
          content: dict[str, Any] | None = None, summary: bool = True) -> Runner:
    """Build the Runner of a config.

    Unless ``flags.no_check``, the first process checks the data, and each process the weights that it loads.

    Args:
        cfg: as the user gave it, with flags; the work dir and the checkpoints keep it.
        flags: flags of the command line.
        stages: data loaders that the run uses, of 'train', 'val' and 'test'.
        checkpoint: file that a training continues from.
        content: what the tested checkpoint or exported file holds.
        summary: whether a summary of the run is logged.

    Raises:
        UserError: a check has found a mistake. In one of several processes it ends the others too.
    """
    running = copy.deepcopy(cfg)
    running.resume, running.load_from = bool(checkpoint), checkpoint or running.get('load_from')
    running.launcher = flags.launcher
    changes = adapt_to_machine(running)
    datasets = load_datasets(running, stages, not flags.no_check and is_first_process(flags.launcher),
                             Classes.of_file(content or {}, running.get('load_from') or ''))
    runner = build_runner(cfg, running, datasets)
    continued = [(runner._resume, runner._load_from)]
    broadcast_object_list(continued)  # the first process has waited for a run that was ending to save
    runner._resume, runner._load_from = continued[0]
    saved = Path(cfg.work_dir, os.path.basename(cfg.filename))
    if 'train' in datasets and is_main_process() and not (saved.exists() and saved.samefile(cfg.filename)):
        with atomic_path(saved) as partial:
            cfg.dump(partial)
    if not flags.no_check:
        for check_run in RUN_CHECKS:
            check_run(runner, running, datasets, content)
    if summary:
        announce(runner, running, changes, datasets)
    return runner


@prints_to_log()  # pycocotools and mmdet
def load_datasets(cfg: Config, stages: Sequence[str], check: bool = True,
                  classes: Classes = Classes()) -> dict[str, Any]:
    """Build the data sets of a config and check them.

    Class folders are numbered by one list for all stages. A classifier whose config leaves ``num_classes`` open gets
    an output for each.

    Args:
        cfg: the config as it runs here, whose ``model.num_classes`` is set.
        stages: any of 'train', 'val' and 'test'.
        check: whether to check the data sets.
        classes: those of a file that is tested. Without names, those of the first data set.

    Returns:
        The data set of each stage that the config has.

    Raises:
        UserError: a data set is empty or refuses its files, there are fewer than two class folders, or a check has
            found a mistake.
    """
    register_safe_loading()
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    datasets: dict[str, Any] = {}
    for stage in stages:
        loader = cfg.get(f'{stage}_dataloader')
        if not loader or not isinstance(loader.get('dataset'), dict):
            continue
        settings = copy.deepcopy(loader.dataset)
        try:
            for leaf in leaf_datasets(settings):
                if type_name(leaf) == 'ImageDataset':
                    number_folders(leaf, classes)
                    leaf.setdefault('num_classes', cfg.model.get('num_classes'))  # labels that are larger are refused
            dataset = DATASETS.build(settings)
            if not len(dataset):
                raise ValueError('it is empty')
        except (KeyError, OSError, TypeError, ValueError) as error:  # MMEngine raises ValueError if it is empty
            given = {key: value for key, value in loader.dataset.items() if key != 'pipeline'}
            reason = str(error).rstrip('.')
            raise UserError(f'{stage}_dataloader: the data set cannot be built: {reason}. If it finds no file, correct '
                            f'data_root, data_prefix, ann_file or img_suffix. Its settings are {given}.') from error
        skip_unreadable_images(dataset, (cfg.model.get('backbone') or {}).get('in_channels', 3))
        datasets[stage] = dataset
        classes = classes or Classes.of_data(dataset, stage)
    if not datasets:
        raise UserError(f'{cfg.filename!r} has no {stages[-1]}_dataloader with a dataset.')
    if cfg.model.get('num_classes') is None and task_of(class_of(cfg.model, cfg, MODELS)) == 'classification':
        if len(classes) == 1:
            raise UserError(f'{classes.source} has one class, {classes}; a classifier needs two. Correct data_root.')
        if classes:
            cfg.model.num_classes = len(classes)
        else:
            print_log('The data name no classes, and model.num_classes is not set: the classifier has 1000 outputs.',
                      logger='current', level=30)
    if check:
        for check_datasets in DATASET_CHECKS:
            check_datasets(cfg, datasets)
    return datasets


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


def build_runner(saved: Config, running: Config, datasets: dict[str, Any]) -> Runner:
    """Build the Runner around data sets that are built.

    Args:
        saved: the user's config, which the checkpoints keep.
        running: the config that runs here.
        datasets: by stage, those that the run uses.
    """
    named = running.get('runner_type', 'Runner')
    base = RUNNERS.get(named) if isinstance(named, str) else named
    runner_class = CvTRunner if base is Runner else type(base.__name__, (RunnerMixin, base), {})
    names = [name for name in inspect.signature(base.__init__).parameters if name in running]
    arguments = {name: copy.deepcopy(running[name]) for name in names}
    for stage, dataset in datasets.items():  # a scan of ImageNet or of COCO's JSON is not done twice
        arguments[f'{stage}_dataloader'] = dict(arguments[f'{stage}_dataloader'], dataset=dataset)
    with refusals_of('a setting of the run'), warnings.catch_warnings():
        warnings.simplefilter('ignore')  # mmseg warns of its own defaults
        return runner_class(**arguments, cfg=saved)
