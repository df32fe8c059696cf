"""``benchmark.py start``: seconds from typing a training command to its first error, line and iteration.

On drawn shapes, with the smallest recipes, on the CPU. Medians; the first round, in which files are read from the disk,
is left out. ``--checkout`` measures another checkout of this project with the same Python.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from .report import environment

HELP = 'seconds to the first error, the first line and the first iteration of a training'
ROOT = Path(__file__).parents[2]
RECIPES = dict(cvt_nano_shapes='classification', maskrcnn_cvt_nano_shapes='detection',
               upernet_cvt_nano_shapes='segmentation')
ITERATION = re.compile(r'(Epoch|Iter)\(train\)')


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--rounds', type=int, default=5, help='timed rounds; medians are reported (5)')
    parser.add_argument('--checkout', type=Path, default=ROOT, metavar='DIR', help='the one to measure (this one)')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write every number there')


def check(args: argparse.Namespace) -> None:
    if args.rounds < 1:
        raise ValueError(f'--rounds {args.rounds}: must be at least 1')
    if not (args.checkout / 'tools/train.py').is_file():
        raise ValueError(f'--checkout {args.checkout}: no checkout of this project')


def commands(data: Path, work_dir: Path) -> dict[str, tuple[list[str], re.Pattern]]:
    """By name what follows ``tools/train.py``, and the line of its output that is waited for."""
    error, any_line = re.compile('error:'), re.compile('.')
    found = {
        'error in the command line': (['configs/cvt13_in1k.py', '--amp', 'int8'], error),
        "error in the config's path": (['configs/nowhere.py'], error),
        'error in the data root': (['configs/maskrcnn_cvt13_coco.py', '--data-root', '/nowhere'], error)}
    for recipe, folder in RECIPES.items():
        args = [f'configs/{recipe}.py', '--data-root', str(data / folder), '--work-dir', str(work_dir), '--overwrite',
                '--cfg-options', 'train_dataloader.num_workers=0', 'train_dataloader.persistent_workers=False',
                'default_hooks.logger.interval=1']
        found[f'{recipe}: error in a key'] = [*args, 'modle.x=1'], error
        found[f'{recipe}: first line'] = args, any_line
        found[f'{recipe}: first iteration'] = args, ITERATION
    return found


def seconds_to(line: re.Pattern, command: list[str], folder: Path) -> float:
    """From the start of a process to the first line of its output in which ``line`` is found; then it is ended."""
    start = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=dict(os.environ, PYTHONUNBUFFERED='1')) as process:
        seen = []
        for text in process.stdout:
            seen.append(text)
            if line.search(text):
                spent = time.perf_counter() - start
                process.kill()
                return spent
    raise SystemExit(f'{" ".join(command)} ended without {line.pattern!r}:\n{"".join(seen)[-2000:]}')


def run(args: argparse.Namespace) -> None:
    from _shapes import generate
    python, folder = sys.executable, args.checkout.resolve()
    with TemporaryDirectory() as scratch:
        data = generate(Path(scratch) / 'shapes', train=8, val=2, train_per_class=4, val_per_class=1)
        found = {'python -c "import cvt_dense"': (
            [python, '-c', 'import cvt_dense; print("done")'], re.compile('done'))}
        for name, (flags, line) in commands(data, Path(scratch) / 'run').items():
            found[name] = [python, 'tools/train.py', *flags], line
        times: dict[str, list[float]] = {name: [] for name in found}
        for number in range(args.rounds + 1):
            for name, (command, line) in found.items():
                spent = seconds_to(line, command, folder)
                if number:
                    times[name].append(spent)
    rows = [dict(what=name, seconds=statistics.median(spent), all=spent) for name, spent in times.items()]
    for row in rows:
        print(f'{row["what"]:56} {row["seconds"]:6.2f} s')
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(dict(settings={k: str(v) for k, v in vars(args).items()},
                                             environment=environment('cpu'), rows=rows), indent=1) + '\n')
