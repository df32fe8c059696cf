"""From a command line to a checked Runner."""
import argparse
import copy
import os
from typing import Any

from mmengine.config import Config
from mmengine.dist import is_main_process
from mmengine.logging import print_log
from mmengine.registry import DATASETS, RUNNERS, init_default_scope
from mmengine.runner import Runner

from ..console import before_the_log
from ..engine.hooks import EvaluateLoadedHook, HeadClassesHook, ScheduleHook, SummaryHook
from ..engine.runner import CvTRunner, RunnerMixin
from ..errors import UserError
from ..nodes import dicts
from ..weights import register_safe_loading
from . import settings
from .announce import announce
from .check_data import check_annotations, check_channels, check_files, check_heads
from .check_data.data_sets import is_first_process
from .check_values import check_keys
from .check_weights import check_checkpoint, check_pretrained, check_teacher
from .distributed import setup_distributed
from .work_dir import begin


def build_datasets(cfg: Config, stages: list[str], check: bool = True) -> dict[str, Any]:
    """The data sets of ``stages``, built and, unless ``check`` is False, checked before a run writes anything."""
    datasets = {}
    if not check:
        print_log('--no-check: data sets are not checked before the run.', logger='current', level=30)
    num_classes = cfg.model.get('num_classes')
    for stage in stages:
        loader = cfg.get(f'{stage}_dataloader')
        if not loader or not isinstance(loader.get('dataset'), dict):
            continue
        if check:
            check_heads(cfg, stage)
            check_annotations(cfg, stage)
        dataset = DATASETS.build(copy.deepcopy(loader.dataset))
        if hasattr(dataset, 'full_init'):
            dataset.full_init()
        backend_args = [node['backend_args'] for node in dicts(loader.dataset) if node.get('backend_args')]
        if check:
            check_files(dataset, cfg.model, f'{stage}_dataloader', *backend_args[:1])
            check_channels(cfg, dataset, stage)
        if not len(dataset):
            raise UserError(f'the data set of {stage}_dataloader is empty: {dict(loader.dataset)}. Check its '
                            'data_root and annotation file.')
        datasets[stage] = dataset
    classes = {stage: (getattr(dataset, 'metainfo', None) or {}).get('classes')
               for stage, dataset in datasets.items()}
    if num_classes is not None:
        for stage, names in classes.items():
            if names and len(names) < num_classes:
                print_log(f'{stage}: {len(names)} classes on disk under a head of {num_classes} outputs.',
                          logger='current')
        if classes.get('train') and classes.get('val') and classes['train'] != classes['val']:
            odd = sorted(set(classes['train']) ^ set(classes['val']))
            raise UserError(f'the class folders for training ({len(classes["train"])}) and validation '
                            f'({len(classes["val"])}) differ, so their numbers would too: {odd[:5]} are in '
                            'one of them only. Give both the same folders.')
    return datasets


def build_runner(asked: Config, args: argparse.Namespace, stages: list[str]) -> Runner:
    """Checks everything that a run needs, then builds its Runner.

    Args:
        asked: the complete config.
        args: the tool's flags.
        stages: the data loaders that the run uses, of 'train', 'val' and 'test'.

    Raises:
        UserError, ValueError, ...: see ``SETUP_ERRORS``; nothing has been written then.
    """
    with before_the_log(is_first_process()):
        print_log(f'{args.config}: checking settings, data and weights', logger='current')
        return _build_runner(asked, args, stages)


def _build_runner(asked: Config, args: argparse.Namespace, stages: list[str]) -> Runner:
    check_keys(asked, stages)
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    setup_distributed(args.launcher)
    cfg = settings.adapt(asked, args)
    register_safe_loading()
    training = 'train' in stages
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    datasets = build_datasets(cfg, stages, check=not args.no_check)
    if 'train' in datasets and not args.no_check and not cfg.get('resume'):  # a run that was started so goes on
        _check_outputs(cfg, datasets['train'])
    checkpoint = cfg.get('load_from')
    if checkpoint is not None:
        check_checkpoint(cfg, checkpoint, strict=bool(cfg.get('resume')) or 'train' not in stages)
    else:
        check_pretrained(cfg)
    if training:
        known = getattr(datasets.get('train'), 'metainfo', None) or {}
        check_teacher(cfg, known.get('classes') or ())
    if getattr(args, 'tta', False):
        settings.wrap_for_tta(cfg)
    if training:
        begin(cfg, args)
    runner = _runner_class(cfg).from_cfg(cfg)
    for stage, dataset in datasets.items():  # a scan of ImageNet or of COCO's JSON is not done twice
        getattr(runner, f'_{stage}_dataloader')['dataset'] = dataset
    for hook in (EvaluateLoadedHook, *((SummaryHook, HeadClassesHook, ScheduleHook) if training else ())):
        if not any(isinstance(present, hook) for present in runner.hooks):  # a config of someone else's
            runner.register_hook(hook())
    _write_down(asked, runner, training)
    announce(runner, cfg, datasets)
    return runner


def _check_outputs(cfg: Config, dataset: Any) -> None:
    outputs, names = cfg.model.get('num_classes'), (getattr(dataset, 'metainfo', None) or {}).get('classes')
    if outputs is not None and names and len(names) < outputs:
        raise UserError(f'the head has {outputs} outputs, but the training set has {len(names)} class folders '
                        f'({", ".join(names[:5])}{", ..." if len(names) > 5 else ""}): the other outputs would stand '
                        f'for nothing. Set model.num_classes={len(names)} (after --cfg-options), point the data root '
                        'elsewhere, or train so with --no-check.')


def _runner_class(cfg: Config) -> type:
    named = cfg.get('runner_type')
    if named is None:
        return CvTRunner
    base = RUNNERS.get(named) if isinstance(named, str) else named
    if base is None:
        raise UserError(f"runner_type={named!r} is not registered in MMEngine's RUNNERS.")
    return type(base.__name__, (RunnerMixin, base), {})


def _write_down(asked: Config, runner: Runner, training: bool) -> None:
    """Puts what was asked for, not what was made of it here, into checkpoints, the log folder and the work dir."""
    runner.cfg = asked
    runner.visualizer.add_config(asked)
    if training and is_main_process():
        asked.dump(os.path.join(runner.work_dir, os.path.basename(asked.filename)))
