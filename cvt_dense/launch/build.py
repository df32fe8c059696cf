"""From a complete config to a checked Runner."""
import copy
from typing import Any

from mmengine.config import Config, ConfigDict
from mmengine.logging import print_log
from mmengine.registry import DATASETS, MODELS, RUNNERS, init_default_scope
from mmengine.runner import Runner

from ..engine.hooks import EvaluateLoadedHook
from ..engine.runner import ContinuingRunner
from ..errors import UserError
from .check_data import check_annotations, check_files, check_heads, dicts
from .check_weights import check_checkpoint
from .distributed import setup_distributed


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
        for node in dicts(loader):
            if node.get('type') == 'cvt_dense.ImageDataset':
                node.setdefault('num_classes', num_classes)
        if check:
            check_heads(cfg, stage)
            check_annotations(cfg, stage)
        dataset = DATASETS.build(copy.deepcopy(loader.dataset))
        if hasattr(dataset, 'full_init'):
            dataset.full_init()
        backend_args = [node['backend_args'] for node in dicts(loader.dataset) if node.get('backend_args')]
        if check:
            check_files(dataset, cfg.model, f'{stage}_dataloader', *backend_args[:1])
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


def build_runner(cfg: Config, stages: list[str], tta: bool = False, check: bool = True) -> Runner:
    """Checks everything that a run needs, then builds its Runner.

    Args:
        cfg: the complete config; ``resume`` and ``load_from`` as the Runner understands them.
        stages: the data loaders that the run uses, of 'train', 'val' and 'test'.
        tta: test with the config's ``tta_model`` and ``tta_pipeline``.
        check: whether to check the data sets.

    Raises:
        UserError, ValueError, ...: see ``SETUP_ERRORS``; nothing has been written then.
    """
    setup_distributed(cfg, cfg.launcher)
    optimizer = (cfg.get('optim_wrapper') or {}).get('optimizer') or {}
    if cfg.launcher == 'none' and optimizer.get('type') == 'ZeroRedundancyOptimizer':
        optimizer.type = optimizer.pop('optimizer_type')  # one process: no others to share the state with
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    if tta:
        if not cfg.get('tta_model') or not cfg.get('tta_pipeline'):
            raise UserError(f'--tta: {cfg.filename!r} sets no tta_model and tta_pipeline, which say how the '
                            'predictions for several sizes and mirror images are put together.')
        cfg.test_dataloader.dataset.pipeline = cfg.tta_pipeline
    datasets = build_datasets(cfg, stages, check)
    checkpoint = cfg.get('load_from')
    if checkpoint is not None:
        check_checkpoint(cfg, checkpoint, strict=bool(cfg.get('resume')) or 'train' not in stages)
    else:
        MODELS.build(copy.deepcopy(cfg.model))
    if tta:
        cfg.model = ConfigDict(**cfg.tta_model, module=cfg.model)
    runner = RUNNERS.build(cfg) if 'runner_type' in cfg else ContinuingRunner.from_cfg(cfg)
    for stage, dataset in datasets.items():  # a scan of ImageNet or of COCO's JSON is not done twice
        getattr(runner, f'_{stage}_dataloader')['dataset'] = dataset
    if not any(isinstance(hook, EvaluateLoadedHook) for hook in runner.hooks):  # a config of someone else's
        runner.register_hook(EvaluateLoadedHook())
    return runner
