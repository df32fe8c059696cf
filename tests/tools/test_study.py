"""tools/study.py from its command line, on very little data; what it shares with the demo is tested there."""
import json
from pathlib import Path

import pytest
from _shapes import generate
from load_tool import load_tool
from PIL import Image

from cvt_dense.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
STUDY = """
config = 'cvt_nano_shapes.py'
options = ['train_cfg.max_epochs=1', 'train_cfg.val_interval=1']
metrics = ['accuracy/top1']
size, batch = '64x64', 2
backbone = dict(arch=dict(embed_dims=[8, 8, 16], depths=[1, 1, 1], num_heads=[1, 1, 1]))
members = [
    dict(name='small', seeds=[0, 1], changes=dict(model=dict(backbone=backbone))),
    dict(name='broken', changes=dict(model=dict(backbone=dict(out_type='tokens')))),
    dict(name='orphan', weights={'model.backbone.init_cfg.checkpoint': 'broken'}, size=None),
]
"""


@pytest.fixture(scope='module')
def study():
    return load_tool('study')


def test_members_that_fail_do_not_stop_the_others(run_tool, tmp_path):
    """Table, picture and reasons; the command again trains what failed, and nothing else."""
    data = generate(tmp_path / 'data', size=64, train=1, val=1, train_per_class=4, val_per_class=1) / 'classification'
    (tmp_path / 'mine.py').write_text(STUDY)
    command = ['tools/study.py', tmp_path / 'mine.py', '--data-root', data, '--work-dir', tmp_path / 'work',
               '--cfg-options', 'train_dataloader.num_workers=0', 'val_dataloader.num_workers=0']
    out = run_tool(*command, rc=1).stdout
    row, = json.loads((tmp_path / 'work/results.json').read_text())[:1]
    found = row['metrics']['accuracy/top1']
    assert len(found['values']) == row['finished'] == 2 and row['failed'] == []
    assert found['low'] <= found['mean'] == sum(found['values']) / 2 <= found['high']
    assert 1e3 < row['parameters'] < 1e5 and 0 < row['gmacs'] < 1 and row['images_per_s'] > 0
    lines = (tmp_path / 'work/table.md').read_text().splitlines()
    assert lines[2].startswith(f'| small | 2/2 | {found["mean"]:.4g} (')
    assert '| broken | 0/1 |' in lines[3] and 'broken_seed0 failed with exit code 2' in lines[3]
    assert 'orphan_seed0 takes the weights of broken_seed0, which failed' in lines[4]
    assert "out_type='tokens'" in out and '3 failed; the same command' in out
    assert min(Image.open(tmp_path / 'work/study.png').size) > 300
    again = run_tool(*command, '--only', 'small').stdout
    assert again.count('finished before') == 2 and '$ python' not in again and lines[2] in again
    changed = run_tool(*command, 'randomness.deterministic=True', rc=2).stdout
    assert 'holds a study with other settings (cfg_options; see' in changed


@pytest.mark.parametrize('text, message', [
    ('members = [dict(name="a", confg="cvt13_in1k.py")]', r"a member has .*'confg'.*not \['confg'\]"),
    ('members = [dict(name="a", config="cvt99.py")]', 'a names .*cvt99.py, which does not exist'),
    ('config = "cvt13_in1k.py"\nmembers = [dict(name="a"), dict(name="a")]', r"\['a'\] more than once"),
    ('config = "cvt13_in1k.py"\nmembers = [dict(name="a", weights=dict(x="b"))]', r"weights of \['b'\]; there are "),
    ('members = []', 'there must be one at least'),
    ('config = "cvt13_in1k.py"\nmembers = [dict(name="a")]', "no 'b': --only takes those"),
])
def test_bad_studies(study, tmp_path, text, message):
    (tmp_path / 'mine.py').write_text(text)
    with pytest.raises(UserError, match=message):
        study.read_study(str(tmp_path / 'mine.py'), ['b'] if '--only' in message else None)


def test_unknown_study_lists_what_exists(study):
    with pytest.raises(UserError, match='is no study. There are: .*cifar_backbones.py.*cifar_variants.py'):
        study.read_study('configs/studies/cifar.py')


