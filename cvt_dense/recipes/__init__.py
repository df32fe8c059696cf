"""Find the recipes (``configs/``) and tools.

Any config inherits a recipe by ::

    _base_ = __import__('cvt_dense').recipe('maskrcnn_cvt13_coco.py')

MMEngine evaluates ``_base_`` before it runs a config file, so the line cannot use names that the file imports.
"""
import os
import shlex
from pathlib import Path


def folder() -> Path:
    """Return the folder of ``configs/`` and ``tools/``: ``.mim`` of an installed wheel, otherwise the checkout."""
    package = Path(__file__).resolve().parents[1]
    return package / '.mim' if (package / '.mim').is_dir() else package.parent


def recipe(name: str) -> str:
    """Return the path of a recipe.

    Args:
        name: file name in ``configs/``, e.g. 'maskrcnn_cvt13_coco.py' or '_base_/models/upernet_cvt.py'.

    Raises:
        FileNotFoundError: if there is no such recipe.
    """
    configs = folder() / 'configs'
    path = configs / name
    if not path.is_file():
        names = ', '.join(sorted(file.name for file in configs.glob('*.py')))
        raise FileNotFoundError(f'cvt_dense has no recipe {name!r} in {str(configs)!r}. There are: {names}.')
    return str(path)


def command(name: str) -> str:
    """Return how to call the tool from the current folder: 'cvt-test' if installed, else 'python tools/test.py'."""
    if folder().name == '.mim':
        return f'cvt-{name.replace("_", "-")}'
    path = os.path.relpath(folder() / 'tools' / f'{name}.py')
    return f'python {shlex.quote(os.path.abspath(path) if path.startswith("..") else path)}'
