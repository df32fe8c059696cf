"""Run the tools in this process."""
import importlib.util
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from mmengine.logging import MessageHub, MMLogger
from mmengine.visualization import Visualizer

ROOT = Path(__file__).resolve().parents[1]


def load_tool(name: str) -> ModuleType:
    """The module of a command, or of a script of benchmarks/."""
    package = 'cvt_dense.cli.' if importlib.util.find_spec(f'cvt_dense.cli.{name}') else ''
    return importlib.import_module(package + name)


def forget_runs() -> None:
    """Forget MMEngine's loggers, message hubs and visualizers, of which a new process has none."""
    kinds = [MMLogger, MessageHub, Visualizer]
    for kind in kinds:  # grows meanwhile
        kinds += kind.__subclasses__()
        kind._instance_dict.clear()


def run_tool(name: str, *args: Any, rc: int = 0, cwd: Path = ROOT) -> str:
    """Run ``python tools/NAME.py ARGS`` in this process and return what it prints.

    Args:
        name: of the tool.
        args: its flags.
        rc: exit code that it must have.
        cwd: its working directory.
    """
    forget_runs()
    output = tempfile.TemporaryFile('w+', buffering=1)  # a file of the system, as tools expect of stderr
    words = [str(arg) for arg in args]
    with (redirect_stdout(output), redirect_stderr(output), chdir(cwd), mock.patch.dict('os.environ'),
          mock.patch('sys.argv', [f'{name}.py', *words])):
        try:
            code = load_tool(name).main() or 0
        except SystemExit as end:
            code = end.code or 0
    output.seek(0)
    printed = output.read()
    if isinstance(code, str):  # Python prints it and exits with 1
        printed, code = printed + code, 1
    assert code == rc, f'exit code {code}, not {rc}:\n{printed[-8000:]}'
    return printed
