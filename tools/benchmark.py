"""Measures time and memory of a CvT backbone beside other networks, or of a config's whole model.

    python tools/benchmark.py model cvt-13 --compare fused,fused+compiled,transformers
    python tools/benchmark.py model cvt-13 --size 800x1344 --batch 1 \\
        --compare windowed,einsum,swin_tiny_patch4_window7_224 --json benchmarks/detection.json
    python tools/benchmark.py model cvt-13 --sizes 224,448,896 --batch 1 --compare windowed --plot curve.png
    python tools/benchmark.py model configs/maskrcnn_cvt13_coco.py --size 800x1280 --batch 1 --mode train
    python tools/benchmark.py data configs/cvt13_in1k.py --data-root /data/imagenet --workers 4,8,16

Of an architecture (cvt-13) the backbone alone is measured: forward, and with ``--mode train`` also
backward. Of a config it is the classifier, detector or segmentor with random weights: its outputs before
post-processing, or with ``--mode train`` the loss on random ground truth (8 objects or classes an image)
and backward. Input are random images, loading is not measured.
Memory is the peak of weights, activations and gradients, without an optimizer: on the CPU the growth of
a fresh process for each network, on CUDA PyTorch's own count. ``peak`` is the share of the speed of a
large matrix product, measured in the same rounds, by the network's own count of multiplications and
additions.
"""
import argparse
import copy
import itertools
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from pathlib import Path

sys.path[:0] = [str(folder) for folder in Path(__file__).resolve().parents[:2]]

