"""Published models: open a folder, a model of this package or one of the Hugging Face hub, and write a folder.

A published model is a folder of ``mm_config.json``, the parts of the config that testing needs, and
``model.safetensors``, the weights and the class names. Both are data, which is opened without trust: a config in Python
could run any code when it is opened. ``mm_config.py`` is for MMDetection, MMSegmentation and what is built on them;
it holds literals, which this package reads without running the file.
"""
import ast
import copy
import json
import pprint
import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.logging import print_log
from mmengine.registry import Registry

from .atomic import atomic_path, write_atomically
from .config import SCOPES, datasets_of, dicts, override, read_file, values, walk
from .errors import CheckpointError, UserError

SCHEME = 'cvt_dense://'
PACKAGED = Path(__file__).parent / 'weights' / 'files'  # a folder for each model of this package
HUB_FILES = ('model.safetensors', 'pytorch_model.bin')
CONFIG, WEIGHTS, MM_CONFIG = 'mm_config.json', 'model.safetensors', 'mm_config.py'
KEPT = ('default_scope', 'model', 'test_dataloader', 'test_evaluator', 'test_cfg', 'tta_model', 'tta_pipeline')
VISUALIZERS = dict(mmdet='DetLocalVisualizer', mmseg='SegLocalVisualizer')
# Another program that opens mm_config.json through MMEngine would build a model from tuples that are dicts. MMEngine
# imports this before, finds no such module, and shows the text.
OPENED_ELSEWHERE = dict(imports=['only cvt_dense opens mm_config.json: give mm_config.py, which publish.py writes'])
LARGEST = 5_000_000  # bytes of mm_config.json; the largest config of this project has 30,000
# Types that evaluate a text or unpickle a file, and the ends of texts that name what MMEngine and mmseg unpickle.
UNSAFE_TYPES = 'CameraMotionCompensation', 'OpenImagesChallengeDataset'
UNSAFE_ENDS = 'pickle', 'pkl', 'yaml', 'yml'


def packaged_folder(url: str) -> Path:
    """Return the folder of a published model of this package, whose weights are float16.

    Args:
        url: ``cvt_dense://cvt-nano``, a classifier, or ``cvt_dense://cvt-nano-coco``, a detector, which also has the
            name of its predecessor, ``cvt_dense://cvt-nano-voc``.

    Raises:
        CheckpointError: there is no such model.
    """
    if not PACKAGED.is_dir():
        raise CheckpointError(f'{url}: {PACKAGED} is inside an archive: unpack it, or install this package with pip.')
    names = sorted(path.name for path in PACKAGED.iterdir())
    name = url.removeprefix(SCHEME)
    if name == 'cvt-nano-voc':
        name = 'cvt-nano-coco'
        print_log(f'{url} has been replaced by {SCHEME}{name}, whose classes are those of COCO.', logger='current')
    if name not in names:
        raise CheckpointError(f'{url}: the models in this package are {", ".join(names)}.')
    return PACKAGED / name


def from_hub(source: str) -> Path:
    """Return ``hf://OWNER/REPOSITORY[/FILE][@REVISION]`` from the hub, or from ``huggingface_hub``'s cache.

    Raises:
        CheckpointError: the name is malformed, or the file is neither cached nor reachable.
    """
    import huggingface_hub
    match = re.fullmatch(r'hf://([^/@]+/[^/@]+)(?:/([^@]+))?(?:@(.+))?', source)
    if not match:
        raise CheckpointError(f'{source!r} is not of the form hf://OWNER/REPOSITORY[/FILE][@REVISION].')
    repository, file, revision = match.groups()
    candidates = (file, ) if file else HUB_FILES
    for cached in (True, False):
        for candidate in candidates:
            try:
                if not cached and not huggingface_hub.constants.HF_HUB_OFFLINE:  # or it would be tried for a minute
                    huggingface_hub.get_session().head(huggingface_hub.constants.ENDPOINT, timeout=5)
                path = Path(huggingface_hub.hf_hub_download(
                    repository, candidate, revision=revision, local_files_only=cached))
                with suppress(OSError, ValueError):  # the config names the classes
                    huggingface_hub.hf_hub_download(repository, 'config.json', revision=revision,
                                                    local_files_only=cached)
                return path
            except Exception as error:  # of the hub, and of its client without a network
                reason = ' '.join(str(error).split())
    raise CheckpointError(f'{source} is neither in the cache of huggingface_hub '
                          f'({huggingface_hub.constants.HF_HUB_CACHE}) nor can it be downloaded: {reason} Offline, run '
                          f'"hf download {repository}" before, or give a file.')


def is_published(source: str | Path) -> bool:
    """Return whether ``source`` names a published model, as :func:`fetch` takes it."""
    return str(source).startswith(('hf://', 'cvt_dense://')) or (Path(source) / CONFIG).is_file()


