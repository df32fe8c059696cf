"""Measurements as a table, as a picture and as fractions of operators, and the machine that made them."""
import argparse
import json
import os
import platform
from functools import partial
from pathlib import Path

import timm
import torch

from cvt_dense.curves import new_figure, save_figure
from cvt_dense.deploy.cpu import cpu_features
from cvt_dense.fileio import write_atomically

from .measure import inputs_of, step
from .networks import build


def print_table(rows: list[dict]) -> None:
    """Print measured rows as a table; a dash stands for what was not measured."""
    print(f'{"network":40} {"size":>10} {"ms":>9} {"images/s":>9} {"x first":>8} {"GiB":>7} {"GFLOP":>8} '
          f'{"peak":>6}')
    for row in rows:
        cells = [f'{row["name"]:40}', f'{"x".join(map(str, row["size"])):>10}']
        for key, spec in (('latency_ms', '9.1f'), ('images_per_s', '9.2f'), ('speedup', '8.2f'),
                          ('memory_gib', '7.2f'), ('gflop', '8.1f'), ('share_of_peak', '6.0%')):
            cells.append(' ' * (int(spec[0]) - 1) + '-' if row[key] is None else format(row[key], spec))
        print(*cells)


def print_peaks(rows: list[dict], device: str) -> None:
    """Print the speeds to which the column "peak" refers: the CPU, its instruction sets, and the library that won."""
    found = environment(device)
    peaks = {row['peak_precision']: row for row in rows if row['peak_gflops']}
    texts = [f"{row['peak_gflops']:.0f} GFLOP/s in {'float32' if precision == 'none' else precision} by "
             f"{row['peak_library']}" for precision, row in peaks.items()]
    print(f"peak: {', '.join(texts)}, {found['threads']} threads, {found['device']} "
          f"({', '.join(found['features'])})")


def write_json(args: argparse.Namespace, rows: list[dict], device: str) -> None:
    """Write rows with the flags and the environment to ``args.json``, if that is given.

    Args:
        args: command line.
        rows: what was measured.
        device: 'cpu' or 'cuda'.
    """
    if args.json:
        settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(args).items()}
        write_atomically(args.json, json.dumps(
            dict(settings=settings, environment=environment(device), rows=rows), indent=1) + '\n')


def save_plot(rows: list[dict], args: argparse.Namespace) -> None:
    """Draw time and memory of each network over the size of the image to ``args.plot``."""
    from matplotlib.ticker import LogLocator
    figure, axes = new_figure(1, 2)
    for axis, key, label in zip(axes[0], ('latency_ms', 'memory_gib'), ('ms', 'peak memory, GiB')):
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
    axes[0][0].legend()
    precision = 'fp32' if args.amp == 'none' else args.amp
    figure.suptitle(f'{args.mode}, batch {args.batch}, {precision}, {args.device}')
    save_figure(figure, args.plot)


def print_profile(names: list[str], args: argparse.Namespace, size: tuple[int, int]) -> None:
    """Print the operators that take at least 1 % of each network's time, measured by PyTorch's profiler.

    Args:
        names: of the columns.
        args: command line.
        size: (H, W) of the image in pixels.
    """
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
        print(f'\n{name}, {size[0]}x{size[1]}: fraction of time')
        for operator, spent in sorted(times.items(), key=lambda item: -item[1]):
            if spent >= 0.01 * total:
                print(f'{spent / total:6.1%}  {operator}')


def cpu_name() -> str:
    """Return the name of the processor."""
    info = Path('/proc/cpuinfo')
    names = [line.split(':', 1)[1].strip() for line in info.read_text().splitlines() if line.startswith('model name')
             ] if info.exists() else []
    return names[0] if names else platform.processor() or platform.machine()


def environment(device: str) -> dict:
    """Return the device, the versions and the load of the machine."""
    name = torch.cuda.get_device_name() if device == 'cuda' else cpu_name()
    return dict(device=name, features=cpu_features(), threads=torch.get_num_threads(), torch=torch.__version__,
                timm=timm.__version__, python=platform.python_version(), load_of_last_minutes=os.getloadavg())
