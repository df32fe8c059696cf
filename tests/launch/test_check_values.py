"""Values out of range and keys that nothing reads, in a file or on the command line: found before work starts."""
import re

import pytest
from mmengine.config import Config
from tiny_training import ROOT

from cvt_dense.errors import UserError
from cvt_dense.launch.check_values import SHARE, check_keys, check_numbers, check_value
from cvt_dense.launch.overrides import read_config

CONFIGS = ROOT / 'configs'


def check(name, options, stages=('train', 'val')):
    cfg = read_config(str(CONFIGS / f'{name}.py'), options)
    check_numbers(cfg, list(stages))
    check_keys(cfg, list(stages))


@pytest.mark.parametrize('name, option, value, words', [
    ('cvt_nano_shapes', 'train_dataloader.batch_size', 0, 'a whole number, 1 or more'),
    ('cvt_nano_shapes', 'val_dataloader.num_workers', -1, 'a whole number, 0 or more'),
    ('cvt_nano_shapes', 'train_cfg.max_epochs', 0, 'a whole number, 1 or more'),
    ('cvt_nano_shapes', 'train_cfg.max_epochs', 2.5, 'a whole number, 1 or more'),
    ('maskrcnn_cvt_nano_shapes', 'train_cfg.max_iters', -3, 'a whole number, 1 or more'),
    ('upernet_cvt_nano_shapes', 'train_cfg.val_interval', 0, 'a whole number, 1 or more'),
    ('cvt_nano_shapes', 'optim_wrapper.optimizer.lr', -1, 'a number above 0'),
    ('cvt_nano_shapes', 'optim_wrapper.optimizer.lr', 'fast', 'a number above 0'),
    ('cvt_nano_shapes', 'optim_wrapper.optimizer.lr', float('nan'), 'a number above 0'),
    ('cvt_nano_shapes', 'optim_wrapper.optimizer.weight_decay', -0.1, 'a number, 0 or more'),
    ('cvt_nano_shapes', 'optim_wrapper.accumulative_counts', 0, 'a whole number, 1 or more'),
    ('cvt_nano_shapes', 'auto_scale_lr.base_batch_size', 0, 'a whole number, 1 or more'),
    ('cvt_nano_shapes', 'default_hooks.checkpoint.interval', 0, 'a whole number, 1 or more, or -1 for never'),
    ('cvt_nano_shapes', 'model.num_classes', 0, 'a whole number, 1 or more'),
    ('cvt_nano_shapes', 'model.backbone.drop_path_rate', 2, 'a number from 0 to 1'),
    ('cvt_nano_shapes', 'randomness.seed', -1, 'a whole number, 0 or more'),
    ('cvt_nano_shapes', 'param_scheduler.0.start_factor', 5., 'a number above 0, 1 at most'),
    ('maskrcnn_cvt_nano_shapes', 'model.test_cfg.rcnn.score_thr', 30, 'a number from 0 to 1'),
    ('maskrcnn_cvt13_coco', 'model.roi_head.bbox_head.num_classes', -1, 'a whole number, 1 or more'),
])
def test_values_out_of_range(name, option, value, words):
    with pytest.raises(UserError, match=re.escape(f'{option}={value!r}: it must be {words}.')):
        check(name, {option: value})


def test_variables_of_a_file():
    with pytest.raises(UserError, match='train_dataloader.batch_size=0: it must be a whole number, 1 or more'):
        check('cvt13_in1k', dict(batch_size=0))


@pytest.mark.parametrize('text, message', [
    ('train_cfg = dict(max_epoch=3)', 'train_cfg.max_epoch=3: .*nothing reads it. Did you mean train_cfg.max_epochs?'),
    ('val_dataloader = dict(batchsize=3)', 'Did you mean val_dataloader.batch_size?'),
    ('optim_wrapper = dict(optimizer=dict(weightdecay=3))', 'Did you mean optim_wrapper.optimizer.weight_decay?'),
    ('auto_scale_lr = dict(enabled=True)', 'Did you mean auto_scale_lr.enable?')])
def test_misspelt_keys_in_a_file(tmp_path, text, message):
    (tmp_path / 'mine.py').write_text(f"_base_ = {str(CONFIGS / 'cvt_nano_shapes.py')!r}\n{text}\n")
    with pytest.raises(UserError, match=message):
        check_keys(read_config(str(tmp_path / 'mine.py')), ['train', 'val'])


def test_what_is_right_passes_in_every_recipe():
    names = sorted(path.stem for path in CONFIGS.glob('*.py'))
    assert len(names) > 30
    for name in names:
        check(name, {})


@pytest.mark.parametrize('name', sorted(path.stem for path in CONFIGS.glob('*.py') if re.search(
    '^max_(epochs|iters) = ', path.read_text(), re.M) and not path.stem.endswith('_custom')))
def test_the_shortest_training(name):
    """Warm-ups, schedules and intervals follow a length at a recipe's top, down to 1."""
    length = 'max_epochs' if 'max_epochs' in read_config(str(CONFIGS / f'{name}.py')) else 'max_iters'
    check(name, {length: 1})


@pytest.mark.parametrize('schedule', [
    dict(type='LinearLR', begin=7, end=7), [dict(type='LinearLR', end=3), dict(type='PolyLR', begin=3, end=2)]])
def test_a_schedule_that_never_runs(schedule):
    cfg = Config(dict(param_scheduler=schedule))
    with pytest.raises(UserError, match=r'^param_scheduler.[01]: it begins at [37] and ends at [27], so it never'):
        check_numbers(cfg, ['train', 'val'])
    check_numbers(cfg, ['test'])


def test_a_test_leaves_settings_of_training_alone():
    check('cvt_nano_shapes', {'train_cfg.max_epochs': 0, 'optim_wrapper.optimizer.lr': -1}, ['test'])
    with pytest.raises(UserError, match='test_dataloader.batch_size=0'):
        check('cvt_nano_shapes', {'test_dataloader.batch_size': 0}, ['test'])


def test_flags_have_the_same_words():
    with pytest.raises(UserError, match='^--score-thr=30.0: it must be a number from 0 to 1.$'):
        check_value('--score-thr', 30., SHARE)


def test_one_paragraph_and_nothing_written(tmp_path, run_tool):
    output = run_tool('tools/train.py', 'configs/cvt_nano_shapes.py', '--work-dir', tmp_path / 'run', '--cfg-options',
                      'train_dataloader.batch_size=0', rc=2).stdout
    line, = output.splitlines()
    assert line == (
        'error: train_dataloader.batch_size=0: it must be a whole number, 1 or more. Set it in the config or after '
        '--cfg-options.')
    assert not (tmp_path / 'run').exists()