def fetch(source: str | Path) -> Path:
    """Return the folder of a published model; one on the Hugging Face hub is downloaded into its cache.

    Args:
        source: folder, ``cvt_dense://NAME`` for one of this package, or ``hf://OWNER/NAME[@REVISION]``.

    Raises:
        UserError: the files are not there, cannot be downloaded, or are links to files outside of the folder.
    """
    if str(source).startswith('hf://'):
        name, at, revision = str(source).partition('@')
        return [from_hub(f'{name}/{file}{at}{revision}') for file in (CONFIG, WEIGHTS)][0].parent
    if str(source).startswith('cvt_dense://'):
        return packaged_folder(str(source))
    from huggingface_hub.constants import HF_HUB_CACHE
    folder = Path(source)
    allowed = [folder.resolve(), Path(HF_HUB_CACHE).resolve()]
    if folder.resolve().parent.name == 'snapshots':  # in a cache of huggingface_hub, whose snapshots are links
        allowed.append(folder.resolve().parents[1] / 'blobs')
    for file in (folder / CONFIG, folder / WEIGHTS):
        if not file.is_file() or not any(file.resolve().is_relative_to(root) for root in allowed):
            raise UserError(f'{file} is not a file of this folder. A published model has {CONFIG} and {WEIGHTS}.')
    return folder


def read_config(source: str, options: dict[str, Any] | None = None, data_root: str | None = None) -> Config:
    """Return the config in a file or of a published model, with some settings overridden.

    Args:
        source: config file, or a published model: a folder, ``cvt_dense://NAME``, or ``hf://OWNER/NAME``.
        options: settings to override, by their dotted names.
        data_root: folder that takes the place of the config's data root; None keeps it.

    Raises:
        UserError: there is no such file or model, or :func:`cvt_dense.config.override` refuses an argument.
    """
    if is_published(source):
        cfg = read_published(fetch(source))
    elif Path(source).is_file() and Path(source).name in (CONFIG, MM_CONFIG):  # its weights may be elsewhere
        cfg = read_published(Path(source))
    else:
        cfg = read_file(source)
    return override(cfg, options, data_root)


def read_published(source: Path) -> Config:
    """Return the config of a published model, after a check that building it runs no other code than mm's types.

    Args:
        source: the folder, or one of its two configs without the folder; of ``mm_config.py`` :data:`KEPT` is read.

    Raises:
        UserError: the file is too large, or neither JSON nor literals; a type is not registered by MMEngine, MMCV,
            MMDetection, MMSegmentation or this package; or a text is a path out of the current folder or could run
            code.
    """
    path = source / CONFIG if source.is_dir() else source
    try:
        read = path.read_text() if path.stat().st_size <= LARGEST else 'null'
        if path.name == MM_CONFIG:
            settings = {node.targets[0].id: ast.literal_eval(node.value) for node in ast.parse(read).body}
            content = {key: settings[key] for key in KEPT if key in settings}
        else:
            content = json.loads(read, object_hook=_decode)
    except (ValueError, SyntaxError, AttributeError, RecursionError, MemoryError) as error:
        raise UserError(f'{path} holds more than data, or is damaged: {error}.') from error
    if isinstance(content, dict) and content.get('custom_imports') == OPENED_ELSEWHERE:
        del content['custom_imports']
    scope = content.get('default_scope', 'mmengine') if isinstance(content, dict) else None
    if scope not in SCOPES or set(content) - set(KEPT) or 'model' not in content:
        raise UserError(f'{path} must hold the settings {", ".join(KEPT)}, and no others, in at most {LARGEST:,} '
                        f'bytes, with a default_scope of {", ".join(SCOPES)}.')
    registered = {name.rpartition('.')[2] for name in registered_types(scope)} - {*UNSAFE_TYPES}
    for setting, node in walk(content):
        if 'type' not in node:
            continue
        prefix, _, name = str(node['type']).rpartition('.')
        if prefix not in ('', *SCOPES) or name not in registered:
            raise UserError(f'{path}: {setting}.type={node["type"]!r} is no registered type of {", ".join(SCOPES)}, '
                            'or runs code.')
    for setting, text in values(content):
        if not isinstance(text, str) or 'classes.' in setting:  # OpenImages has names such as '/m/01g317'
            continue
        if Path(text).is_absolute() or '..' in Path(text).parts:
            raise UserError(f'{path}: {setting}={text!r} is a path out of the current folder.')
        if '://' in text or text.lower().endswith(UNSAFE_ENDS):
            raise UserError(f'{path}: {setting}={text!r} is a URL, a pickle or a YAML file, which may not be named.')
    return Config(content, read, str(source))


