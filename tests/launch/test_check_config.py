"""Settings that nothing reads, or that leave a training without effect."""
import re
import shutil

import pytest
from mmengine.config import Config
from templates_edited import ROOT, recipe

from cvt_dense.errors import UserError
from cvt_dense.launch.checks import channels, schedules
from cvt_dense.launch.checks.channels import check_levels
from cvt_dense.launch.checks.classes import check_batches
from cvt_dense.launch.checks.schedules import check_schedules

STAGES = ['train', 'val']


@pytest.mark.parametrize('images, loader, wrong', [
    (7, dict(batch_size=8, drop_last=True), True), (8, dict(batch_size=8, drop_last=True), False),
    (7, dict(batch_size=8), False), (7, dict(batch_size=1.5), True), (7, dict(batch_size=0), True),
    (7, dict(batch_size=8, drop_last=True, sampler=dict(type='InfiniteSampler')), False)])
def test_a_training_set_that_is_smaller_than_a_batch(images, loader, wrong):
    cfg, datasets = Config(dict(train_dataloader=loader)), dict(train=range(images))
    if wrong:
        with pytest.raises(UserError, match='train_dataloader.batch_size'):
            check_batches(cfg, datasets)
    else:
        check_batches(cfg, datasets)


@pytest.mark.parametrize('neck, processes, wrong', [
    (dict(type='FPN', start_level=1), 2, True), (dict(type='FPN', start_level=1), 1, False),
    (dict(type='FPN', start_level=0), 2, False), (dict(type='FPN'), 2, False),
    ([dict(type='mmdet.FPN', start_level=1), dict(type='BFP')], 2, True)])
def test_maps_that_the_neck_leaves_out(neck, processes, wrong, monkeypatch):
    monkeypatch.setattr(channels, 'get_world_size', lambda: processes)
    cfg = Config(dict(model=dict(backbone=dict(type='cvt_dense.CvT'), neck=neck)))
    if wrong:
        with pytest.raises(UserError, match='model.neck.start_level=1'):
            check_levels(cfg, STAGES)
    else:
        check_levels(cfg, STAGES)


@pytest.mark.parametrize('end, by_epoch, warned', [(3, True, False), (4, True, True), (400, False, False)])
def test_a_warm_up_that_is_longer_than_the_training(end, by_epoch, warned, monkeypatch):
    lines = []
    monkeypatch.setattr(schedules, 'print_log', lambda text, **options: lines.append(text))
    check_schedules(Config(dict(train_cfg=dict(max_epochs=3), param_scheduler=[
        dict(type='LinearLR', end=end, by_epoch=by_epoch), dict(type='CosineAnnealingLR', end=9)])), STAGES)
    assert ['param_scheduler.0.end' in line for line in lines] == [True] * warned


RECIPES = sorted(path.stem for path in (ROOT / 'configs').glob('*.py'))
TEMPLATES = [name for name in RECIPES if name.endswith(('_custom', '_multichannel'))]


def test_a_length_edited_in_the_file_moves_the_schedule(tmp_path):
    """Only the lines that set a length are edited, in the recipes and the files that they inherit from."""
    configs = shutil.copytree(ROOT / 'configs', tmp_path / 'configs')
    for path in configs.rglob('*.py'):
        path.write_text(re.sub(r'^(max_epochs|max_iters) = (\d+)\b', lambda found: f'{found[1]} = {2 * int(found[2])}',
                               path.read_text(), flags=re.M))
    for name in set(RECIPES) - set(TEMPLATES):
        before, cfg = recipe(name), Config.fromfile(configs / f'{name}.py')
        key = 'max_epochs' if 'max_epochs' in cfg.train_cfg else 'max_iters'
        assert cfg.train_cfg[key] == 2 * before.train_cfg[key] == cfg.param_scheduler[-1].end, name
