"""Build the data sets and the Runner of a config, each once, and check them."""
import copy
import inspect
import os
import warnings
from collections.abc import Sequence
from typing import Any

from mmengine.config import Config
from mmengine.dist import is_main_process
from mmengine.logging import print_log
from mmengine.model import BaseTTAModel
from mmengine.registry import DATASETS, MODELS, RUNNERS, init_default_scope
from mmengine.runner import Runner

from ..config.settings import class_names, class_of
from ..console import prints_to_log
from ..engine import SkippingPipeline
from ..engine.runner import CvTRunner, RunnerMixin
from ..engine.samplers import find_transform, leaves
from ..errors import UserError
from ..images import is_hidden
from ..inference.model import number_class_folders
from ..models.task import task_of
from ..models.wrappers import unwrap
from ..weights import register_safe_loading
from .announce import announce
from .checks.batches import check_batch_norm
from .checks.data import DATASET_CHECKS
from .checks.weights import check_weights
from .distributed import is_first_process
from .flags import Flags


def build(cfg: Config, user_cfg: Config, flags: Flags, stages: Sequence[str], summary: bool = True) -> Runner:
    """Build the Runner of a config.

    Unless ``flags.no_check``, the first process checks the data, and each process the weights that it loads.

    Args:
        cfg: adapted to this machine.
        user_cfg: as the user gave it; the work dir and the checkpoints keep this one.
        flags: flags of the command line.
        stages: data loaders that the run uses, of 'train', 'val' and 'test'.
        summary: whether a summary of the run is logged.

    Raises:
        UserError: a check has found a mistake. In one of several processes it ends the others too.
    """
    datasets = load_datasets(cfg, stages, not flags.no_check and is_first_process())
    if 'train' in datasets and cfg.model.get('num_classes'):
        user_cfg.model.num_classes = cfg.model.num_classes
    runner = build_runner(cfg, user_cfg, datasets)
    if not flags.no_check:
        model = unwrap(runner.model)
        if isinstance(model, BaseTTAModel):
            model = model.module
        check_weights(cfg, model, datasets)
        check_batch_norm(cfg, model, datasets)
    if summary:
        announce(runner, cfg, datasets)
    return runner


@prints_to_log()  # pycocotools and mmdet
def load_datasets(cfg: Config, stages: Sequence[str], check: bool = True) -> dict[str, Any]:
    """Build the data sets of a config and check them.

    Args:
        cfg: whole config.
        stages: any of 'train', 'val' and 'test'.
        check: whether to check the data sets.

    Returns:
        The data set of each stage that the config has.

    Raises:
        UserError: a data set is empty or refuses its files, or a check has found a mistake.
    """
    register_safe_loading()
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    datasets: dict[str, Any] = {}
    for stage in stages:
        loader = cfg.get(f'{stage}_dataloader')
        if not loader or not isinstance(loader.get('dataset'), dict):
            continue
        number_class_folders(cfg, stage, class_names(datasets.get('train')) or ())
        try:
            dataset = DATASETS.build(copy.deepcopy(loader.dataset))
            if not len(dataset):
                raise ValueError('it is empty')
        except (ValueError, OSError, TypeError) as error:  # MMEngine's raise ValueError if empty, TypeError for a key
            settings = {key: value for key, value in loader.dataset.items() if key != 'pipeline'}
            reason = str(error).rstrip('.')
            raise UserError(f'{stage}_dataloader: the data set cannot be built: {reason}. If it finds no file, correct '
                            f'data_root, data_prefix, ann_file or img_suffix. Its settings are {settings}.') from error
        leave_hidden_files_out(dataset)
        skip_unreadable_images(dataset, (cfg.model.get('backbone') or {}).get('in_channels', 3))
        datasets[stage] = dataset
    if not datasets:
        raise UserError(f'{cfg.filename!r} has no {stages[-1]}_dataloader with a dataset.')
    count_classes(cfg, datasets)
    if check:
        for check_datasets in DATASET_CHECKS:
            check_datasets(cfg, datasets)
    return datasets