def registered_types(scope: str) -> dict[str, Any]:
    """Return the types in the registries of MMEngine, of this package and of the default scope, by their names."""
    packages = dict.fromkeys(('mmengine', 'cvt_dense', scope))
    registries = [registry for package in packages for registry in vars(import_module(f'{package}.registry')).values()
                  if isinstance(registry, Registry)]
    for registry in registries:  # an import registers types in the registries of other packages, too
        registry.import_from_location()
    operators = import_module('mmcv.ops')  # of nms and of RoI layers, which are in no registry
    types = {name: getattr(operators, name) for name in operators.__all__}
    for registry in registries:
        prefix = 'cvt_dense.' if registry.scope == 'cvt_dense' else ''
        types |= {prefix + name: kind for name, kind in registry.module_dict.items()}
    return types


def _decode(value: dict[str, Any]) -> Any:
    return tuple(value['__tuple__']) if set(value) == {'__tuple__'} else value


def publish(cfg: Config, tensors: dict[str, Any], names: dict[str, Any], folder: Path) -> None:
    """Write ``mm_config.json``, ``model.safetensors`` and, for a detector or segmentor, ``mm_config.py``.

    Args:
        cfg: complete config; pretrained weights are left out.
        tensors: the weights.
        names: ``classes`` and ``palette`` of the model, as far as they are known.
        folder: folder to write to.

    Raises:
        UserError: the config cannot be opened elsewhere: it has a path of this machine or a type that is not
            registered.
    """
    import safetensors.torch

    content = Config({key: copy.deepcopy(cfg[key]) for key in KEPT if key in cfg})
    for node in dicts(content._cfg_dict):
        node.pop('init_cfg', None)
    types = {kind: name for name, kind in registered_types(content.get('default_scope') or 'mmengine').items()}
    write_atomically(folder / CONFIG, json.dumps(dict(
        custom_imports=OPENED_ELSEWHERE, **_encode(content._cfg_dict, types)), indent=1))
    _write_for_mm(read_published(folder), names, folder / MM_CONFIG)
    # RTMDet's levels share convolutions; safetensors refuses tensors that share memory.
    tensors = {key: value.contiguous().clone() for key, value in tensors.items()}
    with atomic_path(folder / WEIGHTS) as partial:
        safetensors.torch.save_file(tensors, partial, metadata=dict(format='pt', dataset_meta=json.dumps(names)))
        partial.chmod(0o644)  # safetensors lets no one else read it


def _write_for_mm(cfg: Config, names: dict[str, Any], path: Path) -> None:
    """Write a config of literals with what the inferencers of MMDetection and MMSegmentation, and SAHI, read from it.

    Args:
        cfg: published config; changed.
        names: see :func:`publish`.
        path: file to write; none is written for a classifier, which neither package opens.
    """
    if cfg.get('default_scope') not in VISUALIZERS:
        return
    visualizer = dict(type=VISUALIZERS[cfg.default_scope], name='visualizer')
    dataset = datasets_of(cfg, 'test')[0]  # inferencers look for a pipeline, which wrappers lack
    cfg.test_dataloader.dataset = dict(dataset, metainfo=dict(dataset.get('metainfo') or {}, **names))
    # MMEngine reads no class names from safetensors, and inferencers read the weights before they build the network.
    imports = dict(imports=['cvt_dense.weights'], allow_failed_imports=False)
    cfg.update(test_pipeline=dataset['pipeline'], visualizer=visualizer, custom_imports=imports)
    if cfg.default_scope == 'mmdet':
        # SAHI finds out here whether there are masks. MMEngine's Runner takes the three settings together or none.
        load = dict(type='LoadAnnotations', with_mask="'segm'" in str(cfg.get('test_evaluator')))
        cfg.update(train_dataloader=dict(dataset=dict(type=dataset['type'], pipeline=[load])),
                   train_cfg=dict(max_epochs=0), optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.)))
    write_atomically(path, ''.join(f'{key} = {pprint.pformat(value, width=120, sort_dicts=False)}\n'
                                   for key, value in cfg.to_dict().items()))


def _encode(value: Any, names: dict[Any, str]) -> Any:
    """Return ``value`` as JSON has it.

    Tuples become dicts: transforms of mm distinguish them from lists. Types of pure-Python configs become names.

    Args:
        value: any part of a config.
        names: names of the registered types.
    """
    if isinstance(value, tuple):
        return dict(__tuple__=[_encode(child, names) for child in value])
    if isinstance(value, dict):
        return {key: _encode(child, names) for key, child in value.items()}
    if callable(value):
        return names.get(value) or f'{value.__module__}.{value.__qualname__}'  # which read_published refuses
    return [_encode(child, names) for child in value] if isinstance(value, list) else value
