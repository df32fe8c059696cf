"""Measure time, memory and the fraction of the machine's peak."""
import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from _random_batch import forward, random_batch
from mmengine.model import BaseModel
from torch import nn
from torch.utils.flop_counter import (
    FlopCounterMode,
    conv_flop_count,
    register_flop_formula,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from .networks import backbone_of, build, compile_column, split_name
from .runtimes import export_column, open_column, runtime_of

DTYPES = dict(none=torch.float32, bf16=torch.bfloat16, fp16=torch.float16)
GIB = 2**30
STATUS = Path('/proc/self/status')  # of Linux


# PyTorch counts no operations for the CPU's attention kernel.
@register_flop_formula(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu)
def _attention_flops(q, k, v, *args, out_shape=None, **kwargs) -> int:
    return sdpa_flop_count(q, k, v)


@register_flop_formula(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward)
def _attention_backward_flops(grad, q, k, v, *args, out_shape=None, **kwargs) -> int:
    return sdpa_backward_flop_count(grad, q, k, v)


# PyTorch's own formula forgets the groups: a depth-wise convolution's weights would count channels times.
def _convolution_backward_flops(grad, x, weight, *args, out_shape=None) -> int:
    transposed, output_mask = args[4], args[7]
    return sum(output_mask[:2]) * conv_flop_count(x, weight, grad, transposed)


FLOPS = dict(display=False, custom_mapping={torch.ops.aten.convolution_backward: _convolution_backward_flops})


# The linear layers that use_cpu_kernels() has packed; see cvt_dense/deploy/cpu.py.
def _packed_linear_flops(x, weight, *args, out_shape=None, **kwargs) -> int:
    return 2 * math.prod(out_shape) * x[-1]


if hasattr(torch.ops.mkldnn, '_linear_pointwise'):
    FLOPS['custom_mapping'][torch.ops.mkldnn._linear_pointwise] = _packed_linear_flops


def inputs_of(model: nn.Module, args: argparse.Namespace, size: tuple[int, int]) -> dict:
    """Return random inputs of a whole model or of a backbone.

    Args:
        model: whole model or backbone.
        args: command line, for batch and device.
        size: (H, W) of the images in pixels.
    """
    if isinstance(model, BaseModel):
        return random_batch(model, args.batch, size, args.device)
    return dict(inputs=torch.rand(args.batch, 3, *size, device=args.device))


def step(model: nn.Module, batch: dict, args: argparse.Namespace) -> None:
    """Run one forward pass, or one forward and backward pass.

    Args:
        model: whole model or backbone.
        batch: result of :func:`inputs_of`.
        args: command line, for mode, precision and device.
    """
    whole, dtype = isinstance(model, BaseModel), DTYPES[args.amp]
    with torch.autocast(args.device, dtype) if dtype != torch.float32 else nullcontext():
        if args.mode == 'infer':
            with torch.inference_mode():
                forward(model, batch) if whole else model(batch['inputs'])
            return
        if whole:
            loss, _ = model.parse_losses(model(**batch, mode='loss'))
        else:
            out = model(batch['inputs'])
            maps = out if isinstance(out, (tuple, list)) else [out.last_hidden_state]
            loss = sum(y.float().mean() for y in maps)
    loss.backward()
    model.zero_grad(set_to_none=True)


def seconds(function: Callable, device: str) -> float:
    """Return the seconds that a call takes until the device has finished."""
    start = time.perf_counter()
    function()
    if device == 'cuda':
        torch.cuda.synchronize()
    return time.perf_counter() - start


def cpu_memory(name: str, args: argparse.Namespace, size: tuple[int, int], file: Path | None = None) -> float:
    """Return the GiB by which this process grows, which should be one of its own, on Linux.

    Args:
        name: name of the column.
        args, size: as in :func:`measure`.
        file: exported file of the column, or None.
    """

    def kib(key: str) -> int:
        return next(int(line.split()[1]) for line in STATUS.read_text().splitlines() if line.startswith(key))

    if file is not None:
        __import__(runtime_of(split_name(name)[1]).partition('-')[0])
    Path('/proc/self/clear_refs').write_text('5')  # the peak so far, of the imports, is forgotten
    before = kib('VmRSS:')
    if file is None:
        model = build(name, args, size)
        step(model, inputs_of(model, args, size), args)
    else:
        open_column(file, args, size)()
    return (kib('VmHWM:') - before) * 1024 / GIB


def prepare(name: str, args: argparse.Namespace, size: tuple[int, int],
            folder: Path) -> tuple[dict, Callable[[], object]]:
    """Return a network's memory, its multiplications, and a function that runs one step, warm and compiled.

    Args:
        name: name of the column.
        args, size: as in :func:`measure`.
        folder: folder for the files of runtimes.
    """
    memory = file = None
    variants = split_name(name)[1]
    runtime = runtime_of(variants)
    if 'bf16' in variants:
        args = argparse.Namespace(**{**vars(args), 'amp': 'bf16'})
    if runtime:
        file = export_column(runtime, build(name, args, size), args, size, folder)
    if args.device == 'cpu' and STATUS.exists():
        context = get_context('forkserver')  # imports the slow packages once for all networks
        context.set_forkserver_preload(['mmengine.runner', 'timm'])
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            memory = pool.submit(cpu_memory, name, args, size, file).result()
    before = torch.cuda.memory_allocated() if args.device == 'cuda' else 0
    model = build(name, args, size).to(args.device)
    batch = inputs_of(model, args, size)
    step(model, batch, args)  # the first one of a fused network times two ways to compute its linear layers
    with FlopCounterMode(**FLOPS) as counter:
        step(model, batch, args)
    run = open_column(file, args, size) if runtime else partial(step, model, batch, args)
    compile_column(backbone_of(model), variants, args.mode)
    run()  # warms up
    if args.device == 'cuda':
        torch.cuda.reset_peak_memory_stats()
        run()
        memory = (torch.cuda.max_memory_allocated() - before) / GIB
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return dict(memory_gib=memory, gflop=counter.get_total_flops() / 1e9, parameters=parameters), run


def measure(names: list[str], args: argparse.Namespace, size: tuple[int, int]) -> list[dict]:
    """Return a row for each network: median latency over interleaved rounds, memory, and fraction of the device's peak.

    Args:
        names: names of the columns.
        args: command line.
        size: (H, W) of the image in pixels.
    """
    with TemporaryDirectory() as folder:  # as long as the runtimes read their files
        return _measure(names, args, size, Path(folder))


def products(device: str, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    """Return, by library, a function that multiplies two square matrices of :func:`side` rows; the fastest is the peak.

    On a CPU PyTorch gives float32 products to MKL (or another BLAS), and those of a 1x1 convolution to oneDNN, which is
    twice as fast on some CPUs.
    """
    n = side(device)
    matrix = torch.rand(n, n, device=device, dtype=dtype)
    if device == 'cuda':
        return dict(cuBLAS=lambda: matrix @ matrix)
    blas = 'MKL' if torch.backends.mkl.is_available() else 'BLAS'
    found = {blas if dtype == torch.float32 else 'matmul': lambda: matrix @ matrix}
    if torch.backends.mkldnn.is_available():
        image = torch.rand(1, n, 32, n // 32, dtype=dtype).to(memory_format=torch.channels_last)
        weight = torch.rand(n, n, 1, 1, dtype=dtype).to(memory_format=torch.channels_last)
        found['oneDNN'] = lambda: torch.nn.functional.conv2d(image, weight)
    return found


def side(device: str) -> int:
    """Return the side of the square matrices whose product measures the peak."""
    return 8192 if device == 'cuda' else 2048


def precision_of(name: str, args: argparse.Namespace) -> str | None:
    """Return the precision of a column's products, in which its peak is measured; None of int8, which has none here."""
    variants = split_name(name)[1]
    if any('int8' in variant for variant in variants):
        return None
    if any('bf16' in variant for variant in variants):
        return 'bf16'
    return 'none' if runtime_of(variants) == 'onnxruntime' else args.amp


def _measure(names: list[str], args: argparse.Namespace, size: tuple[int, int], folder: Path) -> list[dict]:
    torch.compiler.reset()  # what was compiled for another size counts against the number that it compiles at most
    steps: dict[str, Callable] = {}
    for precision in dict.fromkeys(filter(None, (precision_of(name, args) for name in names))):
        for library, product in products(args.device, DTYPES[precision]).items():
            steps[f'{precision} product by {library}'] = product
            product()  # warms up
    rows = {}
    for name in names:
        print(f'{size[0]}x{size[1]}: {name}', file=sys.stderr)
        rows[name] = dict(name=name, size=list(size), memory_gib=None, gflop=None)
        try:
            known, steps[name] = prepare(name, args, size, folder)
            rows[name].update(known)
        except (BrokenProcessPool, torch.cuda.OutOfMemoryError):
            print(f'{name} does not fit into memory and is left out', file=sys.stderr)
        except (RuntimeError, ValueError) as error:
            raise SystemExit(f'{args.model}, {name} does not run on {args.batch} x {size[0]}x{size[1]} pixels: '
                             f'{error}. Try a larger --size or --batch.') from error

    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(args.rounds):
        for name, run in steps.items():
            times[name].append(seconds(run, args.device))
    medians = {name: statistics.median(values) for name, values in times.items()}
    peaks: dict[str, tuple[float, str]] = {}  # by precision the best speed and its library
    for name in medians:
        precision, product, library = name.partition(' product by ')
        if product:
            speed = 2 * side(args.device)**3 / medians[name] / 1e9
            peaks[precision] = max(peaks.get(precision, (0., '')), (speed, library))
    for name, row in rows.items():
        median = medians.get(name)
        peak, library = peaks.get(precision_of(name, args), (None, None))
        row.update(
            latency_ms=median and 1e3 * median,
            fastest_ms=median and 1e3 * min(times[name]),
            images_per_s=median and args.batch / median,
            speedup=median and medians[names[0]] / median if names[0] in medians else None,
            share_of_peak=row['gflop'] / median / peak if median and peak else None,
            peak_gflops=peak, peak_precision=precision_of(name, args), peak_library=library)
    return list(rows.values())
