"""tools/demo.py from its command line, on very little data."""
import re
import shlex
from unittest import mock

import pytest
from load_tool import run_tool
from PIL import Image
from run_folder import unexplained

from cvt_dense import recipe
from cvt_dense.cli.demo import CONFIGS

pytestmark = pytest.mark.slow

TINY = """
_base_ = {!r}
train_cfg = dict(max_iters=2, val_interval=2)
"""


@pytest.fixture(scope='module')
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp('demo')
    configs = {}
    for task in ('detection', 'segmentation'):
        configs[task] = str(folder / f'{task}.py')
        (folder / f'{task}.py').write_text(TINY.format(recipe(CONFIGS[task])))
    with (mock.patch.dict('cvt_dense.cli.demo.DATA', train=4, val=2, train_per_class=4, val_per_class=1),
          mock.patch.dict('cvt_dense.cli.demo.CONFIGS', configs)):
        return folder / 'my run', run_tool('demo', '--work-dir', folder / 'my run')  # with a blank


def test_commands_metrics_and_pictures(demo):
    work_dir, output = demo
    assert len(re.findall(r'last: +(?:accuracy/top1|coco/\w+_mAP|mIoU) +[0-9.]+ ', output)) == 4
    commands = re.findall(r'^  \$ python tools/train.py (.*)$', output, re.M)
    weights = ['cvt_dense://cvt-nano', *[f'{work_dir}/classification/epoch_2.pth'] * 2]
    for command, start in zip(commands, weights, strict=True):
        assert f'model.backbone.init_cfg.checkpoint={start}' in shlex.split(command)
    for folder, number in (('photographs', 3), ('predictions/classification', 8), ('predictions/detection', 2),
                           ('predictions/segmentation', 2)):
        assert len([Image.open(path).load() for path in (work_dir / folder).iterdir()]) == number + 1  # the overview


def test_what_its_runs_leave(demo):
    """Of all three tasks and with averaged weights, no more than the documentation explains."""
    work_dir, _ = demo
    for name in ('classification', 'detection', 'segmentation'):
        assert not unexplained(work_dir / name)