import timm
import torch
from _random_batch import build_model, forward, parse_size, random_batch
from mmengine.config import DictAction
from mmengine.model import BaseModel, revert_sync_batchnorm
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torch.utils.flop_counter import (
    FlopCounterMode,
    conv_flop_count,
    register_flop_formula,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from cvt_dense.launch import command_line, settings
from cvt_dense.launch.build import build_datasets
from cvt_dense.models import CvT
from cvt_dense.nodes import type_name

VARIANTS = ('windowed', 'fused', 'einsum', 'compiled')
DTYPES = dict(none=torch.float32, bf16=torch.bfloat16, fp16=torch.float16)
GIB = 2**30


# PyTorch counts the CPU's attention kernel as nothing.
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


# -- networks --------------------------------------------------------------------------------------


def einsum_attention(num_heads: int, scale: float, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What the authors' code computes, one operation after the other."""
    q, k, v = (y.unflatten(2, (num_heads, -1)).transpose(1, 2) for y in (q, k, v))
    weights = (torch.einsum('bhlk,bhtk->bhlt', q, k) * scale).softmax(dim=-1)
    return torch.einsum('bhlt,bhtv->bhlv', weights, v).transpose(1, 2).flatten(2)


def build(name: str, args: argparse.Namespace, size: tuple[int, int]) -> nn.Module:
    """What a ``--compare`` name stands for, in evaluation or training mode, on the CPU, not yet compiled."""
    torch.manual_seed(0)
    network, variants = split_name(name)
    if network is None:
        create = CvT if args.model in CvT.arch_zoo else build_model
        model = create(args.model, **(dict(window_size=args.window_size) if 'windowed' in variants else {}))
        if 'einsum' in variants:
            for module in model.modules():
                if hasattr(module, '_attend'):
                    module._attend = partial(einsum_attention, module.num_heads, module.scale)
    elif network == 'transformers':
        from transformers import CvtConfig, CvtModel
        arch = CvT.arch_zoo[args.model]
        model = CvtModel(CvtConfig(
            embed_dim=list(arch['embed_dims']), depth=list(arch['depths']), num_heads=list(arch['num_heads']),
            drop_path_rate=list(arch['drop_path_rates'])))
    else:
        img_size = dict(img_size=size) if network.startswith('swin') else {}
        model = timm.create_model(network, features_only=True, **img_size)
    model.train(args.mode == 'train')
    if 'fused' in variants:
        backbone_of(model).fuse()
    return model


def backbone_of(model: nn.Module) -> nn.Module:
    """What the variants change."""
    return model.backbone if isinstance(model, BaseModel) else model


def split_name(name: str) -> tuple[str | None, list[str]]:
    """'fused+compiled' to (None, ['fused', 'compiled']); 'transformers+compiled' to ('transformers', ...)."""
    parts = name.split('+')
    networks = [part for part in parts if part not in VARIANTS and part != 'eager']
    if len(networks) > 1:
        raise ValueError(f'{name!r} names two networks: {networks}.')
    return (networks[0] if networks else None), [part for part in parts if part in VARIANTS]


# -- measurement -----------------------------------------------------------------------------------


def inputs_of(model: nn.Module, args: argparse.Namespace, size: tuple[int, int]) -> dict:
    if isinstance(model, BaseModel):
        return random_batch(model, args.batch, size, args.device)
    return dict(inputs=torch.rand(args.batch, 3, *size, device=args.device))


def step(model: nn.Module, batch: dict, args: argparse.Namespace) -> None:
    """One forward pass, or forward and backward."""
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
    start = time.perf_counter()
    function()
    if device == 'cuda':
        torch.cuda.synchronize()
    return time.perf_counter() - start


def cpu_memory(name: str, args: argparse.Namespace, size: tuple[int, int]) -> float | None:
    """GiB by which this process grows, to be run in a process of its own; None where it is not Linux."""
    status = Path('/proc/self/status')
    if not status.exists():
        return None

    def kib(key: str) -> int:
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(key))

    Path('/proc/self/clear_refs').write_text('5')  # the peak so far, of the imports, is forgotten
    before = kib('VmRSS:')
    model = build(name, args, size)
    step(model, inputs_of(model, args, size), args)
    return (kib('VmHWM:') - before) * 1024 / GIB


def measure(names: list[str], args: argparse.Namespace, size: tuple[int, int]) -> list[dict]:
    """One row per network: median latency over interleaved rounds, memory, share of the matmul peak."""
    side = 8192 if args.device == 'cuda' else 2048
    matrix = torch.rand(side, side, device=args.device, dtype=DTYPES[args.amp])
    steps: dict[str, Callable] = dict(matmul=lambda: matrix @ matrix)
    rows = {}
    for name in names:
        print(f'{size[0]}x{size[1]}: {name}', file=sys.stderr)
        row = rows[name] = dict(name=name, size=list(size), memory_gib=None, gflop=None)
        try:
            if args.device == 'cpu':
                with ProcessPoolExecutor(1, mp_context=get_context('spawn')) as pool:
                    row['memory_gib'] = pool.submit(cpu_memory, name, args, size).result()
            before = torch.cuda.memory_allocated() if args.device == 'cuda' else 0
            model = build(name, args, size).to(args.device)
            batch = inputs_of(model, args, size)
            with FlopCounterMode(**FLOPS) as counter:
                step(model, batch, args)
            row['gflop'] = counter.get_total_flops() / 1e9
            run = partial(step, model, batch, args)
            if 'compiled' in split_name(name)[1]:
                backbone_of(model).compile(dynamic=False)
                run()
            if args.device == 'cuda':
                torch.cuda.reset_peak_memory_stats()
                run()
                row['memory_gib'] = (torch.cuda.max_memory_allocated() - before) / GIB
            steps[name] = run
        except (BrokenProcessPool, torch.cuda.OutOfMemoryError):
            print(f'{name} does not fit into memory and is left out', file=sys.stderr)
        except (RuntimeError, ValueError) as error:
            raise SystemExit(f'{args.model}, {name} does not run on {args.batch} x {size[0]}x{size[1]} pixels: '
                             f'{error}. Try a larger --size or --batch.') from error

    times: dict[str, list[float]] = {name: [] for name in steps}
    steps['matmul']()  # warms up; the others have run
    for _ in range(args.rounds):
        for name, run in steps.items():
            times[name].append(seconds(run, args.device))
    medians = {name: statistics.median(values) for name, values in times.items()}
    peak = 2 * side**3 / medians['matmul'] / 1e9
    for name, row in rows.items():
        median = medians.get(name)
        row.update(
            latency_ms=median and 1e3 * median,
            fastest_ms=median and 1e3 * min(times[name]),
            images_per_s=median and args.batch / median,
            speedup=median and medians[names[0]] / median if names[0] in medians else None,
            share_of_peak=median and row['gflop'] / median / peak,
            matmul_gflops=peak)
    return list(rows.values())


# -- report ----------------------------------------------------------------------------------------


def print_table(rows: list[dict]) -> None:
    print(f'{"network":40} {"size":>10} {"ms":>9} {"images/s":>9} {"x first":>8} {"GiB":>7} {"GFLOP":>8} '
          f'{"peak":>6}')
    for row in rows:
        cells = [f'{row["name"]:40}', f'{"x".join(map(str, row["size"])):>10}']
        for key, spec in (('latency_ms', '9.1f'), ('images_per_s', '9.2f'), ('speedup', '8.2f'),
                          ('memory_gib', '7.2f'), ('gflop', '8.1f'), ('share_of_peak', '6.0%')):
            cells.append(' ' * (int(spec[0]) - 1) + '-' if row[key] is None else format(row[key], spec))
        print(*cells)


def save_plot(rows: list[dict], args: argparse.Namespace) -> None:
    import matplotlib
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    for axis, key, label in ((axes[0], 'latency_ms', 'ms'), (axes[1], 'memory_gib', 'peak memory, GiB')):
        for name in dict.fromkeys(row['name'] for row in rows):
            points = [(row['size'][0], row[key]) for row in rows if row['name'] == name and row[key]]
            axis.plot(*zip(*points), marker='o', label=name.replace('eager', args.model))
        axis.set(xlabel='image height, pixels', ylabel=label, xscale='log', yscale='log')
        ticks = sorted({row['size'][0] for row in rows})
        axis.set_xticks(ticks, ticks)
        axis.minorticks_off()
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter('{x:g}')
        axis.grid(alpha=.3)
    axes[0].legend()
    precision = 'fp32' if args.amp == 'none' else args.amp
    figure.suptitle(f'{args.mode}, batch {args.batch}, {precision}, {args.device}')
    figure.savefig(args.plot, dpi=120)


def print_profile(names: list[str], args: argparse.Namespace, size: tuple[int, int]) -> None:
    """The operators that take at least 1 % of each network's time, by PyTorch's profiler."""
    for name in names:
        model = build(name, args, size).to(args.device)
        run = partial(step, model, inputs_of(model, args, size), args)
        run()
        with torch.profiler.profile() as profiler:
            for _ in range(3):
                run()
        key = f'self_{"device" if args.device == "cuda" else "cpu"}_time_total'
        times = {event.key: getattr(event, key) for event in profiler.key_averages()}
        total = sum(times.values())
        print(f'\n{name}, {size[0]}x{size[1]}: share of time')
        for operator, spent in sorted(times.items(), key=lambda item: -item[1]):
            if spent >= 0.01 * total:
                print(f'{spent / total:6.1%}  {operator}')


def cpu_name() -> str:
    info = Path('/proc/cpuinfo')
    names = [line.split(':', 1)[1].strip() for line in info.read_text().splitlines() if line.startswith('model name')
             ] if info.exists() else []
    return names[0] if names else platform.processor() or platform.machine()


def environment(device: str) -> dict:
    name = torch.cuda.get_device_name() if device == 'cuda' else cpu_name()
    return dict(device=name, threads=torch.get_num_threads(), torch=torch.__version__, timm=timm.__version__,
                python=platform.python_version(), load_of_last_minutes=os.getloadavg())


# -- input pipeline --------------------------------------------------------------------------------


def timm_loader(loader: DataLoader, transform: dict) -> DataLoader:
    """timm's own loader of the same images with the same transforms, batch size and workers."""
    dataset = timm.data.ImageDataset(loader.dataset.reader.root, reader=loader.dataset.reader)
    prefetcher = timm.data.create_loader(
        dataset, batch_size=loader.batch_size, num_workers=loader.num_workers, device=torch.device('cpu'),
        persistent_workers=loader.num_workers > 0, pin_memory=loader.pin_memory, **transform)
    return prefetcher.loader  # without the normalisation on the device, which here is the model's


def loading_rate(batches: Iterator, loader: DataLoader, steps: int) -> float:
    """Images/s over the next ``steps`` batches, leaving out those that workers had time to prepare."""
    for _ in range(2 * loader.num_workers + 3):
        next(batches)
    start = time.perf_counter()
    for _ in range(steps):
        next(batches)
    return steps * loader.batch_size / (time.perf_counter() - start)


def benchmark_data(args: argparse.Namespace) -> None:
    """Prints how fast a config's training data is loaded, and how fast its model trains on a batch of it."""
    with command_line.report_errors(*command_line.SETUP_ERRORS):
        cfg = settings.adapt(settings.load_config(args), args)
        init_default_scope(cfg.get('default_scope') or 'mmengine')
        transform = cfg.train_dataloader.dataset.get('transform')
        if args.compare and type_name(cfg.train_dataloader.dataset) != 'ImageDataset':
            raise ValueError(f'--compare timm: {args.config} trains on no cvt_dense.ImageDataset, the only data set '
                             'that timm has too.')
        cfg.train_dataloader.dataset = build_datasets(cfg, ['train'])['train']
        model = revert_sync_batchnorm(MODELS.build(cfg.model)).to(args.device).train()
        optim_wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    print(f'{"":24} {"images/s":>9}')
    rates = {}
    for workers in args.workers or [cfg.train_dataloader.get('num_workers', 0)]:
        loader_cfg = copy.copy(cfg.train_dataloader)
        loader_cfg.update(num_workers=workers, persistent_workers=workers > 0)
        loaders = dict(data=Runner.build_dataloader(loader_cfg, seed=0))
        if len(loaders['data']) == 0:
            raise SystemExit(f'{args.config}: {len(cfg.train_dataloader.dataset)} training images do not fill one '
                             f'batch of {loader_cfg.batch_size}; set train_dataloader.batch_size with --cfg-options.')
        if args.compare:
            loaders['timm'] = timm_loader(loaders['data'], transform)
        batches = {name: itertools.chain.from_iterable(itertools.repeat(loader)) for name, loader in loaders.items()}
        rounds = [{name: loading_rate(batches[name], loader, args.steps) for name, loader in loaders.items()}
                  for _ in range(3)]
        medians = {name: statistics.median(rates[name] for rates in rounds) for name in loaders}
        rates[workers] = medians['data']
        for name, rate in medians.items():
            print(f'{f"{name}, {workers} workers":24} {rate:9.1f}', flush=True)
        if args.compare:
            ratio = statistics.median(rates['data'] / rates['timm'] for rates in rounds)
            print(f'{"  ratio to timm":24} {ratio:9.2f}', flush=True)
        batch = next(batches['data'])
        del batches, loaders
    for step in range(args.steps + 1):
        if step == 1:  # the first one is slower
            start = time.perf_counter()
        model.train_step(batch, optim_wrapper)
    if args.device == 'cuda':
        torch.cuda.synchronize()
    training = args.steps * len(batch['inputs']) / (time.perf_counter() - start)
    print(f'{"training step, " + args.device:24} {training:9.1f}')
    workers, rate = max(rates.items(), key=lambda item: item[1])
    print(f'{"The model" if rate > training else "The data"} limits: {workers} workers load '
          f'{rate / training:.2f} x what one training process takes.')


# -- command line ----------------------------------------------------------------------------------


def parse_windows(text: str) -> list[int | None]:
    return [None if value == 'none' else int(value) for value in text.split(',')]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    commands = parser.add_subparsers(dest='command', required=True)
    model = commands.add_parser('model', help='time and memory of a backbone or a whole model',
                                epilog=__doc__.split('\n\n')[-1])
    archs = ', '.join(CvT.arch_zoo)
    model.add_argument('model', metavar='CONFIG|ARCH',
                       help=f'config file (its whole model), or one of {archs} (the backbone alone)')
    model.add_argument('--size', type=parse_size, metavar='HxW', default=(224, 224), help='image (224x224)')
    model.add_argument('--sizes', type=lambda text: [parse_size(part) for part in text.split(',')],
                       metavar='HxW,...', help='several images instead, e.g. 224,448,800x1344')
    model.add_argument('--batch', type=int, default=8, help='images a step (8)')
    model.add_argument('--mode', choices=('infer', 'train'), default='infer')
    model.add_argument('--amp', choices=tuple(DTYPES), default='none', help='autocast (none: float32)')
    model.add_argument('--compare', type=lambda text: text.split(','), default=[], metavar='NAME,...',
                       help="'transformers' (Hugging Face's Cvt), a timm network (its features), or this CvT "
                       f"{', '.join(VARIANTS)}; a '+' combines: windowed+fused+compiled")
    model.add_argument('--window-size', type=parse_windows, default=[28, 28, None], metavar='N,...',
                       help="of 'windowed', per stage (28,28,none)")
    model.add_argument('--rounds', type=int, default=11, help='timed rounds; medians are reported (11)')
    model.add_argument('--device', choices=('cpu', 'cuda'), default='cuda' if torch.cuda.is_available() else 'cpu')
    model.add_argument('--profile', action='store_true', help="operators' share of the time, not of compiled networks")
    model.add_argument('--json', type=Path, metavar='FILE', help='write every number there')
    model.add_argument('--plot', type=Path, metavar='FILE', help='draw time and memory over the size there')
    data = commands.add_parser('data', help='the input pipeline beside the training step, in images/s')
    data.add_argument('config', help='config file')
    data.add_argument('--data-root', metavar='DIR', help='as for tools/train.py')
    data.add_argument('--cfg-options', nargs='+', action=DictAction, metavar='KEY=VALUE',
                      help='as for tools/train.py')
    data.add_argument('--workers', type=lambda text: [int(part) for part in text.split(',')], metavar='N,...',
                      help="numbers of worker processes to try (the config's)")
    data.add_argument('--steps', type=int, default=20, help='timed batches, of the data three times (20)')
    data.add_argument('--compare', choices=('timm', ), help="timm's own loader of the same images and transforms")
    data.add_argument('--device', choices=('cpu', 'cuda'),
                      default='cuda' if torch.cuda.is_available() else 'cpu')
    data.set_defaults(launcher='none', local_rank=0, work_dir=None)
    args = parser.parse_args()

    if args.command == 'data':
        if args.steps < 1 or any(workers < 0 for workers in args.workers or ()):
            parser.error(f'--steps {args.steps} --workers {args.workers}: at least 1 step, 0 or more workers')
        return args
    if args.model not in CvT.arch_zoo and not Path(args.model).is_file():
        parser.error(f'{args.model}: neither a config file nor one of {archs}')
    if args.batch < 1 or args.rounds < 1:
        parser.error(f'--batch {args.batch} --rounds {args.rounds}: both must be at least 1')
    if args.device == 'cuda' and not torch.cuda.is_available():
        parser.error('--device cuda: this PyTorch sees no CUDA device')
    for name in args.compare:
        try:
            network, variants = split_name(name)
        except ValueError as error:
            parser.error(str(error))
        if network is not None and args.model not in CvT.arch_zoo:
            parser.error(f'--compare {name}: of a config the whole model is measured, and {network} is a '
                         f'backbone alone. Compare it with one of {archs} in place of {args.model}, or '
                         f'{args.model} with {", ".join(VARIANTS)}.')
        if network not in (None, 'transformers') and not timm.is_model(network):
            parser.error(f"--compare {network}: allowed are 'transformers', {', '.join(VARIANTS)}, timm's "
                         'networks and combinations of them with +')
        if network is not None and set(variants) - {'compiled'}:
            parser.error(f'--compare {name}: {network} can only be combined with compiled')
        if 'fused' in variants and args.mode == 'train':
            parser.error(f'--compare {name}: fused is for inference, not --mode train')
    return args


def main() -> None:
    args = parse_args()
    if args.command == 'data':
        benchmark_data(args)
        return
    if args.device == 'cuda':
        torch.backends.cuda.matmul.allow_tf32 = False  # float32 means float32
        torch.backends.cudnn.allow_tf32 = False
    names = ['eager', *args.compare]
    with command_line.report_errors(*command_line.SETUP_ERRORS), torch.device('meta'):
        for name in names:
            if split_name(name)[0] is None:
                build(name, args, args.size)
    rows = []
    for size in args.sizes or [args.size]:
        rows += measure(names, args, size)
    print_table(rows)
    if args.profile:
        eager = [name for name in names if 'compiled' not in split_name(name)[1]]
        print_profile(eager, args, (args.sizes or [args.size])[-1])
    if args.json:
        settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(args).items()}
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(
            dict(settings=settings, environment=environment(args.device), rows=rows), indent=1) + '\n')
    if args.plot:
        args.plot.parent.mkdir(parents=True, exist_ok=True)
        save_plot(rows, args)


if __name__ == '__main__':
    main()
