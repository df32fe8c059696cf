"""Read a config file, override its settings, walk through it, and check it before anything is built.

Types in a config are texts or, in pure-Python configs, classes.
"""
import difflib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mmengine import fileio
from mmengine.config import Config
from mmengine.registry import DATASETS, Registry

from .console import prints_to_log
from .errors import UserError, refusals_of

SCOPES = ('mmengine', 'mmcv', 'mmdet', 'mmseg', 'cvt_dense')
# Keys that MMEngine's Runner takes, which takes seconds to import, and others that MMEngine and this package read.
READ_FROM_CONFIG = set(
    'model work_dir train_dataloader val_dataloader test_dataloader train_cfg val_cfg test_cfg auto_scale_lr '
    'optim_wrapper param_scheduler val_evaluator test_evaluator default_hooks custom_hooks load_from resume launcher '
    'env_cfg log_processor log_level visualizer default_scope randomness experiment_name '
    'activation_checkpointing compile custom_imports efficient_conv_bn_eval find_unused_parameters '
    'model_wrapper_cfg runner_type strategy sync_bn tta_model tta_pipeline'.split())
# Keys of the dicts, by patterns of their paths, in which others have no effect and are no error, or are one late.
READ_BELOW = {
    'auto_scale_lr': 'enable base_batch_size', '(val|test)_cfg': 'type fp16',
    'train_cfg': 'type by_epoch dynamic_intervals fast_forward_on_resume max_epochs max_iters val_begin val_interval',
    'env_cfg': 'cudnn_benchmark dist_cfg mp_cfg resource_limit',
    r'env_cfg\.dist_cfg': 'backend device_id init_backend init_method pg_options port timeout',
    r'(tta_)?model\..+\.nms': (
        'type class_agnostic iou_threshold max_num method min_score offset score_threshold sigma split_thr'),
    r'model\..+\.sampler': 'type add_gt_as_proposals loss_key neg_pos_ub num pos_fraction',
    r'(.*\.)?init_cfg(\.\d+)?': 'type checkpoint in_channels map_location override prefix weights',
    r'optim_wrapper\.clip_grad': 'type clip_value error_if_nonfinite foreach max_norm norm_type',
    r'(optim_wrapper\.)?paramwise_cfg': (  # without a constructor
        'bias_decay_mult bias_lr_mult bypass_duplicate custom_keys dcn_offset_lr_mult dwconv_decay_mult '
        'flat_decay_mult norm_decay_mult')}
# Types whose keys these are; a class of the user's own may read others.
TYPES = {'ValLoop', 'TestLoop', 'EpochBasedTrainLoop', 'IterBasedTrainLoop', 'nms', 'soft_nms', 'RandomSampler',
         'OHEMSampler', 'Pretrained', 'norm', 'value'}
# Those of dicts that a class of the user's own may read too: there a key is wrong that is nearly one of them, or that
# an option adds.
READ_NEARLY = {
    r'.*\.filter_cfg': 'filter_empty_gt min_size bbox_min_size',
    r'.*\.metainfo': 'base_classes classes novel_classes palette stuff_classes thing_classes',
    r'(.*\.)?custom_keys\..+': 'lr_mult decay_mult',
    r'model\.(.*\.)?(train|test)_cfg(\..*)?': (
        'allowed_border assigner conf_thr crop_size filter_low_score filter_thr ga_assigner ga_sampler '
        'initial_assigner iou_thr mask_size mask_thr mask_thr_binary max_num max_num_grid max_per_img max_per_image '
        'min_bbox_size mode nms nms_post nms_pre nms_thr num_points pos_weight rcnn reg_assigner rpn rpn_proposal '
        'sampler score_thr stride update_thr')}
# Settings of transforms that must be tuples; a JSON file and an option in brackets have lists.
SIZES = {'crop_size', 'img_scale', 'scale', 'scales', 'size'}
VARIABLE = 'a variable of the file, which has already computed other settings from it: edit a copy, or set those'
ASSIGNED = re.compile(r'^(\w+(?:, *\w+)*) = ', re.M)  # the names of a line of a config file


# -- reading --------------------------------------------------------------------------------------


