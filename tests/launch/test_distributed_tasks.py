"""Training and evaluation of each task with two processes; the evaluation is that of one process."""
import re

import pytest
from _shapes import generate
from load_tool import run_tool
from tiny_training import start_two

ITERATIONS = ['train_cfg.max_iters=2', 'train_cfg.val_interval=2']
# Everything that the untrained detector sees counts as a detection: its files must not be empty. One image a batch as
# for COCO: others in the batch would change the rounding.
TASKS = dict(
    classification=('cvt', 'epoch_1.pth', r'accuracy/top1: [\d.]+ .*raw/loss: [\d.]+', ['train_cfg.max_epochs=1']),
    segmentation=('upernet_cvt', 'iter_2.pth', r'aAcc: [\d.]+ +mIoU: [\d.]+ +mAcc: [\d.]+', [
        *ITERATIONS, 'model.decode_head.norm_cfg.type=SyncBN']),
    detection=('maskrcnn_cvt', 'iter_2.pth', r'coco/bbox_mAP: .*coco/segm_mAP_l: \S+', [
        *ITERATIONS, 'model.test_cfg.rcnn.score_thr=0.', 'val_dataloader.batch_size=1', 'test_dataloader.batch_size=1',
        'val_evaluator.outfile_prefix={}/two', 'test_evaluator.outfile_prefix={}/one']))


@pytest.mark.parametrize('task', TASKS)
def test_two_processes_evaluate_as_one(tmp_path, task):
    name, checkpoint, metric, options = TASKS[task]
    data = generate(tmp_path / 'data', train=8, val=7, train_per_class=1, val_per_class=2) / task
    for image in sorted(data.glob('val/star/*'))[:1]:  # one process gets an image less, as of the other tasks
        image.unlink()
    flags = (f'configs/{name}_nano_shapes.py', '--data-root', data, '--work-dir', tmp_path, '--cfg-options',
             'train_dataloader.batch_size=2', *(option.format(tmp_path) for option in options))
    with start_two('tools/train.py', *flags, output=tmp_path / 'two') as ranks:
        two = [rank.finish() for rank in ranks][0]
    one = run_tool('test', flags[0], tmp_path / checkpoint, *flags[1:])
    metrics = [re.findall(metric, text) for text in (one, two)]
    assert len(metrics[0]) == 1 and metrics[0] == metrics[1]
    for kind in ('bbox', 'segm') if task == 'detection' else ():
        detections = (tmp_path / f'one.{kind}.json').read_bytes()
        assert len(detections) > 10000 and detections == (tmp_path / f'two.{kind}.json').read_bytes()
