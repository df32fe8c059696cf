"""Measurements as a table, as a picture and as fractions of operators, and the machine that made them."""
import argparse
import json
import os
import platform
from pathlib import Path

import timm
import torch

from cvt_dense.curves import new_figure, save_figure
from cvt_dense.fileio import write_atomically

# Linux's names of the features that decide how fast a precision is.
FEATURES = ('avx2', 'avx_vnni', 'avx512f', 'avx512_vnni', 'avx512_bf16', 'amx_bf16', 'amx_int8')


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
        settings = {key: value.name if isinstance(value, Path) else value for key, value in vars(args).items()}
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


def cpu() -> tuple[str, list[str]]:
    """Return the name of the processor, and those of :data:`FEATURES` that Linux lists for it."""
    info = Path('/proc/cpuinfo')
    lines = dict(line.split(':', 1) for line in info.read_text().splitlines() if ':' in line) if info.exists() else {}
    found = {key.strip(): value.strip() for key, value in lines.items()}
    flags = found.get('flags', '').split()
    return found.get('model name') or platform.machine(), [name for name in FEATURES if name in flags]


def environment(device: str) -> dict:
    """Return the device, the versions and the load of the machine."""
    name, features = cpu()
    if device == 'cuda':
        name = torch.cuda.get_device_name()
    return dict(device=name, features=features, threads=torch.get_num_threads(), torch=torch.__version__,
                timm=timm.__version__, python=platform.python_version(), load_of_last_minutes=os.getloadavg())
