"""Measure time and memory."""
import argparse
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
from mmengine.model import BaseModel
from torch import nn

from ..random_batch import forward, random_batch
from .networks import backbone_of, build, split_name
from .runtimes import export_column, open_column, runtime_of

DTYPES = dict(none=torch.float32, bf16=torch.bfloat16, fp16=torch.float16)
GIB = 2**30
STATUS = Path('/proc/self/status')  # of Linux


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
    """Return a network's memory and parameters, and a function that runs one step, warm and compiled.

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
    run = open_column(file, args, size) if runtime else partial(step, model, batch, args)
    if 'compiled' in variants:  # for its shape; of inference the weights are constants
        backbone_of(model).compile(dynamic=False, options=dict(freezing=True) if args.mode == 'infer' else None)
    run()  # warms up
    if args.device == 'cuda':
        torch.cuda.reset_peak_memory_stats()
        run()
        memory = (torch.cuda.max_memory_allocated() - before) / GIB
    return dict(memory_gib=memory, parameters=sum(parameter.numel() for parameter in model.parameters())), run


def measure(names: list[str], args: argparse.Namespace, size: tuple[int, int]) -> list[dict]:
    """Return a row for each network: median latency over interleaved rounds, and memory.

    Args:
        names: names of the columns.
        args: command line.
        size: (H, W) of the image in pixels.
    """
    torch.compiler.reset()  # what was compiled for another size counts against the number that it compiles at most
    steps: dict[str, Callable] = {}
    rows = {}
    with TemporaryDirectory() as folder:  # as long as the runtimes read their files
        for name in names:
            print(f'{size[0]}x{size[1]}: {name}', file=sys.stderr)
            rows[name] = dict(name=name, size=list(size), memory_gib=None)
            try:
                known, steps[name] = prepare(name, args, size, Path(folder))
                rows[name].update(known)
            except (BrokenProcessPool, torch.cuda.OutOfMemoryError):
                print(f'{name} does not fit into memory and is left out', file=sys.stderr)
        times: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(args.rounds):
            for name, run in steps.items():
                times[name].append(seconds(run, args.device))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, row in rows.items():
        median, first = medians.get(name), medians.get(names[0])
        row.update(latency_ms=median and 1e3 * median, images_per_s=median and args.batch / median,
                   speedup=median and first and first / median)
    return list(rows.values())
