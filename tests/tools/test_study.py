"""tools/study.py from its command line, on very little data; its common functions with the demo are tested there."""
import json
import signal
import subprocess
import sys
from functools import partial
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
    """Table, picture and reasons; paths with blanks; the command again trains what failed, and nothing else."""
    data = generate(tmp_path / 'my data', size=64, train=1, val=1, train_per_class=4, val_per_class=1)
    (tmp_path / 'mine.py').write_text(STUDY)
    work_dir = tmp_path / 'my, work'
    command = ['tools/study.py', tmp_path / 'mine.py', '--data-root', data / 'classification', '--work-dir', work_dir,
               '--cfg-options', 'train_dataloader.num_workers=0', 'val_dataloader.num_workers=0']
    out = run_tool(*command, rc=1).stdout
    row, = json.loads((work_dir / 'results.json').read_text())[:1]
    found = row['metrics']['accuracy/top1']
    assert len(found['values']) == row['finished'] == 2 and row['failed'] == []
    assert found['low'] <= found['mean'] == sum(found['values']) / 2 <= found['high']
    assert 1e3 < row['parameters'] < 1e5 and 0 < row['gmacs'] < 1 and row['images_per_s'] > 0
    lines = (work_dir / 'table.md').read_text().splitlines()
    assert lines[2].startswith(f'| small | 2/2 | {found["mean"]:.4g} (')
    assert '| broken | 0/1 |' in lines[3] and 'broken_seed0 failed with exit code' in lines[3]
    assert 'orphan_seed0 takes the weights of broken_seed0, which failed' in lines[4]
    assert "out_type='tokens'" in out and '3 failed' in out
    assert min(Image.open(work_dir / 'study.png').size) > 300
    again = run_tool(*command, '--only', 'small').stdout
    assert again.count('finished before') == 2 and '$ python' not in again and lines[2] in again
    changed = run_tool(*command, 'randomness.deterministic=True', rc=2).stdout
    assert 'cfg_options' in changed and 'study.json' in changed


def test_interrupted(tmp_path):
    """Ctrl-C ends what it started, with a line instead of a traceback."""
    (tmp_path / 'mine.py').write_text("members = [dict(name='a', config='cvt_nano_shapes.py')]")
    process = subprocess.Popen(
        [sys.executable, 'tools/study.py', tmp_path / 'mine.py', '--work-dir', tmp_path / 'work'], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL))  # a shell's background jobs ignore it
    line = process.stdout.readline()
    assert '$ python tools/train.py' in line
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 1 and 'interrupted' in output and 'Traceback' not in output


@pytest.mark.parametrize('text, message', [
    ('members = [dict(name="a", confg="cvt13_in1k.py")]', 'confg'),
    ('members = [dict(name="a", config="cvt99.py")]', 'cvt99.py'),
    ('config = "cvt13_in1k.py"\nmembers = [dict(name="a"), dict(name="a")]', 'different names'),
    ('config = "cvt13_in1k.py"\nmembers = [dict(name="a", weights=dict(x="b"))]', r"weights of \['b'\]"),
    ('config = "cvt13_in1k.py"\nmembers = [dict(name="a", size="9x9", options=["model.x=1"])]', 'model.x=1'),
    ('members = []', 'members'),
    ('config = "cvt13_in1k.py"\nmembers = [dict(name="a")]', '--only'),
])
def test_bad_studies(study, tmp_path, text, message):
    (tmp_path / 'mine.py').write_text(text)
    with pytest.raises(UserError, match=message):
        study.read_study(str(tmp_path / 'mine.py'), ['b'] if message == '--only' else None)


def test_unknown_study_lists_what_exists(study):
    with pytest.raises(UserError, match='cifar_backbones.py.*cifar_variants.py'):
        study.read_study('configs/studies/cifar.py')


@pytest.mark.parametrize('name', ['cifar_backbones', 'cifar_variants', 'camvid_backbones', 'shapes'])
def test_shipped_studies_build(study, tmp_path, name):
    """Each network takes its images; those that are compared have 0.9 to 1.1 times CvT-nano's parameters."""
    import torch
    from mmengine.config import Config
    from mmengine.registry import MODELS, DefaultScope
    sizes = {}
    for member in study.read_study(str(ROOT / f'configs/studies/{name}.py')):
        cfg = Config.fromfile(ROOT / study.config_of(member, tmp_path))
        with DefaultScope.overwrite_default_scope(cfg.default_scope), torch.device('meta'):
            backbone = MODELS.build(cfg.model).backbone.eval()
            sizes[member.name] = sum(p.numel() for p in backbone.parameters())
            height, width = map(int, member.size.split('x'))
            assert [out.shape[1] for out in backbone(torch.empty(1, 3, height, width))] == list(backbone.out_channels)
    assert len(sizes) >= 4
    if name.endswith('_backbones'):
        assert all(0.9 <= size / sizes['cvt_nano'] <= 1.1 for size in sizes.values()), sizes


@pytest.mark.parametrize('file', sorted((ROOT / 'configs/studies').glob('*.py')), ids=lambda file: file.stem)
def test_shipped_studies_take_their_options(study, tmp_path, file):
    """Every option and every setting for weights has an effect; members without metrics are those that have none."""
    from mmengine.config import Config

    from cvt_dense.config.options import merge_options, parse_value
    members = study.read_study(str(file))
    seeds = {member.name: member.seeds for member in members}
    for member in members:
        run = study.runs_of(member, tmp_path, None, [], seeds)[0]
        options = {key: parse_value(value)
                   for key, value in (option.split('=', 1) for option in run.options)}
        cfg = Config.fromfile(ROOT / run.config)
        merge_options(cfg, {**options, **dict.fromkeys(run.weights, 'x.pth')})
        assert run.evaluated == ('val_evaluator' in cfg), run


def test_weights_of_a_member_with_fewer_seeds_are_its_first(study, tmp_path):
    member = study.Member('student', str(ROOT / 'configs/cvt13_in1k.py'), seeds=[0, 3],
                          weights={'model.backbone.init_cfg.checkpoint': 'teacher'})
    runs = study.runs_of(member, tmp_path, None, [], {'teacher': [5, 3]})
    assert [list(run.weights.values()) for run in runs] == [['teacher_seed5'], ['teacher_seed3']]


def test_a_study_may_get_more_members(study, tmp_path):
    from _study import record_settings
    record_settings(tmp_path / 'work', 'study.json', dict(data_root=None, plain=1), 'study', may_grow=True)
    record_settings(tmp_path / 'work', 'study.json', dict(data_root=None, other=2), 'study', may_grow=True)
    assert json.loads((tmp_path / 'work/study.json').read_text()) == dict(data_root=None, plain=1, other=2)
    with pytest.raises(UserError, match='plain'):
        record_settings(tmp_path / 'work', 'study.json', dict(data_root=None, plain=3), 'study', may_grow=True)
    with pytest.raises(UserError, match='other, plain'):
        record_settings(tmp_path / 'work', 'study.json', dict(data_root=None), 'study')


def test_a_metric_that_no_run_has_is_named_in_the_table(study, tmp_path):
    (tmp_path / 'plain_seed0').mkdir()
    (tmp_path / 'plain_seed0/finished').write_text('{"accuracy/top1": 50.0}')
    row, = study.results([study.Member('plain', 'x.py', metrics=['top1'])], tmp_path, {})
    assert "['accuracy/top1']" in row['failed'][0] and row['failed'][0] in study.table([row])
