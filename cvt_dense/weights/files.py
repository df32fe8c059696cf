"""Read weight files from any source and in any format, without running code in them."""
import hashlib
import os
import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import safetensors.torch
import torch
from filelock import FileLock
from mmengine.runner import CheckpointLoader
from torch import Tensor

from ..errors import CheckpointError, cause, listed
from ..published import HUB_FILES, SCHEME, from_hub, packaged_folder
from .class_names import add_class_names, dataset_meta
from .formats import StateDict, convert, recognise
from .pickles import load_pickle

UNSAFE_VARIABLE = 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'  # PyTorch's
WRAPPERS = re.compile(r'^(module\.|_orig_mod\.)+')  # DistributedDataParallel and torch.compile add these
OTHER_KEYS = ('state_dict', 'state_dict_ema'), ('model', 'model_ema')  # raw and averaged: timm's, DeiT's


def register_safe_loading() -> None:
    """Let MMEngine read every weight file of this process by :func:`load_weights_file`.

    Each tool of this project calls it before it reads a file. From then on no weight file runs code, for any caller
    and any model (``Runner.load_checkpoint``, ``resume``, ``load_from``, ``init_cfg``, ``init_detector``...), whether
    it is a path, ``cvt_dense://``, ``hf://`` or ``http(s)://``. Not covered are ``s3://`` and the names of MMEngine's
    own collections (``torchvision://``, ``open-mmlab://``...), whose URLs MMEngine chooses.

    Tools of other projects do not call it, and importing this package changes nothing that may run code there. Then
    :func:`load_weights_file` reads ``cvt_dense://``, ``hf://``, ``.safetensors`` files, of which MMEngine would lose
    the class names, and the ``init_cfg`` of the modules that this project registers; other paths and URLs in
    ``load_from``, ``load_checkpoint`` and the ``init_cfg`` of other modules follow MMEngine's rules, which may run a
    pickle's code. Such a tool can call this function itself.
    """
    CheckpointLoader.register_scheme(['', 'http://', 'https://'], load_from_cvt_dense, force=True)


def load_from_cvt_dense(filename: str, map_location: Any = None) -> dict[str, Any]:
    """Load a file for MMEngine's CheckpointLoader, which logs what follows ``load_from_`` in this name."""
    return load_weights_file(filename, map_location)


# MMEngine reads none of these, or without the class names, and takes each for a pattern of the source's beginning.
CheckpointLoader.register_scheme([SCHEME, 'hf://', r'.*\.safetensors$'], load_from_cvt_dense, force=True)


def load_weights_file(source: str, map_location: Any = 'cpu', rename: bool = True) -> dict[str, Any]:
    """Return the content of a checkpoint file from anywhere, as MMEngine's ``CheckpointLoader`` does.

    Args:
        source: a path as :func:`read_checkpoint` takes it, ``hf://OWNER/REPOSITORY[/FILE][@REVISION]``,
            ``cvt_dense://NAME`` for a model of this package, or ``http(s)://``.
        map_location: as for :func:`read_checkpoint`.
        rename: gives a CvT of the authors or of Hugging Face this project's names.

    Raises:
        CheckpointError: it cannot be reached or read.
    """
    path: str | Path = source
    if source.startswith(SCHEME):
        path = packaged_folder(source)
    elif source.startswith('hf://'):
        path = from_hub(source)
    elif source.startswith(('http://', 'https://')):
        path = _download(source)
    checkpoint = read_checkpoint(path, map_location)
    if not isinstance(checkpoint, Mapping):
        raise CheckpointError(f'{source} holds a {type(checkpoint).__name__}: a checkpoint is a dict.')
    if isinstance(checkpoint.get('meta'), dict):
        checkpoint['meta'].pop('config', None)  # Runner.resume would run this text as Python
    state_dict = checkpoint.get('state_dict', checkpoint)
    names = [WRAPPERS.sub('', str(name)) for name in state_dict] if isinstance(state_dict, Mapping) else []
    if rename and recognise(names) in ('microsoft', 'huggingface'):
        names = dataset_meta(checkpoint)
        return dict(state_dict=convert(select_weights(checkpoint, source=source), 'cvt_dense'),
                    meta=dict(dataset_meta=names) if names else {})
    if state_dict is checkpoint and all(isinstance(value, Tensor) for value in checkpoint.values()):
        return dict(state_dict=checkpoint, meta={})  # a .safetensors file; MMEngine's EMAHook reads 'state_dict'
    return checkpoint


