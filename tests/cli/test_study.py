"""benchmarks/study.py on very little data; its common functions with the demo are tested there."""
import json

from load_tool import run_tool

from cvt_dense.recipes.shapes import generate

STUDY = """
config = 'cvt_nano_shapes.py'
options = ['train_cfg.max_epochs=1', 'train_cfg.val_interval=1']
metrics = ['accuracy/top1']
size, batch = '64x64', 2
backbone = dict(arch=dict(embed_dims=[8, 8, 16], depths=[1, 1, 1], num_heads=[1, 1, 1]))
members = [
    dict(name='small', changes=dict(model=dict(backbone=backbone))),
    dict(name='broken', changes=dict(model=dict(backbone=dict(out_type='tokens')))),
    dict(name='orphan', weights={'model.backbone.init_cfg.checkpoint': 'broken'}, size=None),
]
"""


def test_members_that_fail_do_not_stop_the_others(tmp_path):
    """Table, picture and reasons; paths with blanks."""
    data = generate(tmp_path / 'my data', size=64, train=1, val=1, train_per_class=4, val_per_class=1)
    (tmp_path / 'mine.py').write_text(STUDY)
    work_dir = tmp_path / 'my, work'
    command = ['study', tmp_path / 'mine.py', '--data-root', data / 'classification', '--work-dir',
               work_dir, '--cfg-options', 'train_dataloader.num_workers=0', 'val_dataloader.num_workers=0']
    out = run_tool(*command, rc=1)
    row, = json.loads((work_dir / 'results.json').read_text())[:1]
    found = row['metrics']['accuracy/top1']
    assert len(found['values']) == row['finished'] == 1 and row['failed'] == []
    assert 1e3 < row['parameters'] < 1e5 and 0 < row['gmacs'] < 1 and row['images_per_s'] > 0
    lines = (work_dir / 'table.md').read_text().splitlines()
    assert lines[2].startswith(f'| small | 1/1 | {found["mean"]:.4g}')
    assert '| broken | 0/1 |' in lines[3] and 'broken_seed0 failed with exit code' in lines[3]
    assert 'orphan_seed0 takes the weights of broken_seed0, which failed' in lines[4]
    assert "out_type='tokens'" in out and '3 failed' in out
    again = run_tool(*command, '--only', 'small')
    assert again.count('finished before') == 1 and '$ python' not in again and lines[2] in again
