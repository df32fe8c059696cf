"""Apply the flags of testing and predicting to a config: mixed precision, and exported files."""
import argparse
from importlib.util import find_spec

from mmengine.config import Config, ConfigDict
from mmengine.logging import print_log
from mmengine.registry import MODELS, init_default_scope

from ..datasets.corruption import CORRUPTIONS, check_corruptions
from ..deploy.runtime import Exported, is_exported, open_exported
from ..errors import UserError
from ..nodes import dicts, type_name
from .class_folders import needs_classes, number_folders
from .read import check_amp

# An exported file has one set of weights, which was chosen when it was exported.
WEIGHT_HOOKS = ('EMAHook', 'RawWeightsHook')


def set_inference(cfg: Config, args: argparse.Namespace) -> None:
    """Make ``cfg`` test the files that ``args`` name. The function is idempotent.

    ``args.checkpoint`` is a checkpoint or a whole exported model; ``args.backbone`` an exported backbone, in place of
    the checkpoint's; ``args.autocast`` is the precision.

    Raises:
        UserError: a file that does not fit the config, or flags that do not go together.
    """
    whole, backbone = is_exported(args.checkpoint), getattr(args, 'backbone', None)
    if whole:
        cfg.load_from = None
        _set_model(cfg, args)
    elif backbone:
        _set_backbone(cfg, args)
    if getattr(args, 'autocast', None):
        _set_autocast(cfg, args.autocast)
    if whole or backbone:
        hooks = cfg.get('custom_hooks') or []
        cfg.custom_hooks = [hook for hook in hooks if type_name(hook) not in WEIGHT_HOOKS]


def set_corruptions(cfg: Config, args: argparse.Namespace) -> None:
    """Apply ``--corrupt`` and ``--severity``: another test loop, and a transform in the test data that it sets.

    The function is idempotent.

    Raises:
        UserError: no such corruption or severity, no data to corrupt, or flags that do not go together.
    """
    names = list(CORRUPTIONS) if args.corrupt == 'all' else args.corrupt.split(',')
    try:
        check_corruptions(names, args.severity)
    except ValueError as error:
        raise UserError(f'--corrupt {args.corrupt} --severity: {error}') from error
    if find_spec('imagecorruptions') is None:
        raise UserError('--corrupt needs the package imagecorruptions: run "pip install imagecorruptions-imaug".')
    if getattr(args, 'out', None):
        raise UserError('--out with --corrupt: the predictions of each corruption would replace those before; leave '
                        'one of them out.')
    added = 0
    for node in dicts(cfg.test_dataloader):
        if type_name(node) == 'ImageDataset':
            node.setdefault('corruption', {})
            added += 1
        for key in ('pipeline', 'transforms'):
            steps = node.get(key)
            loads = [i for i, step in enumerate(steps or ()) if isinstance(step, dict)
                     and type_name(step).startswith('LoadImage')]
            if loads:
                if type_name(steps[loads[0] + 1]) != 'CorruptImage':
                    node[key] = [*steps[:loads[0] + 1], dict(type='cvt_dense.CorruptImage'), *steps[loads[0] + 1:]]
                added += 1
    if not added:
        raise UserError('--corrupt: test_dataloader has neither a LoadImage... transform nor a cvt_dense.ImageDataset, '
                        'after which images could be corrupted.')
    cfg.test_dataloader.persistent_workers = False  # workers would keep the corruption that they began with
    cfg.test_cfg.update(type='cvt_dense.RobustnessTestLoop', corruptions=names, severities=args.severity)


def _set_autocast(cfg: Config, dtype: str) -> None:
    check_amp(cfg, dtype)
    if type_name(cfg.model) != 'AutocastModel':
        cfg.model.update(type='cvt_dense.AutocastModel', replaces=cfg.model.type, dtype=dtype)


def _set_model(cfg: Config, args: argparse.Namespace) -> None:
    from ..deploy.exported import check_classes
    file, runtime = args.checkpoint, getattr(args, 'runtime', None)
    if getattr(args, 'backbone', None):
        raise UserError(f'--backbone {args.backbone} takes its place in the model of a checkpoint, and {file} is an '
                        'exported file: give the checkpoint that both were exported from.')
    if getattr(args, 'autocast', None):
        raise UserError(f'--amp {args.autocast}: {file} has the precision that it was exported with; export it with '
                        f'--precision {args.autocast} instead.')
    if getattr(args, 'tta', False) and type_name(cfg.get('tta_model')) == 'MaskTTAModel':
        raise UserError(f'--tta: test-time augmentation with masks cannot use {file}, a whole exported detector: leave '
                        'the flag out, or export the backbone with --part backbone and give it as --backbone.')
    exported = _open_for_test(args, file)
    if needs_classes(cfg) and exported.metadata['classes']:
        cfg.model.num_classes = len(exported.metadata['classes'])
    number_folders(cfg, exported.metadata['classes'])
    check_classes(exported, cfg.model)  # before the data set is read, whose error would name another reason
    if type_name(cfg.model) != 'ExportedModel':
        cfg.model.update(type='cvt_dense.ExportedModel', replaces=cfg.model.type, file=file, runtime=runtime)


def _set_backbone(cfg: Config, args: argparse.Namespace) -> None:
    from ..deploy.exported import check_normalisation
    file, runtime = args.backbone, getattr(args, 'runtime', None)
    exported = _open_for_test(args, file)
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    network = MODELS.build(cfg.model)
    check_normalisation(exported, network.data_preprocessor)
    wanted = getattr(network.backbone, 'out_channels', None)
    given = tuple(exported.metadata['out_channels'])
    if exported.metadata['part'] == 'backbone' and wanted is not None and tuple(wanted) != given:
        raise UserError(f"--backbone {file} gives maps of {given} channels, model.backbone of {tuple(wanted)}: use the "
                        f"config that the file was exported with ({exported.metadata['config']}).")
    cfg.model.backbone = ConfigDict(type='cvt_dense.ExportedBackbone', file=file, runtime=runtime)


def _open_for_test(args: argparse.Namespace, file: str) -> Exported:
    for flag in ('fuse', 'compile'):
        if getattr(args, flag, False):
            raise UserError(f'--{flag}: {file} was fused when it was exported; leave the flag out.')
    exported = open_exported(file, getattr(args, 'runtime', None))
    print_log(f"{file}: {exported.metadata['precision']}, exported from {exported.metadata['config']}, run by "
              f'{exported.runtime} on the CPU', logger='current')
    return exported
