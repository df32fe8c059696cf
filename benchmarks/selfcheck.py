"""Checks this machine in ten minutes: values, gradients, training and speed on its device, in one table.

    python benchmarks/selfcheck.py                                  # the GPU if there is one, otherwise the CPU
    bash benchmarks/pack_selfcheck.sh FOLDER                        # a copy with its wheels, where there is no network

Needs torch, timm, mmengine and mmcv, and for two of the checks mmdet and mmseg. ``checks.py`` has the checks. They run
one after the other in a process of their own. One that crashes, or takes longer than a third of --minutes, ends that
process, and the next check begins in a new one. ``selfcheck.json`` in --out grows with each result, so an interrupted
run leaves the results so far; ``selfcheck.log`` has what the checks print, and where one was that took too long. The
exit code is 1 if a check failed; a compilation that takes too long is skipped.
"""
import argparse
import faulthandler
import json
import multiprocessing
import os
import pkgutil
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from cvt_dense.atomic import write_atomically

SHARE = 1 / 3  # of --minutes, which one check may take


def call(function: str, *args: Any, log: Path, seconds: float) -> dict[str, Any]:
    """Return the result of 'MODULE:FUNCTION' with 'state', or end this process after a time."""
    os.setpgid(0, 0)
    with log.open('a') as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        return dict(state='ok') | pkgutil.resolve_name(function)(*args)
    except ModuleNotFoundError as reason:
        return dict(state='skipped', reason=str(reason))
    finally:
        faulthandler.cancel_dump_traceback_later()


def result(future: Future) -> dict[str, Any]:
    """Return the result of a call, or 'error' if it raised one or its process ended."""
    try:
        return future.result()
    except Exception as error:  # whatever this machine cannot do is a finding
        return dict(state='failed', error=(str(error.__cause__ or error) or type(error).__name__)[-1500:])


def checks(device: str) -> Iterator[tuple]:
    """Yield the name of each check, its function and arguments; the most important first, as time may run out."""
    cuda = device == 'cuda'
    for kind, name in product(('values', 'gradients'), ('fp32', 'tf32', 'bf16', 'fp16') if cuda else ('fp32', 'bf16')):
        yield f'{kind}, {name}', f'checks:{kind}', name, device
    for recipe, size in (('maskrcnn_cvt13_coco', (800, 1344)), ('upernet_cvt13_ade20k', (512, 512))):
        yield f'training, {recipe}', 'checks:training', recipe, size if cuda else (96, 128), device
    sizes = (((224, 224), 128), ((800, 1344), 2)) if cuda else (((64, 64), 2), ((96, 160), 1))
    networks = ('cvt-13', ), ('swin_tiny_patch4_window7_224', 'convnext_tiny')
    for suffix, group in product(('', '+compiled') if cuda else ('', ), networks):
        for (size, batch), network, train in product(sizes, group, (False, True)):
            yield (f'{network}{suffix}, {batch} x {size[0]}x{size[1]}{", training" * train}, bf16', 'checks:throughput',
                   network + suffix, size, device, batch, train)


def main() -> None:
    """Run all checks, print the table, and exit with code 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--device', choices=('cpu', 'cuda'), help='what to check (cuda, if PyTorch sees one)')
    parser.add_argument('--minutes', type=float, default=10., help='the run ends after this time (10)')
    parser.add_argument('--out', type=Path, default=Path('selfcheck'), metavar='DIR', help='folder of selfcheck.json')
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    args.out.mkdir(parents=True, exist_ok=True)
    start = partial(ProcessPoolExecutor, 1, multiprocessing.get_context('spawn'))  # CUDA does not survive a fork
    worker = start()
    run = partial(call, log=args.out / 'selfcheck.log')
    todo: list[tuple] = [('environment', 'checks:environment', args.device)]
    entries: list[dict[str, Any]] = []
    print('| check | state | seconds | result |\n|---|---|---|---|', flush=True)
    try:
        for name, function, *arguments in todo:
            begun = time.monotonic()
            left = end - begun
            seconds = min(left, SHARE * 60 * args.minutes) if entries else left  # imports may take all of the time
            found = dict(state='skipped', reason='no time left (--minutes)')
            if left > 0:
                found = result(worker.submit(run, function, *arguments, seconds=seconds))
                if 'error' in found:
                    if time.monotonic() - begun >= seconds:
                        state = 'skipped' if seconds == left or '+compiled' in name else 'failed'
                        found = dict(state=state, error=f'took longer than {seconds:.0f} s')
                    worker.shutdown(wait=False)  # an error of CUDA makes all later calls of its process fail
                    worker = start()
            if name == 'environment' and found['state'] == 'ok':
                todo += checks(found['kind'])
            state, seconds = found.pop('state'), round(time.monotonic() - begun, 1)
            entries.append(dict(name=name, state=state, seconds=seconds, **found))
            text = ', '.join(f'{key} {value:.5g}' if isinstance(value, float) else f'{key} {value}'
                             for key, value in found.items()).replace('\n', ' ')
            print(f'| {name} | {state} | {seconds} | {text} |', flush=True)
            write_atomically(args.out / 'selfcheck.json', json.dumps(entries, indent=1) + '\n')
    finally:
        for child in multiprocessing.active_children():
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    sys.exit(len(entries) == 1 or any(entry['state'] == 'failed' for entry in entries))


if __name__ == '__main__':
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that the processes are ended
    main()
