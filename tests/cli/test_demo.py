"""tools/demo.py from its command line, on very little data."""
import re
import shlex

import pytest
from load_tool import run_tool
from PIL import Image
from run_folder import unexplained

from cvt_dense.cli.demo import train

TINY = ['--train', '4', '--val', '2', '--train-per-class', '4', '--val-per-class', '1', '--epochs', '1',
        '--iterations', '2']


@pytest.fixture(scope='module')
def demo(tmp_path_factory):
    work_dir = tmp_path_factory.mktemp('demo') / 'my run'  # with a blank
    return work_dir, run_tool('demo', '--work-dir', work_dir, *TINY)


def rows(output: str) -> list[tuple[str, str, str]]:
    return re.findall(r'^(pretraining|maskrcnn|upernet) +(accuracy/top1|coco/\w+_mAP|mIoU) +(\S+) .*$', output, re.M)


def test_table_commands_and_pictures(demo):
    work_dir, output = demo
    assert len(rows(output)) == 4 and all(0 <= float(value) <= 100 for *_, value in rows(output))
    commands = re.findall(r'^  \$ python tools/train.py (\S+) (.*)$', output, re.M)
    assert [config for config, _ in commands] == [
        f'configs/{name}_nano_shapes.py' for name in ('cvt', 'maskrcnn_cvt', 'upernet_cvt')]
    weights = ['cvt_dense://cvt-nano', *[f'{work_dir}/pretraining/epoch_1.pth'] * 2]
    for (_, options), start in zip(commands, weights, strict=True):
        assert f'model.backbone.init_cfg.checkpoint={start}' in ' '.join(shlex.split(options))
    for name in ('curves.png', 'predictions.png'):
        assert f'{work_dir}/{name}' in output and min(Image.open(work_dir / name).size) > 400
    counts = dict(photographs=2, classification=6, detection=2, segmentation=2)
    assert {task: len(list((work_dir / 'predictions' / task).iterdir())) for task in counts} == {
        task: number + 1 for task, number in counts.items()}  # with an overview each


def test_what_its_runs_leave(demo):
    """Of all three tasks and with averaged weights, no more than the documentation explains."""
    work_dir, _ = demo
    for name in ('pretraining', 'maskrcnn', 'upernet'):
        assert unexplained(work_dir / name) == ['finished']  # the demo's own


def test_again_only_an_unfinished_step_goes_on(demo):
    work_dir, output = demo
    (work_dir / 'pretraining' / 'finished').unlink()
    result = run_tool('demo', '--work-dir', work_dir, *TINY)
    command, = re.findall(r'^  \$ python (.*)$', result, re.M)
    assert 'cvt_nano_shapes.py' in command and '--resume' in command
    assert result.count('finished before') == 2 and rows(result) == rows(output)


def test_other_settings_in_the_same_folder_are_refused(demo):
    work_dir, _ = demo
    assert 'demo.json' in run_tool('demo', '--work-dir', work_dir, *TINY, '--seed', '1', rc=2)


def test_a_training_that_fails_is_named(tmp_path):
    with pytest.raises(SystemExit, match='none.py'):
        train(dict(broken=['configs/none.py']), tmp_path)
