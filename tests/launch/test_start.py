"""What is wrong is said before PyTorch and the mm packages are imported; judged by what is imported, not by a clock."""
import inspect
import subprocess
import sys

import pytest
from mmengine.runner import Runner

from cvt_dense.launch import overrides

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
    ('train.py CONFIG --cfg-options modle.x=1', "has no 'modle', and nothing reads it. Did you mean model.x?"),
    ('train.py CONFIG --data-root /nowhere', "error: --data-root '/nowhere' is not a folder."),
    ('train.py CONFIG --data-root tests', "the folder 'tests/train2017/' (data_prefix.img) does not exist"),
    ('train.py configs/cvt13_in1k.py', "error: data root 'data/imagenet' is not a folder; give the right one with"),
    ('train.py CONFIG --data-root tests --no-check --resume a.pth', "error: checkpoint 'a.pth' does not exist."),
    ('test.py CONFIG nowhere.pth', "error: checkpoint 'nowhere.pth' does not exist."),
    ('predict.py CONFIG nowhere.pth nowhere.jpg', 'error: image nowhere.jpg does not exist.'),
    ('predict.py CONFIG nowhere.pth benchmarks/predictions.jpg', "error: checkpoint 'nowhere.pth' does not exist."),
    ('convert_checkpoint.py a.pth b.pth --to timm', "argument --to: invalid choice: 'timm' (choose from 'cvt_dense', "),
])
def test_wrong_command_lines_and_paths_need_no_torch(command, message, run_tool, without):
    tool, *args = command.replace('CONFIG', 'configs/maskrcnn_cvt13_coco.py').split()
    assert message in run_tool(f'tools/{tool}', *args, rc=2, **without('torch', 'transformers', 'matplotlib')).stdout


def test_a_wrong_classification_config_needs_no_other_task_s_packages(run_tool, without, tmp_path):
    (tmp_path / 'data' / 'train').mkdir(parents=True)
    result = run_tool('tools/train.py', 'configs/cvt_nano_cifar10.py', '--data-root', tmp_path / 'data', rc=2,
                      **without(*HEAVY[2:]))
    assert 'no image' in result.stdout


def test_transformers_is_left_out_unless_the_config_names_what_needs_it():
    script = ('import sys; from mmengine.config import Config; from cvt_dense.launch import no_transformers; '
              "no_transformers.leave_out_transformers(Config(dict(optim_wrapper=dict(optimizer=dict(type='{}'))))); "
              "import {}; print('transformers' in sys.modules); import transformers")
    assert python(script.format('AdamW', 'mmdet.models')) == 'False\n'
    assert python(script.format('Adafactor', 'mmengine.optim')) == 'True\n'


def test_the_written_down_arguments_are_the_runner_s():
    assert overrides.RUNNER_ARGUMENTS == set(inspect.signature(Runner.__init__).parameters) - {'self', 'cfg'}
