"""tools/benchmark.py, as users call it."""
import json
import re
import tarfile

import pytest
from load_tool import ROOT, load_tool, run_tool
from tiny_training import write_config

from cvt_dense.models import CvT

CONFIGS = ROOT / 'configs'
benchmark = load_tool('benchmark')


def test_measures_and_writes(tmp_path):
    out = run_tool('benchmark', 'model', 'cvt-13', '--sizes', '32x48,224', '--batch', 1, '--rounds', 2,
                   '--compare', 'fused', '--json', tmp_path / 'new' / 'a.json')
    report = json.loads((tmp_path / 'new' / 'a.json').read_text())
    rows = report['rows']
    assert [(row['name'], row['size']) for row in rows] == [
        (name, size) for size in ([32, 48], [224, 224]) for name in ('eager', 'fused')]
    assert all(row['latency_ms'] > 0 and f"{row['name']:40}" in out for row in rows)
    assert rows[3]['speedup'] == pytest.approx(rows[2]['latency_ms'] / rows[3]['latency_ms'])
    # 20 million parameters in float32 are 0.07 GiB, activations come on top.
    assert .07 < rows[2]['memory_gib'] < .5 and 15e6 < rows[2]['parameters'] < 25e6
    assert report['settings']['sizes'] == [[32, 48], [224, 224]] and report['environment']['torch']
    assert report['settings']['json'] == 'a.json', 'without the folder of this machine'


@pytest.mark.parametrize('config, batch', [('retinanet_cvt13_coco', 1), ('cvt13_in1k', 2)])
def test_whole_models(config, batch):
    """Outputs, gradients of every part, and variants with the same weights."""
    import torch
    from torch.utils._pytree import tree_leaves

    from cvt_dense.cli.benchmark import measure as measuring
    args = benchmark.build_parser().parse_args(['model', f'{CONFIGS}/{config}.py', '--batch', str(batch)])
    models = {name: measuring.build(name, args, (64, 96)) for name in ('eager', 'fused', 'windowed')}
    inputs = measuring.inputs_of(models['eager'], args, (64, 96))
    assert inputs['inputs'].shape == (batch, 3, 64, 96)
    with torch.no_grad():
        plain, fused = (tree_leaves(measuring.forward(models[name], inputs)) for name in ('eager', 'fused'))
    assert plain and all(torch.isfinite(output).all() for output in plain)
    torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-4)
    assert models['windowed'].backbone.stage0.blocks[0].attn.window_size == 28

    args.mode, model, reached = 'train', models['eager'].train(), set()
    for name, param in model.named_parameters():
        param.register_hook(lambda grad, name=name: reached.add(name))
    measuring.step(model, inputs, args)
    assert reached == set(dict(model.named_parameters()))
    assert all(param.grad is None for param in model.parameters())


@pytest.mark.parametrize('args, named', [
    (['cvt-14'], 'cvt-14'),
    (['cvt-13', '--compare', 'resnet51'], 'resnet51'),
    (['cvt-13', '--compare', 'fused', '--mode', 'train'], '--mode train'),
    ([str(CONFIGS / 'retinanet_cvt13_coco.py'), '--compare', 'fused,resnet50'], 'resnet50'),
    (['cvt-13', '--size', '8x64'], '8x64')], ids=lambda value: '' if isinstance(value, str) else ' '.join(value))
def test_a_refused_call_names_the_network_or_flag(args, named):
    assert named in run_tool('benchmark', 'model', *args, rc=2)


def test_runtimes_are_further_columns(monkeypatch):
    """On files that were compared with PyTorch; a small CvT in the place of CvT-13."""
    pytest.importorskip('openvino')
    monkeypatch.setitem(CvT.arch_zoo, 'cvt-13', dict(
        embed_dims=(8, 16, 16), depths=(1, 1, 1), num_heads=(1, 2, 2), drop_path_rates=(0., 0., 0.)))
    names = ['eager', 'openvino-bf16', 'onnxruntime']
    out = run_tool('benchmark', 'model', 'cvt-13', '--device', 'cpu', '--size', 32, '--batch', 3, '--rounds', 1,
                   '--compare', ','.join(names[1:]))
    assert all(re.search(rf'^{name} +\S+ +[\d.]+', out, re.M) for name in names)


def test_parts_of_a_detector_add_up(tmp_path):
    """Of ours and of one of MMDetection's own, in the same rounds."""
    name = 'mmdet::faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py'
    run_tool('benchmark', 'parts', CONFIGS / 'maskrcnn_cvt_nano_shapes.py', name, '--size', 64, '--rounds', 1, '--json',
             tmp_path / 'a.json')
    rows = json.loads((tmp_path / 'a.json').read_text())['rows']
    assert [row.pop('config') for row in rows] == [str(CONFIGS / 'maskrcnn_cvt_nano_shapes.py'), name]
    for row in rows:
        assert all(value > 0 for value in row.values())
        assert row.pop('whole_ms') == pytest.approx(sum(row.values()))


def test_data_in_a_tar_file_beside_the_model(tmp_path):
    config = write_config(tmp_path)
    train = config.parent / 'data' / 'train'
    with tarfile.open(f'{train}.tar', 'w') as tar:
        tar.add(train, '.')
    output = run_tool('benchmark', 'data', config, '--workers', '0,1', '--steps', '2', '--cfg-options',
                      'train_dataloader.dataset.split=train.tar')
    rates = dict(re.findall(r'^(data, \d workers|training step, cpu) +([\d.]+)$', output, re.M))
    assert list(rates) == ['data, 0 workers', 'data, 1 workers', 'training step, cpu']
    data, training = max(float(rates[name]) for name in list(rates)[:2]), float(rates['training step, cpu'])
    assert ('The model limits' if data > training > 0 else 'The data limits') in output
