"""Build the data, the model and the Runner of a run on this machine."""
import copy
import inspect
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path
from typing import Any

import timm.optim
import torch
from mmengine.config import Config
from mmengine.dist import is_main_process, sync_random_seed
from mmengine.hooks import EMAHook
from mmengine.logging import print_log
from mmengine.optim import AmpOptimWrapper
from mmengine.registry import DATASETS, MODELS, OPTIM_WRAPPERS, OPTIMIZERS, RUNNERS, DefaultScope
from mmengine.runner import Runner, set_random_seed

from ..classes import Classes
from ..config import class_of, leaf_datasets
from ..console import prints_to_log
from ..engine import SaveLabelMapsHook
from ..engine.data_sets import skip_unreadable_images
from ..engine.hooks.announce import AnnounceHook
from ..engine.runner import CvTRunner
from ..errors import UserError, listed, refusals_of
from ..inference.model import TrainedFile
from ..pretraining import ImageDataset
from ..pretraining.listing import find_classes
from ..scopes import kinds
from ..weights import register_safe_loading
from .built import Built
from .runs import Run

RUNS = count()  # of this process, whose loggers and message hubs MMEngine keeps by name


def prepare(cfg: Config, run: Run, checkpoint: str | None = None, trained: TrainedFile | None = None) -> Built:
    """Return what a run consists of, yet without its data and its model; seed this process.

    Args:
        cfg: the user's config, which is not changed.
        run: the settings of the run.
        checkpoint: file that a training continues from.
        trained: file that a test tests.
    """
    register_safe_loading()
    # As MMEngine's Runner does; init_default_scope would warn of the scope that an earlier run has left.
    DefaultScope.get_instance(f'run_{next(RUNS)}', scope_name=cfg.get('default_scope') or 'mmengine')
    running = copy.deepcopy(cfg)
    running.launcher = run.launcher
    running.resume, running.load_from = bool(checkpoint), checkpoint or cfg.get('load_from')
    changes = adapt_to_machine(running)
    running.randomness = dict(running.get('randomness') or {})
    if running.randomness.get('seed') is None:
        running.randomness.seed = sync_random_seed()
    with refusals_of('randomness'):
        seed = set_random_seed(**running.randomness)
    return Built(run, cfg, running, changes, seed, trained)


def adapt_to_machine(cfg: Config) -> list[str]:
    """Replace settings that this machine or MMEngine's Runner does not support, such as more workers than cores.

    Args:
        cfg: a copy of the user's config, changed in place.

    Returns:
        The changes in words.

    Raises:
        UserError: there is no such optimizer.
    """
    changes = []
    gpu = torch.cuda.is_available()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1
    for key in [key for key in cfg if key.endswith('_dataloader') and cfg[key]]:
        loader = cfg[key]
        if loader.get('num_workers', 0) > cores:
            changes.append(f'{key}.num_workers is {cores}, as there are cores')
            loader.num_workers = cores
        if not loader.get('num_workers'):
            for setting in ('persistent_workers', 'prefetch_factor'):  # which PyTorch refuses without workers
                loader.pop(setting, None)
        loader.pin_memory = gpu and loader.get('pin_memory', False)
    wrapper = cfg.get('optim_wrapper') or {}
    kind = class_of(wrapper, cfg, OPTIM_WRAPPERS) if 'type' in wrapper else None
    # MMEngine's AmpOptimWrapper asserts a GPU.
    if kind and issubclass(kind, AmpOptimWrapper) and not gpu:
        wrapper.type = 'OptimWrapper'
        for key in ('dtype', 'loss_scale', 'use_fsdp'):
            wrapper.pop(key, None)
        changes.append('float32 instead of mixed precision, without a GPU')
    optimizer = wrapper.get('optimizer') or {}
    kind = class_of(optimizer, cfg, OPTIMIZERS) if 'type' in optimizer else torch.optim.Optimizer
    if kind is None:
        raise UserError(f'optim_wrapper.optimizer.type={optimizer.type!r}: MMEngine finds no optimizer of this name.')
    if kind is timm.optim.Muon and not gpu:
        optimizer.type = 'cvt_dense.engine.muon.Muon'
        changes.append('Muon in float32, without a GPU')
    return changes


@prints_to_log()  # pycocotools and mmdet
def load_data(built: Built, *stages: str) -> None:
    """Build the data loaders of those stages that the config has; class folders are numbered alike in all of them.

    Args:
        built: what the run consists of; gets ``loaders`` and ``classes``.
        stages: any of 'train', 'val' and 'test'.

    Raises:
        UserError: a data set is empty or refuses its files.
    """
    cfg, built.classes = built.cfg, built.trained.classes if built.trained else Classes()
    for stage in stages:
        settings = cfg.get(f'{stage}_dataloader')
        if not settings or not isinstance(settings.get('dataset'), dict):
            if stage == 'val' and (kept := [key for key in ('val_cfg', 'val_evaluator') if cfg.get(key) is not None]):
                raise UserError(f'val_dataloader is None, and {" and ".join(kept)} not: set all three, or none.')
            continue
        dataset = build_dataset(cfg, stage, built.classes)
        built.classes = built.classes or Classes.of_data(dataset, stage)
        with refusals_of(f'{stage}_dataloader'):
            built.loaders[stage] = Runner.build_dataloader(
                dict(settings, dataset=dataset), built.seed, bool(cfg.randomness.get('diff_rank_seed')))
    if not built.loaders:
        raise UserError(f'{cfg.filename!r} has no {stages[-1]}_dataloader with a dataset.')


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