def read_file(file: str) -> Config:
    """Return the config in a file as it is.

    Raises:
        UserError: the file does not exist, or is no config of a whole run.
    """
    if not os.path.isfile(file):
        raise UserError(f'config file {file!r} does not exist. Give a file of configs/ or one of your own.')
    try:
        cfg = Config.fromfile(file)
    except UserError:
        raise
    except Exception as error:  # of its code, and of the files that it inherits
        raise UserError(f'{file!r} cannot be read as a config: {type(error).__name__}: {error}') from error
    if not cfg.get('model'):
        raise UserError(f'{file!r} has no model. Give the config of a whole run.')
    kind = cfg.model.get('type')
    package = getattr(kind, '__module__', '').split('.')[0]
    if cfg.get('default_scope') is None and package in SCOPES:  # pure Python: MMEngine's classes build others by name
        cfg.default_scope = package
    if cfg.get('data_preprocessor'):  # as MMEngine's Runner does
        cfg.model.setdefault('data_preprocessor', cfg.data_preprocessor)
    return cfg


def override(cfg: Config, options: dict[str, Any] | None = None, data_root: str | None = None) -> Config:
    """Override settings of a config, which is changed in place and returned.

    Args:
        cfg: the config.
        options: settings to override, by their dotted names.
        data_root: folder that takes the place of the config's data root; None keeps it.

    Raises:
        UserError: a setting or an option has no effect; a file of class names does not exist; or ``data_root`` is no
            folder.
    """
    merge_options(cfg, options or {})
    if data_root:
        if not os.path.isdir(data_root):
            raise UserError(f'--data-root {data_root!r} is not a folder. Give the folder of the data set.')
        redirect_data_root(cfg, data_root)
    read_class_names(cfg)
    for node in dicts([cfg[key] for key in cfg if key.endswith(('_dataloader', '_pipeline'))]):
        for key in SIZES & node.keys():
            node[key] = _with_tuples(node[key], key)
    return cfg


def merge_options(cfg: Config, options: dict[str, Any]) -> None:
    """Merge options into ``cfg`` as ``Config.merge_from_dict`` does.

    Raises:
        UserError: an option, or a setting of the file, has no effect, because its name is misspelt, or because it is a
            variable from which the config file has already computed other settings.
    """
    settings = cfg.to_dict()
    added = options.keys() - dict(values(settings)).keys()
    for option, value in options.items():
        _check_option(settings, option)
        with refusals_of(f'--cfg-options {option}'):
            cfg.merge_from_dict({option: value})
    constructs = (cfg.get('optim_wrapper') or {}).get('constructor')
    for path, node in walk(cfg._cfg_dict):
        for pattern, known in (READ_BELOW | READ_NEARLY).items():
            own = 'type' in node and (type_name(node) not in TYPES or 'type' not in known) or (
                path.endswith('paramwise_cfg') and constructs)
            for key in sorted(node.keys() - {*known.split()}) if re.fullmatch(pattern, path) and not own else ():
                near = difflib.get_close_matches(key, known.split(), 1, 0.7)
                if near or pattern in READ_BELOW or f'{path}.{key}' in added:
                    raise UserError(f'nothing reads {path}.{key}. Did you mean {" or ".join(near or known.split())}?')


def _check_option(cfg: dict[str, Any], option: str) -> None:
    top, *rest = option.split('.')
    if top not in READ_FROM_CONFIG:
        settings = values({key: value for key, value in cfg.items() if key in READ_FROM_CONFIG})
        near = difflib.get_close_matches(top, READ_FROM_CONFIG, 1, 0.7) or [
            path for path, _ in settings if path.split('.')[-1] == top][:5]
        meant = ' or '.join('.'.join([name, *rest]) for name in near)
        text = f'{top!r} is {VARIABLE}' if top in cfg else f'nothing reads {top!r}'
        raise UserError(f'--cfg-options {option}: {text}.{f" Did you mean {meant}?" * bool(near)}')


def _with_tuples(value: Any, key: str = '') -> Any:
    """Return a size or a list of sizes, each a tuple; the numbers of ``scales`` are sizes of their own."""
    if not isinstance(value, list):
        return value
    is_size = key != 'scales' and all(isinstance(side, (int, float)) for side in value)
    return tuple(value) if is_size else [_with_tuples(child) for child in value]


