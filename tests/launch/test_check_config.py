"""Settings that nothing reads, that cannot be built, or that leave a training without effect."""
import re
import shutil
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import PARAM_SCHEDULERS, DefaultScope
from templates_edited import ROOT, edit_head, recipe
from tiny_training import write_config

from cvt_dense.errors import UserError
from cvt_dense.launch.cfg_options import parse_value
from cvt_dense.launch.checks import Run, schedules
from cvt_dense.launch.checks.components import check_components
from cvt_dense.launch.checks.keys import check_keys
from cvt_dense.launch.checks.schedules import check_schedules, fitted, schedules_of

RUN = Run(['train', 'val'])


@pytest.fixture
def lines(monkeypatch) -> list[str]:
    """What the schedules' check writes into the log."""
    written = []
    monkeypatch.setattr(schedules, 'print_log', lambda text, **options: written.append(text))
    return written


@pytest.mark.parametrize('text, setting', [
    ('train_cfg = dict(max_epoch=3)', 'train_cfg.max_epochs'),
    ('val_dataloader = dict(batchsize=3)', 'val_dataloader.batch_size'),
    ('auto_scale_lr = dict(enabled=True)', 'auto_scale_lr.enable'),
    ('randomness = dict(sead=3)', 'randomness.seed'),
    ('train_cfg = dict(max_epochs=0)', 'train_cfg.max_epochs=0'),
    ('train_dataloader = dict(batch_size=0)', 'train_dataloader.batch_size=0'),
    ('val_dataloader = dict(num_workers=-1)', 'val_dataloader.num_workers=-1')])
def test_keys_of_a_file(tmp_path, text, setting):
    (tmp_path / 'mine.py').write_text(f"_base_ = '{ROOT}/configs/cvt_nano_shapes.py'\n{text}\n")
    with pytest.raises(UserError, match=setting):
        check_keys(Config.fromfile(tmp_path / 'mine.py'), RUN)
    if text.startswith('train_cfg'):
        check_keys(Config.fromfile(tmp_path / 'mine.py'), Run(['test']))  # which does not read it


# -- schedules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize('schedule, named', [
    (dict(type='LinearLR', begin=7, end=7), 'param_scheduler.end=7'),
    ([dict(type='LinearLR', end=3), dict(type='PolyLR', begin=3, end=2)], 'param_scheduler.1.end=2'),
    ([dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=1)], 'param_scheduler.0')])
def test_schedules_without_effect(schedule, named):
    cfg = Config(dict(param_scheduler=schedule, train_cfg=dict(max_iters=10)))
    with pytest.raises(UserError, match=named):
        check_schedules(cfg, RUN)
    check_schedules(cfg, Run(['test']))


def rates(cfg: Config, epoch_length: int) -> list[float]:
    """The learning rate, relative to the config's, before each iteration, stepped as MMEngine steps it."""
    wrapper = build_optim_wrapper(
        torch.nn.Linear(1, 1), dict(type='OptimWrapper', optimizer=dict(type='SGD', lr=cfg.optim_wrapper.optimizer.lr)))
    built = [PARAM_SCHEDULERS.build(dict(schedule), default_args=dict(optimizer=wrapper, epoch_length=epoch_length))
             for _, schedule in schedules_of(cfg)]
    epochs, found = cfg.train_cfg.get('max_epochs', 1), []
    for _ in range(epochs):
        for _ in range(cfg.train_cfg.get('max_iters') or epoch_length):
            found.append(wrapper.optimizer.param_groups[0]['lr'] / cfg.optim_wrapper.optimizer.lr)
            for schedule in built:
                if not schedule.by_epoch:
                    schedule.step()
        for schedule in built:
            if schedule.by_epoch:
                schedule.step()
    return found


RECIPES = sorted(path.stem for path in (ROOT / 'configs').glob('*.py'))
TEMPLATES = [name for name in RECIPES if name.endswith(('_custom', '_multichannel'))]


