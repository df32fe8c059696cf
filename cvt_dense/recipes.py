"""Find the recipes (``configs/``) and tools.

Any config inherits a recipe by ::

    _base_ = __import__('cvt_dense').recipe('maskrcnn_cvt13_coco.py')

MMEngine evaluates ``_base_`` before it runs a config file, so the line cannot use names that the file imports.
"""
from pathlib import Path


def folder() -> Path:
    """Return the folder of ``configs/`` and ``tools/``: ``.mim`` of an installed wheel, otherwise the checkout."""
    package = Path(__file__).resolve().parent
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
