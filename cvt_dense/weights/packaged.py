"""Weights that are files of this package, under URLs ``cvt_dense://NAME``."""
import hashlib
import json
from pathlib import Path
from typing import Any

import safetensors.torch

from ..errors import CheckpointError

SCHEME = 'cvt_dense://'
FOLDER = Path(__file__).parent / 'files'
SHA256 = {'cvt-nano': 'fed3780ead104087728ec9bf88e72d808d74b4f1f66c355dfec812dcf8e27127'}  # of the files in FOLDER


def load_packaged(url: str) -> dict[str, Any]:
    """Return weights of this package as a checkpoint: ``state_dict`` in float32, and ``meta`` with the class names.

    Args:
        url: ``cvt_dense://cvt-nano``.

    Raises:
        CheckpointError: there are no such weights, or their file is not the one that was published.
    """
    name = url.removeprefix(SCHEME)
    if name not in SHA256:
        raise CheckpointError(f'{url}: the weights in this package are {", ".join(map(repr, SHA256))}.')
    path = FOLDER / f'{name.replace("-", "_")}.safetensors'
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256[name]:
        raise CheckpointError(f'{url}: {path} does not have its published checksum; install cvt_dense again.')
    header = json.loads(content[8:8 + int.from_bytes(content[:8], 'little')])  # the format of safetensors
    tensors = {key: value.float() if value.is_floating_point() else value
               for key, value in safetensors.torch.load(content).items()}
    return dict(state_dict=tensors, meta=dict(dataset_meta=dict(classes=json.loads(header['__metadata__']['classes']))))