def read_checkpoint(path: str | Path, map_location: Any = 'cpu') -> Any:
    """Return the content of a checkpoint file on this machine, without running code that it may hold.

    Tensors on the CPU are parts of the file until they are changed: replace the file, but do not write into it.

    Args:
        path: a ``.safetensors`` file, any other file that ``torch.save`` wrote, or a folder from the
            Hugging Face hub with one of :data:`HUB_FILES`.
        map_location: as for ``torch.load``; for a safetensors file only a device. None: where the tensors
            were, or the CPU on a machine without CUDA.

    Raises:
        CheckpointError: there is no such file, or none of :data:`HUB_FILES` in the folder; the file is damaged, is no
            checkpoint, or its pickle needs more than tensors, plain Python values and MMEngine's own records. The
            environment variable ``TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1`` (PyTorch's) opens such a pickle nevertheless.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        path = next((path / name for name in HUB_FILES if (path / name).is_file()), path / HUB_FILES[0])
    if not path.is_file():
        raise CheckpointError(f'The checkpoint {path} does not exist.')
    if map_location is None and not torch.cuda.is_available():
        map_location = 'cpu'
    about: dict[str, str] = {}
    try:
        if path.suffix.lower() == '.safetensors':
            device = str(map_location) if isinstance(map_location, (str, torch.device)) else 'cpu'
            with safetensors.safe_open(path, 'pt') as file:
                about = file.metadata() or {}
            content = safetensors.torch.load_file(path, device=device)
        elif os.environ.get(UNSAFE_VARIABLE, '').lower() in ('1', 'y', 'yes', 'true'):
            content = torch.load(path, map_location=map_location, weights_only=False)
        else:
            _check_size(path)
            content = load_pickle(path, map_location)
        return add_class_names(_averaged_first(content), about, path)
    except (MemoryError, torch.OutOfMemoryError, CheckpointError):
        raise
    except Exception as error:  # a damaged or hostile file, or one that is no checkpoint, may raise any exception
        raise CheckpointError(_why_unreadable(path, error)) from error


def _averaged_first(content: Any) -> Any:
    """Return a checkpoint's content with averaged and raw weights under MMEngine's keys, where others saved both."""
    for key, averaged in OTHER_KEYS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            others = {name: value for name, value in content.items() if name not in (key, averaged)}
            if not isinstance(content.get(averaged), Mapping):
                return dict(others, state_dict=content[key])
            raw = {f'module.{name.removeprefix("module.")}': value for name, value in content[key].items()}
            return dict(others, state_dict=content[averaged], ema_state_dict=raw)
    return content


def _check_size(path: Path) -> None:
    """Raise CheckpointError for an archive that unpacks to more than its size; ``torch.save`` does not compress."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > path.stat().st_size:
            raise CheckpointError(f'{path} is refused: its {path.stat().st_size:,} bytes unpack to {unpacked:,}, and '
                                  'checkpoints are not compressed.')


def _why_unreadable(path: Path, error: Exception) -> str:
    with path.open('rb') as file:
        start = file.read(16)
    named = f'{path} ({path.stat().st_size:,} bytes, starting with {start!r})'
    if isinstance(error, pickle.UnpicklingError) and start.startswith((b'PK', b'\x80')):  # an archive or a pickle
        wanted = re.search(r'GLOBAL ([\w.]+)', str(error))
        what = f'opening it would run {wanted[1]}' if wanted else 'it is no checkpoint, or holds more than weights'
        return (f'{named} is refused: {what}. If you trust whoever made the file, set the environment variable '
                f'{UNSAFE_VARIABLE}=1.')
    return (f'{named} cannot be read as a checkpoint of torch.save or safetensors ({cause(error)}). If '
            'it was downloaded, compare its size with that of the source.')


def select_weights(checkpoint: Any, weights: str = 'ema', source: str = 'the checkpoint') -> StateDict:
    """Return the state dict in a checkpoint file's content.

    Args:
        checkpoint: as read; a bare state dict, or one under the key ``state_dict``.
        weights: ``'ema'``: the averaged weights, where training averaged them (MMEngine stores them
            as ``state_dict``); ``'raw'``: those that the optimizer worked on.
        source: where it comes from, for the error.

    Raises:
        ValueError: ``weights`` is neither.
        CheckpointError: the file holds no tensors by name, or something else beside them.
    """
    if weights not in ('ema', 'raw'):
        raise ValueError(f"weights={weights!r}: allowed are 'ema' and 'raw'.")
    state_dict = checkpoint.get('state_dict', checkpoint) if isinstance(checkpoint, Mapping) else None
    if weights == 'raw' and isinstance(state_dict, Mapping) and isinstance(checkpoint.get('ema_state_dict'), Mapping):
        state_dict = {name.removeprefix('module.'): value for name, value in checkpoint['ema_state_dict'].items()
                      if str(name).startswith('module.')}
    if not isinstance(state_dict, Mapping) or not state_dict:
        raise CheckpointError(f'{source} holds no state dict (tensors by name).')
    others = [name for name, value in state_dict.items() if not isinstance(name, str) or not isinstance(value, Tensor)]
    if others:
        raise CheckpointError(f'{source} holds no state dict of tensors by name alone: its entries '
                              f'{listed(others, 3)} are others.')
    return {WRAPPERS.sub('', name): value for name, value in state_dict.items()}


def _download(url: str) -> Path:
    """Return the file in PyTorch's cache, under a name for its whole URL; it is downloaded once on each machine."""
    name = os.path.basename(urlparse(url).path)
    path = Path(torch.hub.get_dir(), 'checkpoints', f'{hashlib.sha256(url.encode()).hexdigest()[:16]}-{name}')
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f'{path}.lock'):  # several processes may need it
        if not path.exists():
            try:
                torch.hub.download_url_to_file(url, str(path), progress=os.isatty(2))
            except OSError as error:
                raise CheckpointError(f'{url} cannot be downloaded: {error}.') from error
    return path
