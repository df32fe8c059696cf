"""Measurements as a table and as JSON, and the machine that made them."""
import argparse
import json
import os
import platform
from pathlib import Path

import timm
import torch

from ...atomic import write_atomically

# Linux's names of the features that decide how fast a precision is.
FEATURES = ('avx2', 'avx_vnni', 'avx512f', 'avx512_vnni', 'avx512_bf16', 'amx_bf16', 'amx_int8')


def print_table(rows: list[dict]) -> None:
    """Print measured rows as a table; a dash stands for what was not measured."""
    columns = dict(latency_ms=('ms', '.1f'), images_per_s=('images/s', '.2f'), speedup=('x first', '.2f'),
                   memory_gib=('GiB', '.2f'))
    print(f'{"network":40} {"size":>10}', *(f'{title:>9}' for title, _ in columns.values()))
    for row in rows:
        print(f'{row["name"]:40} {"x".join(map(str, row["size"])):>10}', *(
            f'{"-" if row[key] is None else format(row[key], digits):>9}' for key, (_, digits) in columns.items()))


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


def environment(device: str) -> dict:
    """Return the device, the versions and the load of the machine."""
    info = Path('/proc/cpuinfo')
    lines = dict(line.split(':', 1) for line in info.read_text().splitlines() if ':' in line) if info.exists() else {}
    cpu = {key.strip(): value.strip() for key, value in lines.items()}
    flags = cpu.get('flags', '').split()
    name = torch.cuda.get_device_name() if device == 'cuda' else cpu.get('model name') or platform.machine()
    return dict(device=name, features=[feature for feature in FEATURES if feature in flags],
                threads=torch.get_num_threads(), torch=torch.__version__, timm=timm.__version__,
                python=platform.python_version(), load_of_last_minutes=os.getloadavg())
