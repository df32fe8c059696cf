"""Put each mistake of faults.toml into a copy of the project and see whether its test fails: make faults.

    python tests/faults.py [WORD ...]        only those whose file or test contains all words
"""
import importlib
import os
import shutil
import sys
import tempfile
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FAULTS = tomllib.loads((ROOT / 'tests/faults.toml').read_text())['fault']
COPIED = ('cvt_dense', 'configs', 'tools', 'tests', 'benchmarks', 'docs', 'pyproject.toml', 'model-index.yml')
SLOW_IMPORTS = ('torch', 'torchvision', 'timm', 'mmengine.runner', 'matplotlib.pyplot', 'supervision')


@cache
def fails(copy: Path, test: str, mistake: str = '') -> bool:
    """Return whether a test of the copy fails; it runs in a fork, which need not import PyTorch again.

    Args:
        copy: folder of the copy.
        test: id of the test.
        mistake: what is in the copy, so that the result with it is another one.
    """
    if not (process := os.fork()):
        os.chdir(copy)
        sys.path.insert(0, str(copy))
        os.environ['PYTHONPATH'] = str(copy)
        output = os.open(copy / 'output.txt', os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(output, 1), os.dup2(output, 2)
        os._exit(pytest.main(['-q', '-x', '-p', 'no:cacheprovider', str(copy / test)]))
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    # A negative code is the signal that has ended the process, such as one that no hook waits for any more.
    return code < 0 or code == pytest.ExitCode.TESTS_FAILED and '\nFAILED ' in (copy / 'output.txt').read_text()


def is_caught(copy: Path, fault: dict[str, str]) -> bool:
    """Return whether the test fails with the mistake in the copy, and not without it."""
    file, original = copy / fault['file'], (ROOT / fault['file']).read_text()
    file.write_text(original.replace(fault['old'], fault['new']))
    caught = fails(copy, fault['test'], fault['file'] + fault['new'])
    file.write_text(original)
    return caught and not fails(copy, fault['test'])


def main() -> None:
    chosen = [fault for fault in FAULTS if all(word in fault['file'] + fault['test'] for word in sys.argv[1:])]
    missed = 0
    for name in SLOW_IMPORTS:
        importlib.import_module(name)
    sys.path[:] = [path for path in sys.path if path and Path(path).resolve() not in (ROOT, ROOT / 'tests')]
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, Path(folder) / name)
        for number, fault in enumerate(chosen, 1):
            caught = is_caught(Path(folder), fault)
            missed += not caught
            print(f'{number}/{len(chosen)} {"caught" if caught else "MISSED"}: {fault["new"]!r} in {fault["file"]} by '
                  f'{fault["test"]}', flush=True)
    sys.exit(f'{missed} of {len(chosen)} mistakes were missed.' if missed else 0)


if __name__ == '__main__':
    main()
