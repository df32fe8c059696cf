"""Reading weight files: any format, from anywhere, without running code that they may hold."""
import os
import pickle
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import huggingface_hub
import mmengine.dist
import safetensors.torch
import torch
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError
from mmengine.fileio import get_file_backend
from torch import Tensor

from ..errors import CheckpointError
from .formats import StateDict, convert, recognise
from .pickles import stand_ins

HUB_FILES = ('model.safetensors', 'pytorch_model.bin')
UNSAFE_VARIABLE = 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'
# MMEngine's lists of other projects' networks; none is a CvT.
MODEL_ZOOS = ('modelzoo://', 'torchvision://', 'open-mmlab://', 'openmmlab://', 'mmcls://', 'pavi://')
BUCKETS = (r'(\S+\:)?s3://', r'(\S+\:)?petrel://')  # as MMEngine spells them
_CVT_NAME = re.compile(rb'stage\d+\.(patch_embed|blocks)\.|encoder\.stages\.\d+\.(embedding|layers)\.')
_PEEK = 64 * 2**20  # bytes; the names of an old file's tensors stand before their values

# -- a file on disk --------------------------------------------------------------------------------


def read_checkpoint(path: str | Path, map_location: Any = 'cpu') -> dict[str, Any]:
    """Reads a checkpoint file as it is, without running code that it may hold.

    Args:
        path: a ``.safetensors`` file, any other file that ``torch.save`` wrote, or a folder from the
            Hugging Face hub with one of :data:`HUB_FILES`.
        map_location: as for ``torch.load``; a safetensors file knows devices only. None: where the tensors
            were, or the CPU on a machine without CUDA.

    Raises:
        FileNotFoundError: there is no such file, or none of :data:`HUB_FILES` in the folder.
        CheckpointError: the file is damaged, is no checkpoint, or its pickle needs more than tensors,
            plain Python values and MMEngine's own records. The environment variable
            ``TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1`` (PyTorch's) runs such a pickle all the same.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        found = _hub_files(path)
        if not found:
            raise FileNotFoundError(f'The folder {path} has none of {", ".join(HUB_FILES)}: give a file, or a '
                                    'folder as transformers saves it.')
        path = found[0]
    if not path.is_file():
        raise FileNotFoundError(f'The checkpoint {path} does not exist.')
    if map_location is None and not torch.cuda.is_available():
        map_location = 'cpu'
    try:
        if path.suffix == '.safetensors':
            device = str(map_location) if isinstance(map_location, (str, torch.device)) else 'cpu'
            return safetensors.torch.load_file(path, device=device)
        if os.environ.get(UNSAFE_VARIABLE, '').lower() in ('1', 'y', 'yes', 'true'):
            return torch.load(path, map_location=map_location, weights_only=False)
        with stand_ins():
            return torch.load(path, map_location=map_location, weights_only=True)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as e:  # a file that is damaged, no checkpoint, or hostile raises anything
        raise CheckpointError(_why_unreadable(path, e)) from e


def _hub_files(folder: Path) -> list[Path]:
    return [folder / name for name in HUB_FILES if (folder / name).is_file()]


def _why_unreadable(path: Path, error: Exception) -> str:
    text = str(error)
    wanted = re.search(r'GLOBAL ([\w.]+)', text)
    forbidden = re.search(r'(Refused: .+|Can only .+|Trying to call reduce .+|Only persistent_load .+)', text)
    trust = f'If you trust whoever made the file, set the environment variable {UNSAFE_VARIABLE}=1.'
    if wanted:
        return f'{path} is refused: opening it would run {wanted[1]}, and weights need no code. {trust}'
    if isinstance(error, pickle.UnpicklingError) and forbidden:
        return (f'{path} is refused: its pickle does what weights do not need ({forbidden[1].strip()[:200]}). '
                f'{trust}')
    with path.open('rb') as f:
        start = f.read(16)
    what = f'{path} ({path.stat().st_size:,} bytes, starting with {start!r}) '
    if start.lstrip()[:1] == b'<':
        return what + 'is not a checkpoint. It looks like a web page: get the file itself.'
    torn = start.startswith(b'PK') and not zipfile.is_zipfile(path)
    if torn or not start or path.suffix == '.safetensors':
        return what + ('is not a complete checkpoint. The download was probably cut off, or the file is of another '
                       'kind: get the file again and compare its size with the one published.')
    return what + f'cannot be read as a checkpoint: {type(error).__name__}: {text.strip().splitlines()[0][:300]}' \
        if text.strip() else what + f'cannot be read as a checkpoint ({type(error).__name__}).'


def holds_cvt(path: Path) -> bool:
    """Whether names of CvT's tensors stand in a file or folder; unpickles nothing."""
    if path.is_dir():
        return any(holds_cvt(file) for file in _hub_files(path))
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return any(_CVT_NAME.search(archive.read(name)) for name in archive.namelist()
                           if name.endswith('data.pkl'))
        with path.open('rb') as file:
            return bool(_CVT_NAME.search(file.read(_PEEK)))
    except (OSError, zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError):
        return False


