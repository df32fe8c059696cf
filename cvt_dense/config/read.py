"""Read a config file or a published model, with overrides and another data root."""
import difflib
import inspect
import os
import re
from pathlib import Path
from typing import Any

from mmengine import fileio
from mmengine.config import Config
from mmengine.fileio.backends import backends

from ..errors import UserError, refusals_of
from ..published import CONFIG, MM_CONFIG, SCOPES, fetch, is_published, read_published
from .walk import dicts, type_name, values, walk

# Keys that MMEngine and this package read from a config besides the arguments of MMEngine's Runner.
READ_FROM_CONFIG = {
    'activation_checkpointing', 'backend_args', 'compile', 'custom_imports', 'efficient_conv_bn_eval',
    'find_unused_parameters', 'model_wrapper_cfg', 'runner_type', 'strategy', 'sync_bn', 'tta_model', 'tta_pipeline'}
# Keys of the dicts, by patterns of their paths, in which others have no effect and are no error.
READ_BELOW = {
    'auto_scale_lr': 'enable base_batch_size', '(val|test)_cfg': 'type fp16',
    'env_cfg': 'cudnn_benchmark dist_cfg mp_cfg resource_limit',
    r'(optim_wrapper\.)?paramwise_cfg': (  # without a constructor
        'bias_decay_mult bias_lr_mult bypass_duplicate custom_keys dcn_offset_lr_mult dwconv_decay_mult '
        'flat_decay_mult norm_decay_mult')}
# Those of dicts that a class of the user's own may read too: there a key is wrong that is nearly one of them.
READ_NEARLY = {
    r'.*\.filter_cfg': 'filter_empty_gt min_size bbox_min_size',
    r'model\.(.*\.)?(train|test)_cfg(\..*)?': (
        'allowed_border assigner crop_size filter_low_score filter_thr iou_thr mask_size mask_thr mask_thr_binary '
        'max_num max_per_img max_per_image min_bbox_size mode nms nms_post nms_pre nms_thr num_points pos_weight '
        'rcnn rpn rpn_proposal sampler score_thr stride update_thr')}
# Settings of transforms that must be tuples; a JSON file and an option in brackets have lists.
SIZES = {'crop_size', 'img_scale', 'scale', 'scales', 'size'}
VARIABLE = 'a variable of the file, which has already computed other settings from it: edit a copy, or set those'


def read_config(file: str, options: dict[str, Any] | None = None, data_root: str | None = None) -> Config:
    """Return the config in a file, with some settings overridden.

    Args:
        file: config file, or a published model: a folder, ``cvt_dense://NAME``, or ``hf://OWNER/NAME``.
        options: settings to override, by their dotted names.
        data_root: folder that takes the place of the config's data root; None keeps it.

    Raises:
        UserError: the file, or a file of class names, does not exist or is none of this kind; a setting or an option
            has no effect; or ``data_root`` is no folder.
    """
    if is_published(file):
        cfg = read_published(fetch(file))
    elif os.path.isfile(file) and os.path.basename(file) in (CONFIG, MM_CONFIG):  # its weights may be elsewhere
        cfg = read_published(Path(file))
    elif os.path.isfile(file):
        try:
            cfg = Config.fromfile(file)
        except UserError:
            raise
        except Exception as error:  # of its code, and of the files that it inherits
            raise UserError(f'{file!r} cannot be read as a config: {type(error).__name__}: {error}') from error
    else:
        raise UserError(f'config file {file!r} does not exist. Give a file of configs/ or one of your own.')
    if not cfg.get('model'):
        raise UserError(f'{file!r} has no model. Give the config of a whole run.')
    kind = cfg.model.get('type')
    package = getattr(kind, '__module__', '').split('.')[0]
    if cfg.get('default_scope') is None and package in SCOPES:  # pure Python: MMEngine's classes build others by name
        cfg.default_scope = package
    if cfg.get('data_preprocessor'):  # as MMEngine's Runner does
        cfg.model.setdefault('data_preprocessor', cfg.data_preprocessor)
    merge_options(cfg, options or {})
    if data_root:
        if not os.path.isdir(data_root):
            raise UserError(f'--data-root {data_root!r} is not a folder. Give the folder of the data set.')
        redirect_data_root(cfg, data_root)
    read_class_names(cfg)
    for node in dicts([cfg[key] for key in cfg if key.endswith(('_dataloader', '_pipeline'))]):
        for key in SIZES & node.keys():
            node[key] = _with_tuples(node[key], key)
    if cfg.get('backend_args'):
        set_file_backend(cfg, cfg.backend_args)
    return cfg


def merge_options(cfg: Config, options: dict[str, Any]) -> None:
    """Merge options into ``cfg`` as ``Config.merge_from_dict`` does.

    Raises:
        UserError: an option, or a setting of the file, has no effect, because its name is misspelt, or because it is a
            variable from which the config file has already computed other settings.
    """
    settings = cfg.to_dict()
    for option, value in options.items():
        _check_option(settings, option)
        with refusals_of(f'--cfg-options {option}'):
            cfg.merge_from_dict({option: value})
    constructs = (cfg.get('optim_wrapper') or {}).get('constructor')
    for path, node in walk(cfg._cfg_dict):
        for pattern, known in (READ_BELOW | READ_NEARLY).items():
            own = type_name(node) not in ('', 'ValLoop', 'TestLoop') or 'paramwise' in path and constructs
            for key in sorted(node.keys() - {*known.split()}) if re.fullmatch(pattern, path) and not own else ():
                near = difflib.get_close_matches(key, known.split(), 1, 0.7)
                if near or pattern in READ_BELOW:
                    raise UserError(f'nothing reads {path}.{key}. Did you mean {" or ".join(near or known.split())}?')


def read_names() -> set[str]:
    """Return the names of the settings that something reads from a config."""
    from mmengine.runner import Runner  # imports PyTorch
    return READ_FROM_CONFIG | set(inspect.signature(Runner.__init__).parameters) - {'self', 'cfg', 'data_preprocessor'}


def _check_option(cfg: dict[str, Any], option: str) -> None:
    top, *rest = option.split('.')
    read = read_names()
    if top not in read:
        settings = values({key: value for key, value in cfg.items() if key in read})
        near = difflib.get_close_matches(top, read, 1, 0.7) or [
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


def set_file_backend(cfg: Config, backend_args: dict[str, Any]) -> None:
    """Make every data set of ``cfg`` read images and label maps through one of MMEngine's file backends.

    Annotation files too, of MMDetection and MMSegmentation, unless the backend only looks up keys, as LMDB does.

    Args:
        cfg: changed in place, except where a data set or transform has ``backend_args`` of its own.
        backend_args: arguments of ``mmengine.fileio.get_file_backend``.
    """
    backend = backends.get(backend_args.get('backend', 'local'))  # MMEngine reports one that it does not have
    keys = ('data_prefix', 'ann_file') if hasattr(backend, 'get_local_path') else ()
    parts = [cfg[key] for key in cfg if key.endswith(('_dataloader', '_evaluator', '_pipeline'))]
    for node in dicts(parts):
        reads = type_name(node) in ('LoadImageFromFile', 'LoadAnnotations', 'ImageDataset')
        if (reads or any(key in node for key in keys)) and node.get('backend_args') is None:
            node['backend_args'] = backend_args


def check_exists(checkpoint: str) -> None:
    """Raise ``UserError`` if a checkpoint does not exist; URLs are not checked."""
    if '://' not in checkpoint and not os.path.exists(checkpoint):
        raise UserError(f'checkpoint {checkpoint!r} does not exist. Give the path or URL of a checkpoint.')
