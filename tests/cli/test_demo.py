"""tools/demo.py from its command line, on very little data."""
import re
import shlex
from unittest import mock

import pytest
from load_tool import run_tool
from PIL import Image
from run_folder import unexplained

pytestmark = pytest.mark.slow

TINY = ['--epochs', '1', '--iterations', '2']


@pytest.fixture(scope='module')
def demo(tmp_path_factory):
    work_dir = tmp_path_factory.mktemp('demo') / 'my run'  # with a blank
    with mock.patch.dict('cvt_dense.cli.demo.DATA', train=4, val=2, train_per_class=4, val_per_class=1):
        return work_dir, run_tool('demo', '--work-dir', work_dir, *TINY)


def test_table_commands_and_pictures(demo):
    work_dir, output = demo
    rows = re.findall(r'^(?:classification|detection|segmentation) +(?:accuracy/top1|coco/\w+_mAP|mIoU) +(\S+) .*$',
                      output, re.M)
    assert len(rows) == 4 and all(0 <= float(value) <= 100 for value in rows)
    commands = re.findall(r'^  \$ python tools/train.py (\S+) (.*)$', output, re.M)
    assert [config for config, _ in commands] == [
        f'configs/{name}_nano_shapes.py' for name in ('cvt', 'maskrcnn_cvt', 'upernet_cvt')]
    weights = ['cvt_dense://cvt-nano', *[f'{work_dir}/classification/epoch_1.pth'] * 2]
    for (_, options), start in zip(commands, weights, strict=True):
        assert f'model.backbone.init_cfg.checkpoint={start}' in ' '.join(shlex.split(options))
    for name in ('photographs/overview.png', 'curves.png', 'predictions.png'):
        assert f'{work_dir}/{name}' in output and min(Image.open(work_dir / name).size) > 400


def test_what_its_runs_leave(demo):
    """Of all three tasks and with averaged weights, no more than the documentation explains."""
    work_dir, _ = demo
    for name in ('classification', 'detection', 'segmentation'):
        assert not unexplained(work_dir / name)