def redirect_data_root(cfg: Config, data_root: str) -> str:
    """Make every data set and evaluator of ``cfg`` read from ``data_root``, at any depth of wrappers.

    Each ``data_root`` in ``cfg`` is replaced, and so is every other string of a ``*_dataloader`` or
    ``*_evaluator`` that starts with one of the old ones (such as an evaluator's ``ann_file``). Of several roots, such
    as 'd/train' and 'd/valid', the folder of all of them is replaced, 'd'; of 'd' and 'e' the current folder.

    Returns:
        The folder that was replaced.

    Raises:
        UserError: ``cfg`` names no data root, or several, some of them absolute, without a folder of all of them.
    """
    parts = [cfg[key] for key in cfg if key.endswith(('_dataloader', '_evaluator')) and cfg[key] is not None]
    top = (cfg.get('data_root') or '').rstrip('/')  # a variable of the file; a data set may have another root
    old = sorted({node['data_root'].rstrip('/') for node in dicts(parts) if node.get('data_root')} or {top} - {''})
    common = os.path.dirname(os.path.commonprefix([f'{root}/' for root in old]))
    moved = {root: data_root.rstrip('/') for root in (common, top) if root.strip('/')}
    if not common.strip('/'):
        if not old or any(map(os.path.isabs, old)):
            raise UserError(f'{cfg.filename!r} has the data roots {old}, which are in no folder that {data_root!r} '
                            'could replace; give the paths with --cfg-options.')
        moved |= {root: os.path.join(data_root, root) for root in old}  # the current folder is replaced

    def redirect(value: Any, names: bool = False) -> Any:
        """Return ``value`` with its paths redirected. With ``names``, the strings of lists are names of classes."""
        if isinstance(value, dict):
            for key, child in value.items():
                if key != 'type':  # of a pure-Python config: once it is set, MMEngine cannot dump it
                    value[key] = redirect(child, names or key in ('metainfo', 'classes'))
            return value
        if isinstance(value, (list, tuple)):
            return type(value)(child if names and isinstance(child, str) else redirect(child, names) for child in value)
        if isinstance(value, str):
            for prefix, target in moved.items():
                if f'{value}/'.startswith(f'{prefix}/'):
                    return target + value[len(prefix):]
        return value

    redirect(parts)
    if cfg.get('data_root'):
        cfg.data_root = redirect(cfg.data_root)
    return common or '.'


def read_class_names(cfg: Config) -> None:
    """Put the class names into ``cfg`` where a data set names a file of them, so that the config can go elsewhere.

    Raises:
        UserError: there is no such file.
    """
    loaders = [cfg[key] for key in cfg if key.endswith('_dataloader')]
    for node in dicts(loaders):
        file = (node.get('metainfo') or {}).get('classes')
        if isinstance(file, str):
            if not os.path.isfile(file):
                raise UserError(f'metainfo.classes={file!r} is no file; give names, or a file with one a line.')
            lines = fileio.list_from_file(file, encoding='utf-8-sig')  # without a byte order mark
            node['metainfo']['classes'] = [line.strip() for line in lines if line.strip()]


# -- walking --------------------------------------------------------------------------------------


def type_name(node: Any) -> str:
    """Return the bare name of a dict's ``type``: 'CvT' for 'cvt_dense.CvT' and for the class; '' without a type."""
    named = (node.get('type') if isinstance(node, dict) else None) or ''
    return named.split('.')[-1] if isinstance(named, str) else getattr(named, '__name__', type(named).__name__)


def values(node: Any, path: str = '') -> Iterator[tuple[str, Any]]:
    """Yield the path, as --cfg-options writes it, and the value of every entry at any depth of dicts and lists."""
    if isinstance(node, (dict, list, tuple)):
        children = node.items() if isinstance(node, dict) else enumerate(node)
        for key, child in list(children):
            child_path = f'{path}.{key}' if path else str(key)
            yield child_path, child
            yield from values(child, child_path)


def walk(node: Any, path: str = '') -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the dict of every dict at any depth of dicts and lists, first ``node`` itself."""
    yield from ((key, child) for key, child in [(path, node), *values(node, path)] if isinstance(child, dict))


def dicts(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every dict at any depth of dicts and lists, first ``node`` itself."""
    return (child for _, child in walk(node))


