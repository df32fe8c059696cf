"""A simulated accelerator: the device 'sim', whose tensors hold tensors of the CPU.

Operators compute real values. A mixture of 'sim' and 'cpu' tensors is an error, as with CUDA. Not simulated: autocast,
streams, NCCL, memory. It rests on PyTorch's experimental registration of backends in Python.
"""
import functools
import multiprocessing
from collections.abc import Callable
from typing import Any

import torch
from mmengine.device import utils
from mmengine.structures import instance_data
from torch.utils import backend_registration
from torch.utils._pytree import tree_map_only

COPYING = {'copy_', '_to_copy'}
torch_load = torch.load
INDEXING = {'index', 'index_put', 'index_put_', '_index_put_impl_'}
CREATING = ('empty.memory_format', 'empty_strided', 'arange', 'arange.start', 'arange.start_step', 'linspace', 'eye',
            'eye.m', 'full', 'zeros', 'ones', 'rand', 'randn', 'randint', 'randint.low', 'randperm', 'scalar_tensor',
            'tril_indices', 'triu_indices')
OTHERS = ('copy_', '_to_copy', 'fill_.Scalar', 'detach', 'view', 'as_strided', '_local_scalar_dense')


class Module:
    """What PyTorch asks of ``torch.<device>``."""

    is_available = is_initialized = staticmethod(lambda: True)
    _is_in_bad_fork = staticmethod(lambda: False)
    manual_seed = manual_seed_all = set_device = synchronize = staticmethod(lambda value=None: None)
    device_count = staticmethod(lambda: 1)
    current_device = staticmethod(lambda: 0)
    get_amp_supported_dtype = staticmethod(lambda: [torch.float16, torch.bfloat16])
    get_rng_state = staticmethod(lambda device=0: torch.get_rng_state())
    set_rng_state = staticmethod(lambda state, device=0: None)
    _lazy_init = staticmethod(lambda: None)


DEVICE = torch.device('privateuseone', 0)  # PyTorch's name of a device that it does not know


class SimTensor(torch.Tensor):
    """A tensor of the device; ``raw`` is the CPU's with its values."""

    @staticmethod
    def wrap(raw: torch.Tensor) -> 'SimTensor':
        tensor = torch.Tensor._make_wrapper_subclass(SimTensor, raw.size(), strides=raw.stride(), dtype=raw.dtype,
                                                     storage_offset=raw.storage_offset(), device=DEVICE)
        tensor.raw = raw
        return tensor

    def __reduce_ex__(self, protocol: int) -> Any:
        return self.raw.__reduce_ex__(protocol)

    def tolist(self) -> Any:
        return self.raw.tolist()

    def numpy(self, **kwargs) -> None:
        raise TypeError(f"can't convert {DEVICE} device type tensor to numpy")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, dict(kwargs or {}))


def mapped(function: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """Return an argument or a result with ``function`` applied to its tensors."""
    if isinstance(value, torch.Tensor):
        return function(value)
    return [mapped(function, item) for item in value] if isinstance(value, (list, tuple)) else value


def raw(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.raw if isinstance(tensor, SimTensor) else tensor


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operator as the device would."""
    name, target = func._schema.name.split('::')[1], kwargs.pop('device', None)
    kwargs.pop('pin_memory', None)
    tensors: list[torch.Tensor] = []
    mapped(tensors.append, [*args, *kwargs.values()])
    here = {id(tensor.raw): tensor for tensor in tensors if isinstance(tensor, SimTensor)}
    if name in COPYING:
        target = args[0].device if name == 'copy_' else torch.device(target or args[0].device)
    else:
        values = [args[0], *args[2:3]] if name in INDEXING else tensors  # an index may be on the CPU, and a number, too
        if here and any(isinstance(value, torch.Tensor) and value.is_cpu and value.dim() for value in values):
            raise RuntimeError(f'Expected all tensors to be on the same device, but got {DEVICE} and cpu: {func}')
    if target is not None and name not in COPYING:
        kwargs['device'] = torch.device('cpu')
    out = func(*mapped(raw, args), **{key: mapped(raw, value) for key, value in kwargs.items()})
    if name == '_local_scalar_dense' or not (here if target is None else torch.device(target).type == 'sim'):
        return out
    return mapped(lambda made: here[id(made)] if id(made) in here else SimTensor.wrap(made), out)


def index_type(dtype: torch.dtype) -> type:
    """Return a type whose instances are the device's tensors of a dtype."""

    class Kind(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, SimTensor) and value.dtype == dtype

    return Kind('Index', (), {})


def load(*args: Any, map_location: Any = None, **kwargs: Any) -> Any:
    """Load a file, and map it to the device as ``torch.load`` does for CUDA."""
    if not str(map_location).startswith('sim'):
        return torch_load(*args, map_location=map_location, **kwargs)
    return tree_map_only(torch.Tensor, SimTensor.wrap, torch_load(*args, map_location='cpu', **kwargs))


def become_host(test: Callable[..., None], fixtures: dict[str, Any]) -> None:
    """Register the device, let MMEngine choose it, and run a test."""
    torch.set_num_threads(1)  # a fork has no other threads
    backend_registration._setup_privateuseone_for_python_backend('sim', Module())
    library = torch.library.Library('aten', 'IMPL')
    for names, extra in ((CREATING, dict(device=DEVICE)), (OTHERS, {})):
        for name in names:
            packet, _, overload = name.partition('.')
            op = getattr(getattr(torch.ops.aten, packet), overload or 'default')
            library.impl(name, lambda *args, _op=op, _extra=extra, **kwargs: run(_op, args, {**kwargs, **_extra}),
                         'PrivateUse1')
    utils.DEVICE = 'sim'
    torch.load = load
    mask, number = index_type(torch.bool), index_type(torch.long)
    instance_data.BoolTypeTensor |= mask
    instance_data.LongTypeTensor |= number
    instance_data.IndexType |= mask | number
    test(**fixtures)


def on_device(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test in a fork of this process, since PyTorch cannot forget a device."""

    @functools.wraps(test)
    def forked(**fixtures: Any) -> None:
        process = multiprocessing.get_context('fork').Process(target=become_host, args=(test, fixtures))
        process.start()
        process.join()
        assert process.exitcode == 0, f'{test.__name__} failed on the device; its traceback is above.'

    return forked
