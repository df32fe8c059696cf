"""Detection and segmentation with two processes: training runs, and its evaluation is that of one process."""
import re
from pathlib import Path

import pytest
from tiny_training import call


@pytest.fixture(scope='module')
def data(run_tool, tmp_path_factory):
    folder = tmp_path_factory.mktemp('shapes') / 'data'
    run_tool('tools/_shapes.py', folder, '--train', 8, '--val', 7, '--train-per-class', 1,
             '--val-per-class', 1)
    return folder


def train_and_test(tmp_path: Path, config: str, data_root: Path, *options: str):
    """Outputs of one process that tests a checkpoint and of the two that trained it and evaluated it then."""
    flags = ('--data-root', data_root, '--work-dir', tmp_path, '--cfg-options', *options)
    two = call('tests/two_ranks.py', 'tools/train.py', config, *flags, 'train_cfg.max_iters=2',
               'train_cfg.val_interval=2', 'train_dataloader.batch_size=2', output=tmp_path / 'two.txt')
    assert 'is complete' in two and '2 x CPU' in two
    one = call('tools/test.py', config, tmp_path / 'iter_2.pth', *flags,
               output=tmp_path / 'one.txt')
    return one, two


def test_segmentation(tmp_path, data):
    """With SyncBN, which there is none of on a CPU: it becomes BN."""
    one, two = train_and_test(tmp_path, 'configs/upernet_cvt_nano_shapes.py', data / 'segmentation',
                              'model.decode_head.norm_cfg.type=SyncBN')
    assert 'SyncBN has no CPU kernel and was replaced by BN' in two
    metrics = [re.findall(r'aAcc: [\d.]+ +mIoU: ([\d.]+) +mAcc: [\d.]+', text) for text in (one, two)]
    assert len(metrics[0]) == 1 and metrics[0] == metrics[1]
    assert float(metrics[0][0]) > 0


def test_detection(tmp_path, data):
    # Everything that the untrained network sees counts as a detection: the files below must not be empty. One
    # image a batch as for COCO: others in the batch would change the rounding.
    one, two = train_and_test(tmp_path, 'configs/maskrcnn_cvt_nano_shapes.py', data / 'detection',
                              'model.test_cfg.rcnn.score_thr=0.', 'val_dataloader.batch_size=1',
                              'test_dataloader.batch_size=1',
                              f'val_evaluator.outfile_prefix={tmp_path}/two',
                              f'test_evaluator.outfile_prefix={tmp_path}/one')
    metrics = [re.findall(r'(coco/bbox_mAP: .*coco/segm_mAP_l: \S+)', text) for text in (one, two)]
    assert len(metrics[0]) == 1 and metrics[0] == metrics[1]
    for kind in ('bbox', 'segm'):
        detections = (tmp_path / f'one.{kind}.json').read_bytes()
        assert len(detections) > 10000
        assert detections == (tmp_path / f'two.{kind}.json').read_bytes()