def leaf_datasets(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the config of each data set inside any wrappers."""
    inner = node.get('datasets') or ([node['dataset']] if 'dataset' in node else [])
    for child in inner:
        yield from leaf_datasets(child)
    if not inner:
        yield node


def datasets_of(cfg: Config, stage: str) -> list[dict[str, Any]]:
    """Return the configs of a stage's data sets inside any wrappers; without such a loader, an empty list.

    Args:
        cfg: whole config.
        stage: 'train', 'val' or 'test'.
    """
    dataset = (cfg.get(f'{stage}_dataloader') or {}).get('dataset')
    return list(leaf_datasets(dataset)) if dataset else []


def class_of(node: dict[str, Any], cfg: Config, registry: Registry = DATASETS) -> type | None:
    """Return the class that ``node['type']`` names in the scope of ``cfg``, or None if ``registry`` lacks it."""
    if not isinstance(node['type'], str):  # a pure-Python config
        return node['type']
    with prints_to_log(), registry.switch_scope_and_registry(cfg.get('default_scope')) as scoped:
        return scoped.get(node['type'])  # imports its package, which prints then


def metainfo(dataset: dict[str, Any], cfg: Config, key: str) -> Any:
    """Return an entry of a data set's ``metainfo``: the config's, or that of the data set's class.

    Args:
        dataset: config of the data set.
        cfg: whole config, whose scope finds the class.
        key: such as 'classes'.
    """
    value = (dataset.get('metainfo') or {}).get(key)
    return (getattr(class_of(dataset, cfg), 'METAINFO', None) or {}).get(key) if value is None else value


def is_remote(node: dict[str, Any]) -> bool:
    """Return whether a data set or transform reads through another file backend than that of local files."""
    return bool(node.get('backend_args')) and node['backend_args'].get('backend') != 'local'


# -- checks, which import no PyTorch --------------------------------------------------------------


def check_exists(checkpoint: str) -> None:
    """Raise ``UserError`` if a checkpoint does not exist; URLs are not checked."""
    if '://' not in checkpoint and not os.path.exists(checkpoint):
        raise UserError(f'checkpoint {checkpoint!r} does not exist. Give the path or URL of a checkpoint.')


def check_paths(cfg: Config, stages: Sequence[str]) -> None:
    """Check that the folders and files of the data sets exist, unless they are not on the file system.

    Args:
        cfg: the whole config, with all settings of the run.
        stages: the data loaders that the run uses, of 'train', 'val' and 'test'.

    Raises:
        UserError: a file or folder is missing, or ``ann_file`` is a list.
    """
    for stage in stages:
        for dataset in datasets_of(cfg, stage):
            if not isinstance(dataset.get('ann_file') or '', str):
                raise UserError(f'{stage}_dataloader: ann_file={dataset["ann_file"]!r} is no path; join several files '
                                "with dataset=dict(type='ConcatDataset', datasets=[...]).")
            root, prefixes = dataset.get('data_root') or '', (dataset.get('data_prefix') or {}).values()
            paths = [os.path.join(root, path) for path in ('', *prefixes, dataset.get('ann_file'))
                     if isinstance(path, str) and os.path.join(root, path)]
            missing = [path for path in paths if not os.path.exists(path)]
            if missing and not any(map(is_remote, dicts(dataset))):
                raise UserError(f'{stage}_dataloader: {missing[0]!r} does not exist. Correct data_root, data_prefix or '
                                'ann_file, or give --data-root DIR.')


def check_variables(cfg: Config) -> None:
    """Check that a file sets no variable from which the one that it inherits has computed other settings already.

    Raises:
        UserError: it assigns such a variable, and does not use it itself.
    """
    own = Path(cfg.filename).read_text('utf-8') if str(cfg.filename).endswith('.py') else ''
    others = cfg.text.removesuffix(own)
    assigned, inherited = ({name for names in ASSIGNED.findall(text) for name in re.split(', *', names)}
                           for text in (own, others))
    for name in sorted(assigned & inherited - READ_FROM_CONFIG - {'_base_'}):
        line = re.search(rf'^{name} = .*(?<![\[({{,])$', own, re.M)
        repeated = line and line[0] in others.splitlines()
        if not repeated and len(re.findall(rf'\b{name}\b', own)) == 1:
            raise UserError(f'{cfg.filename}: the line {name!r} changes nothing, since it is {VARIABLE}.')
