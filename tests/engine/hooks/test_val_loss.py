"""The validation loss is that of the evaluated weights on whole images, and the training does not notice it."""
import mmseg
import pytest
import torch
from load_tool import run_tool
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope
from mmengine.runner import Runner
from tiny_training import load, start_two, write_config

from cvt_dense import recipe
from cvt_dense.cli.demo import CONFIGS
from cvt_dense.curves import Curves
from cvt_dense.engine.hooks.val_loss import with_annotations

pytestmark = pytest.mark.slow

# Only the training's batches are augmented.
AUGMENTS = dict(segmentation='', detection="model = dict(data_preprocessor=dict(batch_augments=[dict("
                "type='BatchSyncRandomResize', random_size_range=(64, 128), interval=1)]))\n")


def evaluations(folder):
    return [point.values for point in Curves(folder).points if point.evaluation]


@pytest.mark.parametrize('task', AUGMENTS)
def test_detection_and_segmentation(shapes, tmp_path, task):
    """The parts are those of the training; the weights are the same, bit for bit, without it."""
    if task == 'segmentation' and mmseg.__version__ == '1.2.2':
        pytest.skip('it indexes the weights of classes by the label of ignored pixels')
    config = tmp_path / 'config.py'
    config.write_text(f'_base_ = {recipe(CONFIGS[task])!r}\n{AUGMENTS[task]}')
    for name, flags in (('with', ['--val-loss']), ('without', [])):
        run_tool('train', config, '--data-root', shapes / task, '--work-dir', tmp_path / name, *flags, '--cfg-options',
                 'train_cfg.max_iters=2', 'train_cfg.val_interval=1', 'train_dataloader.batch_size=2',
                 'val_dataloader.batch_size=2', 'train_dataloader.num_workers=0', 'val_dataloader.num_workers=0')
    first, second = evaluations(tmp_path / 'with')
    parts = {'detection': ('loss_rpn_cls', 'loss_cls', 'loss_bbox', 'loss_mask'),
             'segmentation': ('decode.loss_ce', 'aux.loss_ce')}[task]
    assert all(0 < second[f'val/{part}'] < 10 for part in parts)
    assert second['val/loss'] == pytest.approx(sum(
        value for name, value in second.items() if name.startswith('val/') and 'loss' in name and name != 'val/loss'))
    assert second['val/loss'] != first['val/loss'] and 'val/loss' not in evaluations(tmp_path / 'without')[0]
    weights, expected = (load(tmp_path / name / 'iter_2.pth')['state_dict'] for name in ('with', 'without'))
    assert all(torch.equal(value, expected[name]) for name, value in weights.items())


@pytest.mark.parametrize('task', AUGMENTS)
def test_annotations_are_those_of_the_resized_image(shapes, task):
    """MMDetection's test pipeline leaves them in the pixels of the original."""
    cfg = Config.fromfile(recipe(CONFIGS[task]))
    init_default_scope(cfg.default_scope)
    cfg.val_dataloader.update(num_workers=0, persistent_workers=False, batch_size=1,
                              sampler=dict(type='cvt_dense.SeededSampler', shuffle=False))
    cfg.val_dataloader.dataset.data_root = str(shapes / task)
    for step in cfg.val_dataloader.dataset.pipeline:
        if step.type == 'Resize':
            step.scale = (400, 300)
    dataset = DATASETS.build(cfg.val_dataloader.dataset)
    loaders = [Runner.build_dataloader(dict(cfg.val_dataloader, dataset=read))
               for read in (dataset, with_annotations(dataset))]
    for late, early in zip(*loaders, strict=True):
        before, after = late['data_samples'][0], early['data_samples'][0]
        if task == 'segmentation':
            assert after.gt_sem_seg.shape == after.img_shape == early['inputs'][0].shape[1:]
        else:
            boxes, expected = (getattr(sample.gt_instances.bboxes, 'tensor', sample.gt_instances.bboxes)
                               for sample in (after, before))
            torch.testing.assert_close(boxes, expected * torch.tensor(after.scale_factor).repeat(2).float())


def test_classification(tmp_path):
    """It is the metric's cross entropy of averaged weights, without unreadable images, of 99 in two processes too."""
    config = write_config(tmp_path)
    (tmp_path / 'data/val/dark/003.png').unlink()
    for name in ('dark/001', 'light/049'):  # the latter alone in its batch
        (tmp_path / f'data/val/{name}.png').write_bytes(b'')
    options = 'train_cfg.max_epochs=2', 'train_cfg.val_interval=1', 'val_dataloader.batch_size=7'
    with start_two('tools/train.py', config, '--work-dir', tmp_path / 'run', '--val-loss', '--cfg-options', *options,
                   output=tmp_path / 'output') as processes:
        assert [process.finish() for process in processes]
    records = evaluations(tmp_path / 'run')
    assert len(records) == 2 and records[0]['val/loss'] != records[1]['val/loss']
    assert [r['val/loss'] for r in records] == pytest.approx([r['accuracy/loss'] for r in records], rel=1e-6)
