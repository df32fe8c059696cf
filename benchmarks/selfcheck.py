"""Checks this machine: the network's values, gradients and training on its device, then a table of speeds.

    python benchmarks/selfcheck.py                                  # the GPU if there is one, otherwise the CPU
    python benchmarks/selfcheck.py --device cuda --minutes 20 --out selfcheck

Needs torch, timm, mmengine and mmcv (mmcv-lite will do). ``selfcheck.json`` in --out grows with each result, so an
interrupted run leaves the results so far; checks that cannot run here are skipped with the reason. The exit code is
1 if a check failed.
"""
import argparse
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / 'tools'), str(ROOT)]

from cvt_dense.atomic import write_atomically

# (what, arguments of tools/benchmark.py model); the most important ones first, because time may run out.
TRANSFORMER, BASELINES = 'transformers', 'swin_tiny_patch4_window7_224,convnext_tiny,pvt_v2_b2'
WINDOWED = ['windowed', 'windowed+fused']
TABLES = {
    'cuda': [
        (f'{arch}, {size} x {batch}, {mode}, {amp}', [
            arch, '--size', size, '--batch', batch, '--mode', mode, '--amp', amp, '--compare', ','.join(
                ([] if size == '224' else [WINDOWED[mode == 'infer']])
                + (['fused', 'fused+compiled'] if mode == 'infer' else ['compiled'])
                + ([TRANSFORMER, BASELINES] if arch == 'cvt-13' else []))])
        for arch in ('cvt-13', 'cvt-21', 'cvt-w24')
        for size, batch in (('224', '128'), ('800x1344', '2'))
        for mode in ('infer', 'train') for amp in ('bf16', 'none')],
    'cpu': [
        (f'cvt-13, {size} x {batch}, {mode}, {amp}', [
            'cvt-13', '--size', size, '--batch', batch, '--mode', mode, '--amp', amp, '--rounds', '3',
            '--compare', 'windowed' if mode == 'train' else 'windowed,fused'])
        for size, batch in (('64', '2'), ('96x160', '1')) for mode in ('infer', 'train') for amp in ('none', 'bf16')]}


class Report:
    """Shows findings on the console and writes them to a file, which is complete after every entry.

    Args:
        path: file to write.
        until: value of ``time.monotonic()`` after which no check is begun.
    """

    def __init__(self, path: Path, until: float):
        self.path, self.until = path, until
        self.entries: list[dict[str, Any]] = []

    def run(self, name: str, check: Any, *args: Any) -> None:
        """Run a check, add its result, and write the file. An exception of the check is recorded as a failure.

        Args:
            name: name of the check.
            check: returns a dict, with ``failed=True`` where the check failed.
            *args: of the check.
        """
        from _selfcheck import Skip
        start = time.monotonic()
        try:
            if start > self.until:
                raise Skip('no time left (--minutes)')
            found = check(*args)
            state = 'failed' if found.pop('failed', False) else 'ok'
            found['seconds'] = round(time.monotonic() - start, 1)
        except Skip as reason:
            state, found = 'skipped', dict(reason=str(reason))
        except Exception as error:
            state, found = 'failed', dict(error=f'{type(error).__name__}: {error}'[:2000])
        self.entries.append(dict(name=name, state=state, **found))
        text = ', '.join(f'{key} {value:.3g}' if isinstance(value, float) else f'{key} {value}'
                         for key, value in found.items() if key != 'rows')
        print(f'{state:8}{name}: {text}', flush=True)
        write_atomically(self.path, json.dumps(self.entries, indent=1) + '\n')


def speeds(arguments: list[str], device: str, seconds: float) -> dict[str, Any]:
    """Return the rows of tools/benchmark.py, which runs in its own process so that a crash leaves this one alive.

    Args:
        arguments: arguments of ``benchmark.py model``.
        device: 'cpu' or 'cuda'.
        seconds: time limit.

    Raises:
        Skip: the time limit is reached.
        RuntimeError: the process failed.
    """
    from _selfcheck import Skip
    if importlib.util.find_spec(TRANSFORMER) is None:
        arguments = [text.replace(f',{TRANSFORMER}', '') for text in arguments]
    with TemporaryDirectory() as folder:
        file = Path(folder) / 'rows.json'
        command = [sys.executable, ROOT / 'tools/benchmark.py', 'model', *arguments, '--device', device, '--json', file]
        try:
            done = subprocess.run(command, timeout=seconds, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except subprocess.TimeoutExpired:
            raise Skip(f'took longer than the {seconds:.0f} s that were left (--minutes)') from None
        if done.returncode:
            raise RuntimeError(done.stdout[-1500:])
        print(done.stdout)
        rows = json.loads(file.read_text())['rows']
    return dict(rows=rows, images_per_s=rows[0]['images_per_s'], gib=rows[0]['memory_gib'])


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--device', choices=('cpu', 'cuda'), help='what to check (cuda, if PyTorch sees one)')
    parser.add_argument('--minutes', type=float, default=20., help='no check or table is begun later than this (20)')
    parser.add_argument('--out', type=Path, default=Path('selfcheck'), metavar='DIR',
                        help='folder of selfcheck.json (selfcheck)')
    return parser


def main() -> None:
    """Run all checks and exit with code 1 if one failed."""
    parser = build_parser()
    args = parser.parse_args()
    if not args.minutes > 0:
        parser.error(f'--minutes {args.minutes}: must be more than 0')
    args.out.mkdir(parents=True, exist_ok=True)
    import torch
    device = args.device or ('cuda' if torch.cuda.is_available() else 'cpu')
    if device == 'cuda' and not torch.cuda.is_available():
        parser.error(f'--device cuda: this PyTorch ({torch.__version__}) sees no CUDA device')
    from _selfcheck import CHECKS
    from mmengine.logging import MMLogger

    from cvt_dense.cli.benchmark.report import environment
    MMLogger.get_current_instance().setLevel('WARNING')
    end = time.monotonic() + 60 * args.minutes  # without the imports, which a busy machine makes long
    report = Report(args.out / 'selfcheck.json', end)
    report.run('environment', environment, device)
    for name, check in CHECKS.items():
        report.run(name, check, device)
    for name, arguments in TABLES[device]:
        report.run(f'speed, {name}', speeds, arguments, device, end - time.monotonic())
    states = [entry['state'] for entry in report.entries]
    counts = ', '.join(f'{states.count(state)} {state}' for state in ('ok', 'failed', 'skipped'))
    print(f'\n{counts}: {report.path}')
    sys.exit('failed' in states)


if __name__ == '__main__':
    main()
