"""Run the tools of an installed package, which has no checkout's ``tools/``.

    cvt-train mine.py                                                          as python tools/train.py mine.py
    python -m cvt_dense.commands train mine.py                                    the same
    torchrun --nproc-per-node 8 -m cvt_dense.commands train mine.py --launcher pytorch
"""
import os
import runpy
import shlex
import sys
from functools import partial

from .recipes import folder

NAMES = ('train', 'test', 'predict', 'export', 'convert_checkpoint', 'get_flops', 'benchmark', 'plot', 'attention',
         'convert_data', 'browse', 'diagnose', 'publish')


def run(name: str) -> None:
    """Run ``tools/<name>.py`` with this process's arguments, as if it had been called by its path."""
    path = folder() / 'tools' / f'{name}.py'
    sys.argv[0] = str(path)
    sys.path.insert(0, str(path.parent))  # as Python does for a script
    runpy.run_path(str(path), run_name='__main__')


def command(name: str) -> str:
    """Return how to call the tool from the current folder: 'cvt-test' if installed, else 'python tools/test.py'."""
    if folder().name == '.mim':
        return f'cvt-{name.replace("_", "-")}'
    path = os.path.relpath(folder() / 'tools' / f'{name}.py')
    return f'python {shlex.quote(os.path.abspath(path) if path.startswith("..") else path)}'


# pyproject.toml makes commands of these: cvt-train, ...
(train, test, predict, export, convert_checkpoint, get_flops, benchmark, plot, attention, convert_data, browse,
 diagnose, publish) = (partial(run, name) for name in NAMES)


def main() -> None:
    """Run ``python -m cvt_dense.commands NAME ARGS``."""
    if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
        sys.exit(f'usage: python -m cvt_dense.commands {{{",".join(NAMES)}}} ...')
    run(sys.argv.pop(1))


if __name__ == '__main__':
    main()
