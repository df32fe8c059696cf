"""Mistakes are reported before PyTorch and the mm packages are imported; the tests look at imports, not at a clock."""
import subprocess
import sys

import pytest

HEAVY = ('torch', 'mmengine', 'mmdet', 'mmseg', 'transformers', 'matplotlib')


@pytest.fixture
def without(tmp_path):
    """Environment in which importing any of the packages is an error."""

    def without(*packages: str) -> dict[str, str]:
        for package in packages:
            (tmp_path / f'{package}.py').write_text(f"raise SystemExit('{package} is imported')")
        return dict(PYTHONPATH=str(tmp_path))

    return without


def python(script: str) -> str:
    return subprocess.run([sys.executable, '-c', script], check=True, text=True, stdout=subprocess.PIPE).stdout


def test_the_package_imports_nothing_heavy_until_it_is_needed():
    script = f'import cvt_dense, sys; print([name for name in {HEAVY} if name in sys.modules]); print(cvt_dense.CvT)'
    assert python(script) == "[]\n<class 'cvt_dense.models.cvt.CvT'>\n"
    with pytest.raises(AttributeError, match="module 'cvt_dense' has no attribute 'Cvt'"):
        sys.modules['cvt_dense'].Cvt


@pytest.mark.parametrize('command, message', [
    ('train.py', 'the following arguments are required: config'),
    ('train.py CONFIG --amp int8', "argument --amp: invalid choice: 'int8'"),
    ('train.py nowhere.py', "error: config file 'nowhere.py' does not exist."),
    ('train.py CONFIG --data-root /nowhere', "error: --data-root '/nowhere' is not a folder."),
    ('train.py CONFIG --data-root tests', "the folder 'tests/train2017/' (data_prefix.img) does not exist"),
    ('train.py configs/cvt13_in1k.py', "error: data root 'data/imagenet' is not a folder; give the right one with"),
    ('train.py CONFIG --data-root tests --no-check --resume a.pth', "error: checkpoint 'a.pth' does not exist."),
    ('test.py CONFIG nowhere.pth', "error: checkpoint 'nowhere.pth' does not exist."),
    ('predict.py CONFIG nowhere.pth nowhere.jpg', 'nowhere.jpg does not exist.'),
    ('predict.py CONFIG nowhere.pth benchmarks/predictions.jpg', "error: checkpoint 'nowhere.pth' does not exist."),
])
def test_wrong_command_lines_and_paths_need_no_torch(command, message, run_tool, without):
    tool, *args = command.replace('CONFIG', 'configs/maskrcnn_cvt13_coco.py').split()
    assert message in run_tool(f'tools/{tool}', *args, rc=2, **without('torch', 'transformers', 'matplotlib')).stdout
