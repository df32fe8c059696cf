"""Put each mistake of faults.toml into a copy of the project and see whether its test fails: make faults.

    python tests/faults.py [PATTERN]        only those whose file or test contains PATTERN
"""
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FAULTS = tomllib.loads((ROOT / 'tests/faults.toml').read_text())['fault']
COPIED = ('cvt_dense', 'configs', 'tools', 'tests', 'benchmarks', 'docs', 'pyproject.toml', 'model-index.yml')


def is_caught(copy: Path, fault: dict[str, str]) -> bool:
    """Return whether the test fails with the mistake in it, and not before it has begun."""
    file, original = copy / fault['file'], (ROOT / fault['file']).read_text()
    file.write_text(original.replace(fault['old'], fault['new']))
    run = subprocess.run(
        [sys.executable, '-m', 'pytest', '-q', '-x', '-p', 'no:cacheprovider', fault['test']], cwd=copy,
        env=dict(os.environ, PYTHONPATH=str(copy)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    file.write_text(original)
    return run.returncode == 1 and ' failed' in run.stdout.splitlines()[-1]


def main() -> None:
    chosen = [fault for fault in FAULTS if all(word in fault['file'] + fault['test'] for word in sys.argv[1:])]
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, Path(folder) / name)
        for number, fault in enumerate(chosen, 1):
            caught = is_caught(Path(folder), fault)
            missed += [] if caught else [fault]
            print(f'{number}/{len(chosen)} {"caught" if caught else "MISSED"}: {fault["file"]} {fault["new"]!r} by '
                  f'{fault["test"]}', flush=True)
    sys.exit(f'{len(missed)} of {len(chosen)} mistakes were missed.' if missed else 0)


if __name__ == '__main__':
    main()
