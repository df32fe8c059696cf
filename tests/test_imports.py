"""Who may import what."""
import ast
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


def under(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + '.') for package in packages)


def files_under(*folders: str):
    found = [f for f in FILES for folder in folders if f == PACKAGE / folder or PACKAGE / folder in f.parents]
    assert found, folders
    return found


def offenders(files, allowed):
    return [(str(file.relative_to(PACKAGE)), name) for file in files for name in imports_of(file)
            if name.split('.')[0] not in sys.stdlib_module_names and not allowed(name)]


def test_nothing_imports_mmdet_or_mmseg():
    assert not offenders(FILES, lambda name: not under(name, 'mmdet', 'mmseg'))


def test_layers_need_torch_and_timm_only():
    assert not offenders(files_under('models/layers'),
                         lambda name: under(name, 'torch', 'timm', 'cvt_dense.models.layers'))


def test_backbones_need_layers_loading_registry_mmengine_and_mmcv_cnn_only():
    assert not offenders(files_under('models/backbones'), lambda name: under(
        name, 'torch', 'mmengine', 'mmcv.cnn', 'cvt_dense.registry', 'cvt_dense.models.layers',
        'cvt_dense.models.backbones', 'cvt_dense.models.loading'))


def test_checkpoint_needs_torch_only():
    assert not offenders(files_under('checkpoint'), lambda name: under(name, 'torch', 'cvt_dense.checkpoint'))


@pytest.mark.parametrize('part', ['datasets', 'evaluation', 'models/classifier.py', 'engine'])
def test_data_evaluation_classifier_and_engine_do_not_import_each_other(part):
    others = {'datasets', 'evaluation', 'models/classifier.py', 'engine'} - {part}
    names = [f'cvt_dense.{other.removesuffix(".py").replace("/", ".")}' for other in others]
    assert not offenders(files_under(part), lambda name: not under(name, *names))


def test_compat_is_imported_before_timm():
    users = {file.relative_to(PACKAGE).parts[0] for file in FILES
             if file.parent != PACKAGE and any(under(name, 'timm') for name in imports_of(file))}
    assert 'models' in users
    for folder in users:
        assert next(imports_of(PACKAGE / folder / '__init__.py')) == 'cvt_dense.compat', folder
