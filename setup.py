"""Everything about the package is in pyproject.toml; this only puts recipes and tools into it when it is built."""
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
SHIPPED = ('configs', 'tools', 'model-index.yml')


class BuildWithRecipes(build_py):
    """Copies what a checkout has beside the package to cvt_dense/.mim, where OpenMMLab's packages have it."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return  # the package is the checkout's own, with configs/ and tools/ beside it
        mim = Path(self.build_lib) / 'cvt_dense' / '.mim'
        shutil.rmtree(mim, ignore_errors=True)
        mim.mkdir(parents=True)
        for name in SHIPPED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, mim / name, ignore=shutil.ignore_patterns('__pycache__'))
            else:
                shutil.copy2(ROOT / name, mim / name)


setup(cmdclass=dict(build_py=BuildWithRecipes))