def select_weights(checkpoint: Mapping[str, Any], weights: str = 'ema', source: str = 'the checkpoint') -> StateDict:
    """The state dict in a checkpoint file.

    Args:
        checkpoint: as read; a bare state dict, or one under the key ``state_dict``.
        weights: ``'ema'``: the averaged weights, where training averaged them (MMEngine stores them
            as ``state_dict``); ``'raw'``: those that the optimizer worked on.
        source: where it comes from, for the error.

    Raises:
        ValueError: ``weights`` is neither.
        CheckpointError: the file holds no tensors by name.
    """
    if weights not in ('ema', 'raw'):
        raise ValueError(f"weights={weights!r}: allowed are 'ema' and 'raw'.")
    state_dict = checkpoint.get('state_dict', checkpoint) if isinstance(checkpoint, Mapping) else None
    if isinstance(state_dict, Mapping) and weights == 'raw' and 'ema_state_dict' in checkpoint:
        state_dict = {
            key[len('module.'):]: value
            for key, value in checkpoint['ema_state_dict'].items() if key.startswith('module.')
        }
    if not isinstance(state_dict, Mapping) or not any(isinstance(v, Tensor) for v in state_dict.values()):
        raise CheckpointError(f'{source} holds no state dict (tensors by name): it is not a checkpoint of a network.')
    return {key.removeprefix('module.'): value for key, value in state_dict.items()}


# -- from anywhere ---------------------------------------------------------------------------------


def load_weights_file(source: str, map_location: Any = 'cpu', rename: bool = True) -> dict[str, Any]:
    """What MMEngine's ``CheckpointLoader.load_checkpoint`` returns, read by :func:`read_checkpoint`.

    Args:
        source: a path, ``hf://OWNER/REPOSITORY[/FILE][@REVISION]``, ``http(s)://``, or ``s3://`` and
            ``petrel://`` by MMEngine's file backend.
        map_location: as for :func:`read_checkpoint`.
        rename: gives a foreign CvT checkpoint this project's names; any other one is returned untouched.

    Raises:
        FileNotFoundError, CheckpointError: it cannot be reached or read.
    """
    try:
        with local_file(source) as path:
            checkpoint = read_checkpoint(path, map_location)
    except CheckpointError as e:
        raise CheckpointError(str(e) if str(e).startswith(source) or '://' not in source else f'{source}: {e}') from e
    except FileNotFoundError:
        raise
    except OSError as e:  # the network's
        raise CheckpointError(f'{source} cannot be fetched: {e}.') from e
    meta = checkpoint.get('meta') if isinstance(checkpoint, dict) else None
    if isinstance(meta, dict):
        meta.pop('config', None)  # Runner.resume would run this text as Python; no version of MMEngine writes it
    try:
        state_dict = select_weights(checkpoint)
    except CheckpointError:
        return checkpoint
    if not rename or recognise(state_dict) not in ('microsoft', 'huggingface'):
        return checkpoint
    return dict(state_dict=convert(state_dict, 'cvt_dense'), meta=dict(source=source))


