"""CvT checkpoints under MMEngine: any format, from anywhere, strictly and with a report.

Importing this module

- lets every path that MMEngine loads (``load_from``, ``init_cfg``, ``init_detector``...) be a file in
  the authors' or Hugging Face's format, a ``.safetensors`` file, or a folder from the Hugging Face
  hub. Other checkpoints pass through as they are;
- registers ``hf://OWNER/REPOSITORY[/FILE][@REVISION]``.
"""
import os
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import safetensors
import safetensors.torch
import torch
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError
from mmengine.logging import HistoryBuffer
from mmengine.runner import CheckpointLoader
from torch import Tensor

from ..errors import CheckpointError
from .formats import StateDict, convert, recognise

HUB_FILES = ('model.safetensors', 'pytorch_model.bin')
UNSAFE_VARIABLE = 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'

# -- reading ---------------------------------------------------------------------------------------


def read_checkpoint(path: str | Path, map_location: Any = 'cpu') -> dict[str, Any]:
    """Reads a checkpoint file as it is, without running code that it may hold.

    Args:
        path: a ``.safetensors`` file, any other file that ``torch.save`` wrote, or a folder from the
            Hugging Face hub with one of :data:`HUB_FILES`.
        map_location: as for ``torch.load``; a safetensors file knows devices only.

    Raises:
        FileNotFoundError: there is no such file, or none of :data:`HUB_FILES` in the folder.
        CheckpointError: the file is damaged, is no checkpoint, or its pickle needs more than tensors,
            plain Python values and MMEngine's own records. The environment variable
            ``TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1`` (PyTorch's) runs such a pickle all the same.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        found = [path / name for name in HUB_FILES if (path / name).is_file()]
        if not found:
            raise FileNotFoundError(f'The folder {path} has none of {", ".join(HUB_FILES)}: give a file, or a '
                                    'folder as transformers saves it.')
        path = found[0]
    if not path.is_file():
        raise FileNotFoundError(f'The checkpoint {path} does not exist.')
    try:
        if path.suffix == '.safetensors':
            device = str(map_location) if isinstance(map_location, (str, torch.device)) else 'cpu'
            return safetensors.torch.load_file(path, device=device)
        if os.environ.get(UNSAFE_VARIABLE, '').lower() in ('1', 'y', 'yes', 'true'):
            return torch.load(path, map_location=map_location, weights_only=False)
        with torch.serialization.safe_globals(_mmengine_globals()):
            return torch.load(path, map_location=map_location, weights_only=True)
    except pickle.UnpicklingError as e:
        wanted = re.search(r'GLOBAL ([\w.]+)', str(e))
        if not wanted:
            raise CheckpointError(_damaged(path)) from e
        raise CheckpointError(
            f'{path} is refused: opening it would run {wanted[1]}, and weights need no code. If you trust whoever '
            f'made the file, set the environment variable {UNSAFE_VARIABLE}=1.') from e
    except (safetensors.SafetensorError, RuntimeError, EOFError, OSError, KeyError) as e:
        raise CheckpointError(_damaged(path)) from e


def _mmengine_globals() -> list[Any]:
    """What MMEngine's own checkpoints hold beside tensors and plain values: logged numbers, dataset meta."""
    reconstruct = np.ndarray(0).__reduce__()[0]
    scalar = np.float64(0).__reduce__()[0]
    return [HistoryBuffer, getattr, slice, np.ndarray, np.dtype, reconstruct, scalar,
            *{type(np.dtype(kind)) for kind in np.typecodes['All']}]


def _damaged(path: Path) -> str:
    with path.open('rb') as f:
        start = f.read(16)
    what = 'The download was probably cut off, or the file is of another kind'
    if start.lstrip()[:1] == b'<':
        what = 'It looks like a web page'
    return (f'{path} ({path.stat().st_size:,} bytes, starting with {start!r}) is not a complete checkpoint. {what}: '
            'get the file again and compare its size with the one published.')


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


# -- MMEngine's checkpoint loader ------------------------------------------------------------------


def _named_for_mmengine(checkpoint: dict[str, Any], source: str) -> dict[str, Any]:
    """Gives a foreign CvT checkpoint this project's names; returns any other one untouched."""
    try:
        state_dict = select_weights(checkpoint)
    except CheckpointError:
        return checkpoint
    if recognise(state_dict) not in ('microsoft', 'huggingface'):
        return checkpoint
    return dict(state_dict=convert(state_dict, 'cvt_dense'), meta=dict(source=source))


@CheckpointLoader.register_scheme(prefixes='', force=True)
def load_from_local(filename: str, map_location: Any = None) -> dict[str, Any]:
    """MMEngine's loader of local files, see the module's docstring; its pickles cannot run code."""
    return _named_for_mmengine(read_checkpoint(filename, map_location), filename)


@CheckpointLoader.register_scheme(prefixes='hf://')
def load_from_hub(filename: str, map_location: Any = None) -> dict[str, Any]:
    """``hf://OWNER/REPOSITORY[/FILE][@REVISION]`` through ``huggingface_hub`` and its cache.

    Raises:
        CheckpointError: the name is malformed, or the file is neither reachable nor cached.
    """
    name, _, revision = filename[len('hf://'):].partition('@')
    owner, _, rest = name.partition('/')
    repository, _, file = rest.partition('/')
    if not owner or not repository:
        raise CheckpointError(f'{filename!r} is not of the form hf://OWNER/REPOSITORY[/FILE][@REVISION].')
    for candidate in [file] if file else HUB_FILES:
        try:
            path = huggingface_hub.hf_hub_download(f'{owner}/{repository}', candidate, revision=revision or None)
        except EntryNotFoundError as e:  # not in the repository, or not in the cache while offline
            reason = e
        except (HfHubHTTPError, ValueError) as e:  # no such repository or revision, no permission
            raise CheckpointError(f'{filename}: {str(e).splitlines()[0]}') from e
        else:
            return _named_for_mmengine(read_checkpoint(path, map_location), filename)
    if isinstance(reason, LocalEntryNotFoundError):
        raise CheckpointError(
            f'{filename} is not in the cache of huggingface_hub ({huggingface_hub.constants.HF_HUB_CACHE}), and the '
            f'hub cannot be reached. With a connection, run "hf download {owner}/{repository}" first (HF_HOME '
            'moves the cache), or give the path of a file.') from reason
    raise CheckpointError(f'{filename}: the repository has no {file or " or ".join(HUB_FILES)}; name the file as '
                          'hf://OWNER/REPOSITORY/FILE.') from reason