def build_model(built: Built) -> None:
    """Build the model of a training; a classifier that leaves ``num_classes`` open gets an output for each class.

    Args:
        built: what the run consists of; gets ``model``.

    Raises:
        UserError: its class refuses a setting, or there are fewer than two classes.
    """
    settings, classes = built.cfg.model, built.classes
    if settings.get('num_classes') is None and not any(key.endswith('head') for key in settings):  # a classifier
        if len(classes) == 1:
            raise UserError(f'{classes.source} has one class, {classes}; a classifier needs two. Correct data_root.')
        if classes:
            settings.num_classes = len(classes)
        else:
            print_log('The data name no classes, and model.num_classes is not set: the classifier has 1000 outputs.',
                      logger='current', level=30)
    with refusals_of('model'), prints_to_log():
        built.model = MODELS.build(copy.deepcopy(settings))


def skip_unreadable(built: Built) -> None:
    """Let the data sets skip images that cannot be read, in whose place an evaluation reads a black one."""
    channels = getattr(getattr(built.model, 'backbone', None), 'in_channels', 3)
    for loader in built.loaders.values():
        skip_unreadable_images(loader.dataset, channels)


def build_runner(built: Built) -> CvTRunner:
    """Build the Runner around the model and the data loaders; it is the first to write.

    Raises:
        UserError: a setting is refused; what the Runner has written is removed.
    """
    running = built.cfg
    named = running.get('runner_type', 'Runner')
    kind = RUNNERS.get(named) if isinstance(named, str) else named
    if kind is not Runner and not issubclass(kind, CvTRunner):
        raise UserError(f"runner_type={named!r}: allowed are MMEngine's Runner and classes derived from "
                        'cvt_dense.engine.CvTRunner.')
    kind = CvTRunner if kind is Runner else kind
    names = [name for name in inspect.signature(Runner.__init__).parameters if name in running]
    arguments = {name: copy.deepcopy(running[name]) for name in names if name != 'data_preprocessor'}
    arguments |= {f'{stage}_dataloader': loader for stage, loader in built.loaders.items()}
    name = running.get('experiment_name') or Path(built.saved.filename).stem
    with _leaves_no_trace(Path(running.work_dir)), refusals_of('a setting of the run'), warnings.catch_warnings():
        warnings.simplefilter('ignore')  # mmseg warns of its own defaults
        runner = kind(**dict(arguments, model=built.model, experiment_name=f'{name}_{next(RUNS)}'), cfg=built.saved)
        if built.stage == 'train':  # MMEngine's Runner would build it later, when its log files exist
            runner.optim_wrapper = runner.build_optim_wrapper(runner.optim_wrapper)
        elif built.run.out:
            save_predictions(runner, built.run.out)
    if built.stage == 'test':  # EMAHook's averages are the weights that a checkpoint holds, and an exported file
        runner.hooks[:] = [hook for hook in runner.hooks if not isinstance(hook, EMAHook)]
    runner.trained, runner.changes = built.trained, built.changes
    runner.register_hook(AnnounceHook())
    return runner


@contextmanager
def _leaves_no_trace(folder: Path) -> Iterator[None]:
    """Remove the new folder of logs, and ``folder`` if it is new, where the block refuses to start a run."""
    new, before = not folder.exists(), {*folder.glob('*/')}
    try:
        yield
    except UserError:
        if is_main_process():
            for logs in {*folder.glob('*/')} - before:
                shutil.rmtree(logs, ignore_errors=True)
            with suppress(OSError):  # it holds something else
                if new:
                    folder.rmdir()
        raise


def save_predictions(runner: Runner, folder: str | Path) -> None:
    """Let the metrics of a test save predictions in ``folder``: COCO JSON (detection), label maps (segmentation).

    Raises:
        UserError: none of the metrics can.
    """
    metrics = runner.test_loop.evaluator.metrics
    for metric in metrics:
        if isinstance(metric, kinds('COCO_METRICS')):
            metric.outfile_prefix = os.path.join(folder, 'predictions')
        elif isinstance(metric, kinds('IOU_METRICS')):  # whose own files have no folders
            runner.register_hook(SaveLabelMapsHook(str(folder)))
    if not any(isinstance(metric, (*kinds('COCO_METRICS'), *kinds('IOU_METRICS'))) for metric in metrics):
        names = [type(metric).__name__ for metric in metrics]
        raise UserError(f'--out {str(folder)!r}: none of the metrics {names} can save predictions; CocoMetric and '
                        'IoUMetric can.')
