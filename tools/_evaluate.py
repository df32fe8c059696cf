"""Compare a checkpoint with the files exported from it: metrics, size, speed."""
import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from cvt_dense.config.options import format_option
from cvt_dense.errors import UserError

TEST = Path(__file__).with_name('test.py')
MAIN = '(top1|top5|_mAP|mIoU|aAcc)$'  # main metrics of each task; other metrics are variants of these


def evaluate(args: argparse.Namespace, file: Path | None) -> dict[str, float]:
    """Return the metrics of ``tools/test.py`` for an exported file, or for the checkpoint.

    Args:
        args: flags of ``tools/export.py``.
        file: exported file; None: the checkpoint itself.

    Raises:
        UserError: the test failed; the message has the end of its output.
    """
    command = [sys.executable, str(TEST), args.config, args.checkpoint]
    if file is not None:
        command = [*command, '--backbone', str(file)] if args.part == 'backbone' else [*command[:-1], str(file)]
    if args.data_root is not None:
        command += ['--data-root', args.data_root]
    if args.cfg_options:
        command += ['--cfg-options', *(format_option(*option) for option in args.cfg_options.items())]
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run([*command, '--work-dir', folder], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)
        logged = [path for path in Path(folder).rglob('*.json') if path.stem == path.parent.name]  # TIME/TIME.json
        if result.returncode or not logged:
            raise UserError(f'--evaluate: {" ".join(command)} ended with {result.returncode}: {result.stdout[-600:]}')
        metrics = json.loads(logged[-1].read_text())
    for line in result.stdout.splitlines():
        if file is not None and f'{file} pads' in line:  # by more than the checkpoint sees
            print(line)
    return {key: value for key, value in metrics.items() if re.search(MAIN, key) and not key.startswith('raw/')}


def images_per_second(run: Callable[[torch.Tensor], object], image: torch.Tensor) -> float:
    """Return the speed with one image at a time: the median of 5 after one to warm up."""
    times = []
    for _ in range(6):
        start = time.perf_counter()
        run(image)
        times.append(time.perf_counter() - start)
    return 1 / sorted(times[1:])[2]


def print_table(rows: dict[str, tuple[dict[str, float], float, float]]) -> None:
    """Print metrics, size and speed of the checkpoint and of each file.

    Args:
        rows: by name metrics, size in 1e6 bytes and images/s.
    """
    metrics = list(next(iter(rows.values()))[0])
    width = max(map(len, rows)) + 2
    print(f'{"":<{width}}' + ''.join(f'{name:>{max(len(name), 8) + 2}}' for name in metrics)
          + f'{"MB":>10}{"images/s":>10}')
    for name, (found, size, speed) in rows.items():
        print(f'{name:<{width}}' + ''.join(f'{found[key]:>{max(len(key), 8) + 2}.4g}' for key in metrics)
              + f'{size:>10.2f}{speed:>10.1f}')