def count_classes(cfg: Config, datasets: dict[str, Any]) -> None:
    """Give a classifier whose config leaves ``num_classes`` open an output for each class of its first data set.

    Raises:
        UserError: there are fewer than two classes.
    """
    if cfg.model.get('num_classes') is not None or task_of(class_of(cfg.model, cfg, MODELS)) != 'classification':
        return
    for stage, dataset in datasets.items():
        classes = class_names(dataset)
        if classes and len(classes) < 2:
            raise UserError(f'{stage}_dataloader has the class folders {classes}; a classifier needs two or more. '
                            'Correct data_root, or give --data-root DIR.')
        if classes:
            cfg.model.num_classes = len(classes)
            return
    print_log('The data name no classes, and model.num_classes is not set: the classifier has 1000 outputs.',
              logger='current', level=30)


def leave_hidden_files_out(dataset: Any) -> None:
    """Leave hidden files and folders out of MMSegmentation's data sets, which list all below a folder."""
    for leaf in leaves(dataset):
        if not hasattr(leaf, 'img_suffix') or leaf.ann_file:
            continue
        inside = [leaf.get_data_info(i)['img_path'][len(leaf.data_prefix['img_path']):] for i in range(len(leaf))]
        shown = [i for i, path in enumerate(inside) if not any(map(is_hidden, path.split(os.sep)))]
        if len(shown) < len(inside):
            leaf.get_subset_(shown)
    if hasattr(dataset, 'cumulative_sizes'):  # of ConcatDataset
        dataset.cumulative_sizes = dataset.cumsum(dataset.datasets)


def skip_unreadable_images(dataset: Any, channels: int) -> None:
    """Let the pipelines of MMDetection and MMSegmentation skip images that cannot be read.

    Args:
        dataset: changed in place.
        channels: of an image.
    """
    for leaf in leaves(dataset):
        if find_transform(leaf, 'LoadImage') is not None:
            leaf.pipeline = SkippingPipeline(
                leaf.pipeline, leaf.test_mode, channels, getattr(leaf, 'ignore_index', 255))


def build_runner(cfg: Config, user_cfg: Config, datasets: dict[str, Any]) -> Runner:
    """Build the Runner around data sets that are built.

    Args:
        cfg, user_cfg: see :func:`build`.
        datasets: by stage, those that the run uses.
    """
    named = cfg.get('runner_type', 'Runner')
    base = RUNNERS.get(named) if isinstance(named, str) else named
    runner_class = CvTRunner if base is Runner else type(base.__name__, (RunnerMixin, base), {})
    names = [name for name in inspect.signature(runner_class.__init__).parameters if name in cfg]
    arguments = {name: copy.deepcopy(cfg[name]) for name in names}
    arguments['default_hooks'] = dict(
        dict(unreadable_images=dict(type='cvt_dense.UnreadableImagesHook')), **arguments.get('default_hooks') or {})
    for stage, dataset in datasets.items():  # a scan of ImageNet or of COCO's JSON is not done twice
        arguments[f'{stage}_dataloader'] = dict(arguments[f'{stage}_dataloader'], dataset=dataset)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # mmseg warns of its own defaults
        runner = runner_class(**arguments, cfg=cfg)
    # Every checkpoint has the config's text, whose formatting would take longer than writing a small network.
    runner.cfg = Config(dict(user_cfg.items()), user_cfg.text, user_cfg.filename, user_cfg.env_variables,
                        format_python_code=False)
    if is_main_process() and (local := runner.visualizer.get_backend('LocalVisBackend')):
        local.add_config(user_cfg)  # trackers keep the adapted one; MLflow refuses a second value of a setting
    if 'train' in datasets and is_main_process():
        user_cfg.dump(os.path.join(runner.work_dir, os.path.basename(user_cfg.filename)))
    return runner
