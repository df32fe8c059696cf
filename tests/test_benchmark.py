"""tools/benchmark.py model, as users call it."""
import importlib.util
import json
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / 'tools' / 'benchmark.py'


@pytest.fixture(scope='module')
def benchmark():
    spec = importlib.util.spec_from_file_location('benchmark', TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_measures_and_writes(run_tool, tmp_path):
    out = run_tool(TOOL, 'model', 'cvt-13', '--sizes', '32x48,224', '--batch', 1, '--rounds', 2, '--compare', 'fused',
                   '--json', tmp_path / 'new' / 'a.json', '--plot', tmp_path / 'a.png').stdout
    report = json.loads((tmp_path / 'new' / 'a.json').read_text())
    rows = report['rows']
    assert [(row['name'], row['size']) for row in rows] == [
        (name, size) for size in ([32, 48], [224, 224]) for name in ('eager', 'fused')]
    for row in rows:
        assert 0 < row['fastest_ms'] <= row['latency_ms'] and 0 < row['share_of_peak'] < 1.5
        assert row['images_per_s'] == pytest.approx(1e3 / row['latency_ms'])
        assert f"{row['name']:40}" in out
    # The paper's 4.53 G multiplications, each with an addition.
    assert rows[2]['gflop'] == pytest.approx(2 * 4.53, rel=.02)
    # 20 million parameters in float32 are 0.07 GiB, activations come on top.
    assert .07 < rows[2]['memory_gib'] < .5
    assert (tmp_path / 'a.png').read_bytes().startswith(b'\x89PNG')
    assert report['settings']['sizes'] == [[32, 48], [224, 224]] and report['environment']['torch']


def test_training_step_of_a_config_beside_timm(run_tool, benchmark, tmp_path):
    config = TOOL.parents[1] / 'configs' / 'maskrcnn_cvt13_coco_win.py'
    names = ['pvt_v2_b0']
    run_tool(TOOL, 'model', config, '--size', '64x32', '--batch', 2, '--rounds', 1, '--mode', 'train', '--amp', 'bf16',
             '--compare', ','.join(names), '--json', tmp_path / 'a.json')
    rows = json.loads((tmp_path / 'a.json').read_text())['rows']
    assert [row['name'] for row in rows] == ['eager', *names]
    assert all(row['latency_ms'] > 0 and row['memory_gib'] > 0 for row in rows)
    assert benchmark.backbone_cfg(str(config))['window_size'] == [28, 28, None]


def test_einsum_is_the_same_function(benchmark, monkeypatch):
    import torch
    monkeypatch.setattr('sys.argv', ['benchmark.py', 'model', 'cvt-13', '--window-size', '4,none,none'])
    args = benchmark.parse_args()
    x = torch.rand(1, 3, 64, 96)
    with torch.no_grad():
        for name in ('eager', 'windowed'):
            expected, got = (benchmark.build(other, args, (64, 96))(x) for other in (name, f'{name}+einsum'))
            for a, b in zip(got, expected):
                torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize('args, message', [
    (['cvt-14'], 'cvt-14: neither a config file nor one of cvt-13, cvt-21, cvt-w24'),
    (['cvt-13', '--compare', 'resnet51'], "--compare resnet51: allowed are 'transformers', windowed, fused, einsum, "
                                          "compiled, timm's networks and combinations of them with +"),
    (['cvt-13', '--compare', 'resnet50+fused'],
     '--compare resnet50+fused: resnet50 can only be combined with compiled'),
    (['cvt-13', '--compare', 'resnet50+resnet18'],
     "'resnet50+resnet18' names two networks: ['resnet50', 'resnet18']."),
    (['cvt-13', '--compare', 'fused', '--mode', 'train'],
     '--compare fused: fused is for inference, not --mode train'),
    (['cvt-13', '--size', '8x64'], '8x64: CvT needs at least 16x16 pixels'),
    (['cvt-13', '--rounds', '0'], '--batch 8 --rounds 0: both must be at least 1'),
    (['cvt-13', '--device', 'cuda'], '--device cuda: this PyTorch sees no CUDA device'),
], ids=lambda value: '' if isinstance(value, str) else ' '.join(value))
def test_mistakes(benchmark, monkeypatch, capsys, args, message):
    monkeypatch.setattr('torch.cuda.is_available', lambda: False)
    monkeypatch.setattr('sys.argv', ['benchmark.py', 'model', *args])
    with pytest.raises(SystemExit) as end:
        benchmark.parse_args()
    assert end.value.code == 2 and message in capsys.readouterr().err


def test_wrong_windows_are_no_traceback(run_tool):
    out = run_tool(TOOL, 'model', 'cvt-13', '--compare', 'windowed', '--window-size', '7,7,none', rc=1).stdout
    assert 'window_size=7 in stage 0: must be a positive multiple of stride_kv=2' in out and 'Traceback' not in out
