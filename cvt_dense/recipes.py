"""Where the recipes (``configs/``) and tools are, and ``cvt_dense::NAME.py`` for recipes in anyone's ``_base_``.

MMEngine resolves ``package::folder/name.py`` for a fixed list of OpenMMLab's packages only, which no installed package
can join: it wants a folder before the name and an index of metafiles, and builds what such a config names in that
package's registry, but a recipe of ours names mmdet's and mmseg's types. So ``Config`` is taught our prefix when the
package is imported, as every tool of ours does. Where nothing imports it before the config is read (mmdet's own
``tools/train.py``), this needs no prefix and does the same:

    _base_ = __import__('cvt_dense').recipe('maskrcnn_cvt13_coco.py')
"""
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

PREFIX = 'cvt_dense::'
CONFIG_MODULE = 'mmengine.config.config'


def folder() -> Path:
    """What holds ``configs/`` and ``tools/``: ``cvt_dense/.mim`` of an installed wheel, otherwise the checkout."""
    package = Path(__file__).resolve().parent
    return package / '.mim' if (package / '.mim').is_dir() else package.parent


def recipe(name: str) -> str:
    """The path of a recipe.

    Args:
        name: file name in ``configs/``, e.g. 'maskrcnn_cvt13_coco.py' or '_base_/models/upernet_cvt.py'.

    Raises:
        FileNotFoundError: there is no such recipe.
    """
    configs = folder() / 'configs'
    path = configs / name
    if not path.is_file():
        names = ', '.join(sorted(file.name for file in configs.glob('*.py')))
        raise FileNotFoundError(f'cvt_dense has no recipe {name!r} in {str(configs)!r}. There are: {names}.')
    return str(path)


def config_file(name: str) -> str:
    """The path of a config that is named by path, or a recipe as 'cvt_dense::NAME.py'; see :func:`recipe`."""
    return recipe(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else name


def _teach(module: ModuleType) -> None:
    original = module.Config._get_cfg_path

    def get_cfg_path(cfg_path: str, filename: str) -> tuple[str, str | None]:
        if cfg_path.startswith(PREFIX):
            return config_file(cfg_path), None  # no scope: the recipe's own default_scope holds
        return original(cfg_path, filename)

    module.Config._get_cfg_path = staticmethod(get_cfg_path)


class _AfterConfig:
    """Finds MMEngine's config module as usual, and teaches it the prefix once it is loaded."""

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != CONFIG_MODULE:
            return None
        sys.meta_path.remove(cls)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_and_teach(module: ModuleType) -> None:
            load(module)
            _teach(module)

        spec.loader.exec_module = load_and_teach
        return spec


def teach_mmengine() -> None:
    """Makes ``Config`` know the prefix, at once or when MMEngine is imported; called once, by the package."""
    if CONFIG_MODULE in sys.modules:
        _teach(sys.modules[CONFIG_MODULE])
    else:
        sys.meta_path.insert(0, _AfterConfig)