@pytest.mark.parametrize('name', ['cifar_backbones', 'cifar_variants', 'camvid_backbones', 'shapes'])
def test_shipped_studies_build(study, tmp_path, name):
    """Each network, which takes its images; those that are compared have 0.9 to 1.1 times CvT-nano's parameters."""
    import torch
    from mmengine.config import Config
    from mmengine.registry import MODELS, DefaultScope
    sizes = {}
    for member in study.read_study(str(ROOT / f'configs/studies/{name}.py')):
        study.runs_of(member, tmp_path, None, [], {'pretraining': [0]})
        cfg = Config.fromfile(ROOT / member['file'])
        with DefaultScope.overwrite_default_scope(cfg.default_scope), torch.device('meta'):
            backbone = MODELS.build(cfg.model).backbone.eval()
            sizes[member['name']] = sum(p.numel() for p in backbone.parameters())
            height, width = map(int, member['size'].split('x'))
            assert [out.shape[1] for out in backbone(torch.empty(1, 3, height, width))] == list(backbone.out_channels)
    assert len(sizes) >= 4
    if name.endswith('_backbones'):
        assert all(0.9 <= size / sizes['cvt_nano'] <= 1.1 for size in sizes.values()), sizes


@pytest.mark.parametrize('file', sorted((ROOT / 'configs/studies').glob('*.py')), ids=lambda file: file.stem)
def test_shipped_studies_take_their_options(study, tmp_path, file):
    """Every option and every setting for weights has an effect; members without metrics are those that have none."""
    from mmengine.config import Config

    from cvt_dense.launch.cfg_options import merge_options, parse_value
    members = study.read_study(str(file))
    seeds = {member['name']: member['seeds'] for member in members}
    for member in members:
        for run in study.runs_of(member, tmp_path, None, [], seeds):
            options = {key: parse_value(value)
                       for key, value in (option.split('=', 1) for option in run.options)}
            cfg = Config.fromfile(ROOT / run.config)
            merge_options(cfg, {**options, **dict.fromkeys(run.weights, 'x.pth')})
            assert run.evaluated == ('val_evaluator' in cfg), run
            assert {name.rpartition('_seed')[0] for name in run.weights.values()} <= set(seeds)


def test_weights_of_a_member_with_fewer_seeds_are_its_first(study, tmp_path):
    member = dict(study.DEFAULTS, name='student', config=str(ROOT / 'configs/cvt13_in1k.py'), seeds=[0, 3],
                  weights={'model.backbone.init_cfg.checkpoint': 'teacher'})
    runs = study.runs_of(member, tmp_path, None, [], {'teacher': [5, 3]})
    assert [list(run.weights.values()) for run in runs] == [['teacher_seed5'], ['teacher_seed3']]


def test_a_study_may_get_more_members(study, tmp_path):
    from _study import remember
    remember(tmp_path / 'work', 'study.json', dict(data_root=None, plain=1), 'study', may_grow=True)
    remember(tmp_path / 'work', 'study.json', dict(data_root=None, other=2), 'study', may_grow=True)
    assert json.loads((tmp_path / 'work/study.json').read_text()) == dict(data_root=None, plain=1, other=2)
    with pytest.raises(UserError, match=r'other settings \(plain; see'):
        remember(tmp_path / 'work', 'study.json', dict(data_root=None, plain=3), 'study', may_grow=True)
    with pytest.raises(UserError, match=r'other settings \(other, plain; see'):
        remember(tmp_path / 'work', 'study.json', dict(data_root=None), 'study')


def test_a_metric_that_no_run_has_is_named_in_the_table(study, tmp_path):
    member = dict(study.DEFAULTS, name='plain', config='x.py', metrics=['top1'])
    (tmp_path / 'plain_seed0').mkdir()
    (tmp_path / 'plain_seed0/finished').write_text('{"accuracy/top1": 50.0}')
    failed = {}
    row, = study.results([member], tmp_path, failed)
    assert row['failed'] == ["plain has no metric ['top1'], but ['accuracy/top1']"] == [failed['plain']]
    assert row['failed'][0] in study.table([row])


def test_a_cost_that_did_not_fit_is_measured_again(study, tmp_path, monkeypatch):
    tried = []
    monkeypatch.setattr(study, 'run_together', lambda commands, logs: tried.extend(commands) or {})
    (tmp_path / 'plain_cost.json').write_text('{"rows": [{"oom": true}]}')
    (tmp_path / 'other_cost.json').write_text('{"rows": [{"gflop": 1.0}]}')
    members = [dict(study.DEFAULTS, name=name, file='x.py', size='64x64') for name in ('plain', 'other')]
    assert study.measure(members, tmp_path) == {} and tried == ['plain']
