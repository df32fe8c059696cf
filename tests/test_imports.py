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


def test_the_network_needs_torch_timm_and_what_a_registered_backbone_needs_only():
    """It knows no variant; a variant knows the network's attention."""
    network = files_under('models/arch.py', 'models/attention.py', 'models/cvt.py')
    needed = ('torch', 'timm', 'mmengine.model', 'mmcv.cnn', 'cvt_dense.registry', 'cvt_dense.weights',
              'cvt_dense.models.arch', 'cvt_dense.models.attention')
    assert not offenders(network, lambda name: under(name, *needed))
    assert not offenders(files_under('models/variants'), lambda name: under(
        name, 'torch', 'timm', 'cvt_dense.registry', 'cvt_dense.models.attention', 'cvt_dense.analysis.entropy'))


def test_backbones_of_timm_need_the_weights_only():
    assert not offenders(files_under('models/timm_backbone.py'), lambda name: under(
        name, 'torch', 'timm', 'mmengine', 'cvt_dense.registry', 'cvt_dense.models.attention', 'cvt_dense.weights',
        'cvt_dense.errors'))


def test_names_and_comparison_of_weights_need_torch_only():
    files = files_under('weights/formats.py', 'weights/compare.py')
    assert not offenders(files, lambda name: under(name, 'torch', 'cvt_dense.weights', 'cvt_dense.errors'))


def test_nothing_in_the_package_imports_launch():
    files = [file for file in FILES if PACKAGE / 'launch' not in file.parents and file.name != 'api.py']
    assert not offenders(files, lambda name: not under(name, 'cvt_dense.launch'))


@pytest.mark.parametrize('part', ['datasets', 'evaluation', 'models/classifier.py', 'engine'])
def test_data_evaluation_classifier_and_engine_do_not_import_each_other(part):
    others = {'datasets', 'evaluation', 'models/classifier.py', 'engine'} - {part}
    names = [f'cvt_dense.{other.removesuffix(".py").replace("/", ".")}' for other in others]
    assert not offenders(files_under(part), lambda name: not under(name, *names))


def test_deploy_needs_torch_numpy_mmcv_cnn_and_the_runtimes_only():
    """What writes and opens exported files knows networks by what they have; only fuse.py knows CvT."""
    assert not offenders(files_under('deploy'), lambda name: under(
        name, 'torch', 'timm', 'torchao', 'numpy', 'mmcv.cnn', 'onnx', 'onnxscript', 'onnxruntime', 'openvino', 'nncf',
        'cvt_dense.deploy', 'cvt_dense.errors', 'cvt_dense.models.cvt', 'cvt_dense.models.attention'))


def test_analysis_needs_torch_and_models_only():
    """It looks into any model that runs, whoever built it."""
    assert not offenders(files_under('analysis'), lambda name: under(
        name, 'torch', 'pytorch_grad_cam', 'cvt_dense.models.cvt', 'cvt_dense.models.attention',
        'cvt_dense.models.variants', 'cvt_dense.analysis'))
