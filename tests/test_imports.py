"""Who may import what, and that importing the package leaves the process as it was."""
import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / 'cvt_dense'
FILES = sorted(PACKAGE.rglob('*.py'))


def imports_of(file: Path):
    """Absolute dotted names of everything a file imports, inside functions too, in order."""
    package = ('cvt_dense', *file.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = '.'.join(package[:len(package) - node.level + 1]) + '.' if node.level else ''
            module = base + (node.module or '')
            yield from (f'{module.rstrip(".")}.{alias.name}' for alias in node.names)


def under(name: str, packages: list[str]) -> bool:
    return any(name == package or name.startswith(package + '.') for package in packages)


# The packages that the network may import, besides Python's own.
OF_MODELS = ['torch', 'timm', 'mmengine', 'mmcv.cnn', 'cvt_dense.registry', 'cvt_dense.models', 'cvt_dense.weights',
             'cvt_dense.errors']
PARTS = 'pretraining', 'engine'  # which do not import each other
FORBIDDEN = {part: [f'cvt_dense.{other}' for other in PARTS if other != part] for part in PARTS}
FORBIDDEN['config.py'] = ['cvt_dense.models', 'cvt_dense.pretraining', 'cvt_dense.engine']
FORBIDDEN['weights'] = ['cvt_dense.models', 'cvt_dense.pretraining', 'cvt_dense.engine', 'cvt_dense.inference']
# What writes and opens exported files recognises networks by their attributes, not by their package.
FORBIDDEN['deploy'] = [*FORBIDDEN['weights'][1:], 'cvt_dense.weights', 'cvt_dense.annotations', 'cvt_dense.report']
for name in sorted({file.relative_to(PACKAGE).parts[0] for file in FILES} - {'cli'}):
    # Only commands and the package's face import launch, and only scopes mmdet and mmseg.
    launch = [] if name in ('launch', '__init__.py') else ['cvt_dense.launch']
    scopes = [] if name == 'scopes' else ['mmdet', 'mmseg']
    FORBIDDEN[name] = ['cvt_dense.cli', *scopes, *launch, *FORBIDDEN.get(name, [])]


@pytest.mark.parametrize('part, packages, allowed', [
    ('models', OF_MODELS, True), *((*item, False) for item in FORBIDDEN.items())])
def test_imports_of_each_part(part, packages, allowed):
    files = [file for file in FILES if PACKAGE / part in (file, *file.parents)]
    names = [(file.name, name) for file in files for name in imports_of(file)
             if name.split('.')[0] not in sys.stdlib_module_names]
    assert files and not [pair for pair in names if under(pair[1], packages) != allowed]


# What a process has that an import could replace: functions, classes and their methods, of modules that are loaded.
SNAPSHOT = """
import importlib, inspect, logging, sys, warnings

def snapshot():
    values = {'showwarning': warnings.showwarning, 'lastResort': logging.lastResort, 'meta_path': tuple(sys.meta_path),
             'path_hooks': tuple(sys.path_hooks), 'stdout': sys.stdout, 'excepthook': sys.excepthook}
    for module_name, module in list(sys.modules.items()):
        if module_name.split('.')[0] not in ('mmengine', 'mmcv', 'timm', 'pycocotools', 'torch', 'logging', 'warnings'):
            continue
        for name, value in list(vars(module).items()):
            if callable(value):
                values[module_name, name] = value
            if inspect.isclass(value) and value.__module__ == module_name:
                values.update({(module_name, name, key): method for key, method in vars(value).items()
                               if callable(method) or isinstance(method, (staticmethod, classmethod, property))})
    return values

for name in ('torch', 'torchvision', 'timm', 'mmengine.runner', 'mmengine.config', 'mmengine.registry', 'mmcv.cnn',
             'pycocotools.coco', 'pycocotools.cocoeval', 'torch.utils.checkpoint', 'torch.nn.utils.fusion'):
    importlib.import_module(name)
before = snapshot()
import cvt_dense
from mmengine.registry import MODELS
import cvt_dense.models, cvt_dense.datasets, cvt_dense.weights, cvt_dense.deploy
arch = dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6))
MODELS.build(dict(type='cvt_dense.ImageClassifier', num_classes=2,
                  backbone=dict(type='cvt_dense.CvT', arch=arch, out_type='cls_token')))
after = snapshot()
changed = [key for key in before if after.get(key) is not before[key] and after.get(key) != before[key]]
assert len(before) > 1000
print('changed:', changed)
assert not changed
"""


@pytest.mark.slow
def test_importing_and_building_leaves_the_process_as_it_was():
    result = subprocess.run([sys.executable, '-c', SNAPSHOT], cwd=PACKAGE.parent, text=True, capture_output=True)
    assert result.returncode == 0, result.stdout + result.stderr[-2000:]
