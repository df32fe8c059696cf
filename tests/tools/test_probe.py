"""tools/probe.py on untrained networks and drawn images, and what it refuses."""
import json

import pytest
import torch
from load_tool import load_tool
from PIL import Image

from cvt_dense.analysis.probes import attack, attribution

tool = load_tool('probe')


@pytest.fixture
def run(monkeypatch, capsys, nano, shapes, tmp_path):
    """Runs the tool in this process; returns what it printed, or fails if its exit code is not ``rc``."""

    def call(task, *args, rc=0, checkpoint=None):
        config, weights = nano[task]
        monkeypatch.setattr('sys.argv', ['probe.py', *map(str, (
            config, checkpoint or weights, '--data-root', shapes / task, '--out-dir', tmp_path / 'out', '--device',
            'cpu', '--images', '3', *args))])
        try:
            code = tool.main()
        except SystemExit as end:
            code = end.code
        text = ''.join(capsys.readouterr())
        assert (code or 0) == rc, text
        return text

    return call


def test_all_probes_of_two_classifiers(run, nano, tmp_path, monkeypatch):
    """With fewer steps; what the probes measure is tested in tests/analysis/test_probes.py."""
    for module in (attack, attribution):
        monkeypatch.setattr(module, 'STEPS', 2)
    config, weights = nano['classification']
    text = run('classification', '--probe', 'all', '--compare', f'{config},{weights}')
    content = json.loads((tmp_path / 'out/probes.json').read_text())
    assert [row['probe'] for row in content['rows']] == [name for name in tool.PROBES for _ in range(2)]
    assert content['compare'] == [f'{config.name},{weights.name}'], 'without the folders of this machine'
    assert all(row['values'] and row['sentence'] in text for row in content['rows'])
    assert {row['network'] for row in content['rows']} == {f'{config.stem}_1', f'{config.stem}_2'}
    assert all(min(Image.open(tmp_path / f'out/{name}.png').size) > 300 for name in tool.PROBES)
    rows = {row['probe']: row['values'] for row in content['rows']}
    assert rows['features']['alignment'][f'{config.stem}_1'] == rows['features']['alignment'][f'{config.stem}_2']
    assert rows['calibration']['ensemble'] == rows['calibration']['one pass'], 'of one network twice'
    assert 'probes.json' in run('classification', '--probe', 'shift', rc=2), 'exists already'


@pytest.mark.parametrize('task', ['detection', 'segmentation'])
def test_dense_networks_have_the_probes_that_need_no_label(run, task, tmp_path):
    run(task, '--probe', 'shift,receptive,attack', '--images', '2')
    shift, receptive, attack = json.loads((tmp_path / 'out/probes.json').read_text())['rows']
    assert len(receptive['values']['trained']) == 3 and receptive['values']['trained'] != receptive['values']['image']
    assert (shift['values'] is None) == (task == 'detection'), 'an untrained detector is sure of nothing'
    assert attack['values'] is None and task in attack['sentence'] and not (tmp_path / 'out/attack.png').exists()


@pytest.fixture
def fewer(nano, tmp_path):
    """A checkpoint of the classifier without the last class."""
    content = torch.load(nano['classification'][1], weights_only=True)
    for name in ('head.weight', 'head.bias'):
        content['state_dict'][name] = content['state_dict'][name][:-1]
    content['meta']['dataset_meta']['classes'] = content['meta']['dataset_meta']['classes'][:-1]
    torch.save(content, tmp_path / 'fewer.pth')
    return tmp_path / 'fewer.pth'


@pytest.mark.parametrize('args, named', [
    (['--probe', 'shift,shfit'], 'shfit'),
    (['--images', '0'], '--images'),
    (['--cfg-options', 'test_dataloader.dataset.transform.input_size=8'], 'input_size')])
def test_bad_input(run, args, named, tmp_path):
    text = run('classification', *args, rc=2)
    assert named in text and 'Traceback' not in text and not (tmp_path / 'out').exists()


def test_networks_and_data_that_do_not_fit(run, nano, shapes, fewer, tmp_path):
    other = f'{nano["segmentation"][0]},{nano["segmentation"][1]}'
    assert 'segmentation' in run('classification', '--compare', other, rc=2)
    options = ['--cfg-options', 'model.num_classes=7']
    assert 'classes' in run('classification', *options, rc=2, checkpoint=fewer)
    run('classification', rc=2, checkpoint=nano['segmentation'][1])
    for split in ('train', 'val'):
        (tmp_path / 'data' / split / 'zebra').mkdir(parents=True)
        Image.new('RGB', (64, 64)).save(tmp_path / 'data' / split / 'zebra/a.png')
    assert 'zebra' in run('classification', '--data-root', tmp_path / 'data', rc=2)
    assert not (tmp_path / 'out').exists()
    first = tool.Subject('first', None, classes=('a', 'b'))
    args = tool.build_parser().parse_args(['x', 'y', '--data-root', str(shapes / 'classification')])
    with pytest.raises(tool.UserError, match='--compare'):
        tool.build(args, *map(str, nano['classification']), first)