@pytest.mark.parametrize('name', RECIPES)
def test_every_recipe_at_half_and_at_twice_its_length(name, lines):
    """The log names the settings with which the schedule is whole, and what is trained at rate 0."""
    for factor in (0.5, 2):
        cfg = recipe(name)
        key = 'max_epochs' if 'max_epochs' in cfg.train_cfg else 'max_iters'
        check_schedules(cfg, RUN)
        assert not lines
        length = cfg.train_cfg[key] = int(cfg.train_cfg[key] * factor)
        named = {}
        for place, schedule in schedules_of(cfg):
            if schedule.type != 'LinearLR':
                named |= {f'{place}.{setting}': value for setting, value in fitted(schedule, length).items()}
        assert named
        check_schedules(cfg, RUN)
        if factor == 2 and schedule.type in ('PolyLR', 'CosineAnnealingLR') and not (
                schedule.get('eta_min') or schedule.get('eta_min_ratio')):
            assert any('rate 0' in line for line in lines), lines
        assert all(any(f'{setting}={value}' in line for line in lines) for setting, value in named.items()), lines
        for setting, value in named.items():
            cfg.merge_from_dict({setting: parse_value(str(value))})
        lines.clear()
        check_schedules(cfg, RUN)
        assert not lines
        final = [schedule for _, schedule in schedules_of(cfg) if schedule.end == length]
        assert final and all(max(schedule.get('milestones', [0])) < length for schedule in final)


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


@pytest.mark.parametrize('iterations', [2, 10, 39, 40])
@pytest.mark.parametrize('name', TEMPLATES)
def test_short_templates_reach_their_learning_rate(name, iterations, tmp_path, lines):
    (tmp_path / 'mine.py').write_text(edit_head(name, max_iters=iterations))
    cfg = Config.fromfile(tmp_path / 'mine.py')
    check_schedules(cfg, RUN)
    found = rates(cfg, iterations)
    assert len(found) == iterations and max(found) == pytest.approx(1, rel=1e-3) and not lines


@pytest.mark.parametrize('iterations', [2, 10, 39, 40])
def test_short_recipes_reach_their_learning_rate_or_say_why(iterations, tmp_path):
    for name in RECIPES:
        cfg = recipe(name)
        if 'max_iters' not in cfg.train_cfg or name in TEMPLATES:
            continue
        cfg.train_cfg.max_iters = iterations
        warmups = [schedule for _, schedule in schedules_of(cfg) if schedule.type == 'LinearLR']
        for schedule in cfg.param_scheduler:
            if schedule.type == 'LinearLR':
                schedule.end = min(schedule.end, iterations // 2)
            else:
                schedule.update(begin=min(schedule.begin, iterations // 2), end=iterations)
        try:
            check_schedules(cfg, RUN)
        except UserError as error:
            assert iterations == 2 and warmups and 'param_scheduler.0' in str(error)
        else:
            assert max(rates(cfg, iterations)) == pytest.approx(1, rel=1e-3), name


# -- what MMEngine builds late -----------------------------------------------------------------------


@pytest.fixture(scope='module')
def tiny(tmp_path_factory) -> Path:
    return write_config(tmp_path_factory.mktemp('tiny'))


@pytest.mark.parametrize('option, value', [
    ('optim_wrapper.type', 'Wrapper'), ('optim_wrapper.optimizer.type', 'AdamX'),
    ('optim_wrapper.optimizer.betas', 0.9), ('optim_wrapper.optimizer.lr', -1),
    ('optim_wrapper.paramwise_cfg.decay_ratio_x', 1), ('optim_wrapper.constructor', 'Nobody'),
    ('param_scheduler.1.type', 'Cosine'), ('param_scheduler.1.T_maxi', 3), ('val_evaluator.type', 'Accurate'),
    ('val_evaluator.topk_x', 3), ('train_dataloader.sampler.type', 'Sampling'), ('default_hooks.logger.intervall', 3),
    ('custom_hooks.0.type', 'Hooked'), ('visualizer.type', 'Drawer'), ('log_processor.windows', 3)])
def test_what_cannot_be_built_is_named(tiny, option, value):
    cfg = Config.fromfile(tiny)
    cfg.merge_from_dict({option: value})
    with DefaultScope.overwrite_default_scope('cvt_dense'), pytest.raises(UserError) as error:
        check_components(cfg, Run(['train', 'val'], dict(train=range(36), val=range(100))))
    assert str(error.value).startswith(option.split('.')[0])


def test_what_can_be_built_passes(tiny):
    with DefaultScope.overwrite_default_scope('cvt_dense'):
        check_components(Config.fromfile(tiny), Run(['train', 'val'], dict(train=range(36), val=range(100))))


def test_one_paragraph_and_nothing_written(run_tool, tiny, tmp_path):
    output = run_tool('tools/train.py', tiny, '--work-dir', tmp_path / 'run', '--cfg-options',
                      'optim_wrapper.optimizer.betas=0.9', rc=2).stdout
    assert 'Traceback' not in output and output.splitlines()[-1].startswith('error: optim_wrapper')
    assert not (tmp_path / 'run').exists()
