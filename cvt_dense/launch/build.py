"""Build the data sets and the Runner of a config."""
import argparse
import copy
import inspect
import os
from typing import Any

from mmengine.config import Config
from mmengine.dist import broadcast_object_list, is_main_process
from mmengine.registry import DATASETS, RUNNERS, init_default_scope
from mmengine.runner import Runner

from ..console import prints_to_log
from ..engine.hooks import HeadClassesHook, SummaryHook
from ..engine.runner import CvTRunner, RunnerMixin
from ..errors import UserError
from ..weights import register_safe_loading
from .checks import CONFIG_CHECKS, DATASET_CHECKS, MODEL_CHECKS, Run
from .tta import wrap_for_tta
from .work_dir import claim


@prints_to_log()  # pycocotools and mmdet
def load_datasets(cfg: Config, stages: list[str], check: bool = True) -> dict[str, Any]:
    """Build the data sets of a config and check them.

    Args:
        cfg: whole config.
        stages: any of 'train', 'val' and 'test'.
        check: whether to check the config before its data sets are built, and the data sets afterwards.

    Returns:
        The data set of each stage that the config has.

    Raises:
        UserError: a data set is empty, or a check has found a mistake.
    """
    register_safe_loading()
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    datasets: dict[str, Any] = {}
    run = Run(stages, datasets)
    for check_one in CONFIG_CHECKS if check else ():
        check_one(cfg, run)
    for stage in stages:
        loader = cfg.get(f'{stage}_dataloader')
        if not loader or not isinstance(loader.get('dataset'), dict):
            continue
        try:
            dataset = DATASETS.build(copy.deepcopy(loader.dataset))
            if hasattr(dataset, 'full_init'):
                dataset.full_init()
        except ValueError as error:
            if 'need at least one array' not in str(error):  # NumPy's, where MMEngine stores an empty list
                raise
            dataset = ()
        if not len(dataset):
            raise UserError(f'the data set of {stage}_dataloader is empty: {dict(loader.dataset)}. Check its '
                            'data_root and annotation file.')
        datasets[stage] = dataset
    for check_one in DATASET_CHECKS if check else ():
        check_one(cfg, run)
    return datasets


def check_model(cfg: Config, datasets: dict[str, Any]) -> None:
    """Check the weights that a run loads, and what MMEngine builds after its first files are written.

    Raises:
        UserError: a check has found a mistake.
    """
    run = Run(list(datasets), datasets)
    for check_one in MODEL_CHECKS:
        check_one(cfg, run)


def raise_in_all_processes(error: UserError | None) -> None:
    """Raise the first process's error in every process."""
    errors = [error and str(error)]
    broadcast_object_list(errors)
    if error is not None:
        raise error
    if errors[0] is not None:
        raise UserError(errors[0])


def build_runner(cfg: Config, user_cfg: Config, args: argparse.Namespace, datasets: dict[str, Any]) -> Runner:
    """Build the Runner of a checked config. Nothing is written before this step.

    Args:
        cfg: adapted to this machine by :func:`.adapt.adapt`.
        user_cfg: as the user gave it; the work dir and the checkpoints keep this one.
        args: the tool's flags.
        datasets: the data sets that the run uses, by stage.
    """
    training = 'train' in datasets
    if getattr(args, 'tta', False) or getattr(args, 'slice', None):
        wrap_for_tta(cfg)
    if training:
        claim(cfg, args)
    runner_class = _runner_class(cfg)
    names = [name for name in inspect.signature(runner_class.__init__).parameters if name in cfg]
    arguments = {name: copy.deepcopy(cfg[name]) for name in names}
    for stage, dataset in datasets.items():  # a scan of ImageNet or of COCO's JSON is not done twice
        arguments[f'{stage}_dataloader'] = dict(arguments[f'{stage}_dataloader'], dataset=dataset)
    runner = runner_class(**arguments, cfg=cfg)
    for hook in (SummaryHook, HeadClassesHook) if training else ():
        if not any(isinstance(present, hook) for present in runner.hooks):  # a config of another project
            runner.register_hook(hook())
    # Every checkpoint has the config's text, whose formatting would take longer than writing a small network.
    runner.cfg = Config(dict(user_cfg.items()), user_cfg.text, user_cfg.filename, user_cfg.env_variables,
                        format_python_code=False)
    runner.visualizer.add_config(user_cfg)
    if training and is_main_process():
        user_cfg.dump(os.path.join(runner.work_dir, os.path.basename(user_cfg.filename)))
    return runner


def _runner_class(cfg: Config) -> type:
    named = cfg.get('runner_type')
    if named is None:
        return CvTRunner
    base = RUNNERS.get(named) if isinstance(named, str) else named
    if base is None:
        raise UserError(f"runner_type={named!r} is not registered in MMEngine's RUNNERS.")
    return type(base.__name__, (RunnerMixin, base), {})