@contextmanager
def local_file(source: str) -> Iterator[Path]:
    """A path with the content of ``source``, as :func:`load_weights_file` takes it.

    Raises:
        CheckpointError: it is a name in one of :data:`MODEL_ZOOS`, or as :func:`_from_hub`.
        OSError: it cannot be downloaded.
    """
    if source.startswith(MODEL_ZOOS):
        raise CheckpointError(f'{source}: that collection has no CvT. Give a file, hf://OWNER/REPOSITORY or '
                              'https://...')
    if source.startswith('hf://'):
        yield _from_hub(source)
    elif source.startswith(('http://', 'https://')):
        yield _download(source)
    elif any(re.match(bucket, source) for bucket in BUCKETS):
        with get_file_backend(source, backend_args=dict(backend='petrel')).get_local_path(source) as path:
            yield Path(path)
    else:
        yield Path(source).expanduser()


def _download(url: str) -> Path:
    """The file in PyTorch's cache, where MMEngine keeps downloads too; fetched once for all processes."""
    path = Path(torch.hub.get_dir(), 'checkpoints', os.path.basename(urlparse(url).path))
    try:
        if mmengine.dist.is_main_process() and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.hub.download_url_to_file(url, str(path), progress=os.isatty(0))
    finally:
        mmengine.dist.barrier()
    if not path.exists():  # another host's process
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(url, str(path), progress=False)
    return path


def _from_hub(filename: str) -> Path:
    """``hf://OWNER/REPOSITORY[/FILE][@REVISION]`` through ``huggingface_hub`` and its cache.

    Raises:
        CheckpointError: the name is malformed, or the file is neither reachable nor cached.
    """
    name, _, revision = filename[len('hf://'):].partition('@')
    owner, _, rest = name.partition('/')
    repository, _, file = rest.partition('/')
    if not owner or not repository:
        raise CheckpointError(f'{filename!r} is not of the form hf://OWNER/REPOSITORY[/FILE][@REVISION].')
    candidates = [file] if file else HUB_FILES
    unreachable = _why_unreachable(f'{owner}/{repository}', candidates[0], revision or None)
    for candidate in candidates:
        try:
            path = huggingface_hub.hf_hub_download(f'{owner}/{repository}', candidate, revision=revision or None,
                                                   local_files_only=unreachable is not None)
        except EntryNotFoundError as e:  # not in the repository, or not in the cache while offline
            reason = e
        except (HfHubHTTPError, ValueError) as e:  # no such repository or revision, no permission
            raise CheckpointError(f'{filename}: {str(e).splitlines()[0]}') from e
        else:
            return Path(path)
    if isinstance(reason, LocalEntryNotFoundError):
        raise CheckpointError(
            f'{filename} is not in the cache of huggingface_hub ({huggingface_hub.constants.HF_HUB_CACHE}), and the '
            f'hub cannot be reached ({unreachable or reason}). With a connection, run "hf download '
            f'{owner}/{repository}" first (HF_HOME moves the cache), or give the path of a file.') from reason
    raise CheckpointError(f'{filename}: the repository has no {file or " or ".join(HUB_FILES)}; name the file as '
                          'hf://OWNER/REPOSITORY/FILE.') from reason


def _why_unreachable(repository: str, file: str, revision: str | None) -> str | None:
    """Why the hub does not answer, asked once; None if it does, whatever it says.

    ``hf_hub_download`` alone asks twelve times for a file that is not cached, which takes a minute.
    """
    try:
        huggingface_hub.get_hf_file_metadata(huggingface_hub.hf_hub_url(repository, file, revision=revision))
    except (HfHubHTTPError, ValueError):  # an answer, or a name that hf_hub_download will refuse
        return None
    except Exception as error:  # of requests, httpx or its successor, as huggingface_hub's version has it
        return ' '.join(f'{type(error).__name__}: {error}'.split())[:120]
    return None
