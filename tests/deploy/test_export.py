"""Exported files of every format and precision give what the model gives, and say what they are."""
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from load_tool import load_tool
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

for package in ('onnx', 'onnxscript', 'onnxruntime', 'openvino', 'nncf', 'torchao'):
    pytest.importorskip(package)

from _shapes import CLASSES, generate

from cvt_dense.deploy import check, detectors, memory, quantize
from cvt_dense.deploy.export import Exporter, Options
from cvt_dense.deploy.runtime import open_exported
from cvt_dense.errors import UserError
from cvt_dense.models import CvT, ImageClassifier

ROOT = Path(__file__).resolve().parents[2]
WINDOWS = dict(type='cvt_dense.WindowedAttention', window_size=28)
ARCH = dict(embed_dims=(8, 16, 16), depths=(1, 1, 1), num_heads=(1, 2, 2))
TWO_STAGES = dict(embed_dims=(8, 16), depths=(1, 1), num_heads=(1, 2))
SIZE = (48, 64)
ABOUT = dict(classes=['cat', 'dog', 'owl'], config='mine.py', config_hash='0' * 64)


def image(batch=1, size=SIZE, seed=5):
    return check.random_images(size, batch, seed)


def randomise(model):
    """Weights and statistics that show if a bias, a norm or a factor is lost."""
    for module in model.modules():
        for name, value in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            if name in ('bias', 'running_mean'):
                value.data.normal_(std=0.2)
            elif name == 'running_var' or (name == 'weight' and value.dim() == 1):
                value.data.uniform_(0.7, 1.4)
            elif name == 'weight':
                value.data.normal_(std=value[0].numel()**-0.5)
    return model


@pytest.fixture(scope='module')
def exporter():
    """Of a classifier on CLS, raw images in; everything below starts from its one ONNX graph."""
    torch.manual_seed(0)
    model = randomise(ImageClassifier(dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token'), num_classes=3))
    lines = []
    made = Exporter(model, Options(SIZE, raw_input='NHWC', keep=('backbone.stage0.patch_embed', )), ABOUT,
                    [image(seed=i) for i in range(6)], lines.append)
    made.lines = lines
    return made


def logits(exporter, images):
    """What the model makes of a batch by the way that testing goes, its own preprocessor included."""
    return torch.stack([found['logits'] for found in exporter.model.test_step(dict(inputs=images))])


@pytest.mark.parametrize('name, tolerance', [
    ('a.onnx fp32', 1e-5), ('a.onnx fp16', 1e-2), ('a.onnx bf16', 5e-2), ('a.onnx int8', 0.2),
    ('a.xml fp32', 1e-5), ('a.xml fp16', 2e-2), ('a.xml bf16', 8e-2), ('a.xml int8', 0.2),
    ('a.pt2 fp32', 1e-5), ('a.pt2 bf16', 8e-2), ('a.pt2 int8', 0.2)])
def test_every_format_and_precision(exporter, tmp_path, name, tolerance):
    """Batches of 1 and 3; the metadata; what holds the precision is smaller than float32."""
    file, precision = name.split()
    path, before = tmp_path / file, len(exporter.lines)
    assert exporter.export(path, precision)
    opened = open_exported(path)
    for batch in (1, 3):
        images = image(batch)
        expected = logits(exporter, images)
        actual = opened(images.permute(0, 2, 3, 1).contiguous())['logits']
        assert actual.dtype == torch.float32
        assert (actual - expected).norm() <= tolerance * expected.norm()
    about = opened.metadata
    assert about == json.loads(json.dumps(exporter.metadata(precision)))
    assert (about['classes'], about['layout'], about['input_size'], about['outputs'], about['out_channels']) == (
        ['cat', 'dog', 'owl'], 'NHWC', list(SIZE), ['logits'], [16])
    if precision == 'int8':  # all but the kept one; .onnx and .xml share their quantised graph
        said = exporter.lines[before:] if file == 'a.pt2' else exporter.lines
        assert f'  {len(exporter.layers) - 1} of {len(exporter.layers)} layers in int8' in said
    if name == 'a.xml int8':
        line = next(line for line in exporter.lines if 'layers run in int8 in OpenVINO on this CPU' in line)
        assert int(line.split()[0]) > len(exporter.layers) / 2
    assert not list(tmp_path.glob('*unchecked*')) and not list(tmp_path.glob('*above*'))
    with pytest.raises(UserError, match='was made for images of 48x64 pixels .*--size 48x48 or --dynamic'):
        opened(torch.zeros(1, 48, 48, 3, dtype=torch.uint8))


def test_int8_operators_are_in_the_file(exporter):
    """All layers but those of --keep; weights symmetric with a scale per output channel, activations with one."""
    onnx = pytest.importorskip('onnx')
    model = exporter._onnx_int8
    kept = [name for name in exporter.layers if name.startswith('backbone.stage0.patch_embed')]
    assert kept and len(quantize.int8_nodes(model)) == len(exporter.layers) - len(kept)
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    weights = [node for node in model.graph.node if node.op_type == 'DequantizeLinear' and node.input[0] in constants
               and constants[node.input[0]].ndim >= 2]
    assert len(weights) == len(exporter.layers) - len(kept)
    for node in weights:
        values, scale = (constants[name] for name in node.input[:2])
        assert values.dtype == np.int8 and scale.size == values.shape[[a.i for a in node.attribute][0]] > 1
        assert len(node.input) < 3 or not constants[node.input[2]].any()
    activations = [node for node in model.graph.node if node.op_type == 'QuantizeLinear']
    assert activations and all(constants[node.input[1]].size == 1 for node in activations)
    assert not [node for node in model.graph.node if node.op_type == 'Attention'
                and any('Dequantize' in name for name in node.input)]
    # It says what was tried. Smoothing moves factors into layers, some of which CLS passes by: it must get them too.
    tried = [float(line.split('relative error ')[1].split()[0]) for line in exporter.lines if '  int8 with' in line]
    assert len(tried) >= 4 and max(tried) < 0.15
    assert any(re.match('  taken: with(out)? smoothing, with(out)? bias correction', line) for line in exporter.lines)


def test_sensitivity_lists_every_layer(exporter):
    listed = exporter.sensitivity()
    assert {name for name, _ in listed} == set(exporter.layers) and 'head' in exporter.layers
    costs = [cost for _, cost in listed]
    assert costs == sorted(costs, reverse=True) and 0 <= costs[-1] and 0 < costs[0] < 0.5
    # The last block's map tokens ask for nothing that CLS is made of.
    assert [name for name, cost in listed if not cost] == ['backbone.stage2.blocks.0.attn.conv_proj_q']
    with pytest.raises(UserError, match='--keep backbone.stage0.blok: there is no such layer.*similar: backbone.st'):
        quantize.select(list(exporter.layers), ['backbone.stage0.blok'])


def tiny(config, arch=ARCH, **changes):
    cfg = Config.fromfile(ROOT / 'configs' / config)
    cfg.merge_from_dict({'model.backbone.arch': dict(arch, _delete_=True), **changes})
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    return randomise(MODELS.build(cfg.model)).eval()


def every_layer_is_found(exporter):
    """For int8, by its name in the model; exporters that fold norms into layers lose it."""
    assert set(quantize.onnx_layers(exporter._onnx, exporter.layers).values()) == set(exporter.layers)


UPERNET = {
    'model.decode_head.in_channels': [8, 16], 'model.decode_head.in_index': [0, 1],
    'model.decode_head.pool_scales': (1, 3), 'model.decode_head.channels': 8, 'model.auxiliary_head': None}


def test_segmentor_in_int8(tmp_path):
    """In OpenVINO too, which wants the pooled maps' quantisers kept apart from their products."""
    model = tiny('upernet_cvt_nano_shapes.py', TWO_STAGES, **UPERNET)
    lines = []
    exporter = Exporter(model, Options(SIZE), ABOUT, [image(seed=i) for i in range(4)], lines.append)
    assert exporter.export(tmp_path / 'a.xml', 'int8'), lines
    every_layer_is_found(exporter)
    assert not [line for line in lines if 'does not run it' in line]


def test_segmentor_for_any_size(tmp_path):
    """Pooling to fixed bins, resizing to the image and the normalisation inside follow the size; labels come out."""
    from mmseg.structures import SegDataSample
    model = tiny('upernet_cvt_nano_shapes.py', TWO_STAGES, **UPERNET)
    exporter = Exporter(model, Options(SIZE, dynamic=True, raw_input='NCHW', argmax=True), ABOUT, report=lambda _: None)
    assert exporter.export(tmp_path / 'a.onnx') and exporter.export(tmp_path / 'a.xml')
    every_layer_is_found(exporter)
    images = image(2, (75, 53))
    data = dict(inputs=list(images.flip(1)), data_samples=[SegDataSample(metainfo=dict(ori_shape=(75, 53)))] * 2)
    data = model.data_preprocessor(data)
    for sample in data['data_samples']:
        sample.set_metainfo(dict(img_shape=(75, 53)))
    with torch.no_grad():
        expected = model(**data, mode='predict')
    for name in ('a.onnx', 'a.xml'):
        labels = open_exported(tmp_path / name)(images)['labels']
        same = [(one == sample.pred_sem_seg.data[0]).float().mean() for one, sample in zip(labels, expected)]
        assert min(same) > 0.999, name


MASK_RCNN = 'maskrcnn_cvt_nano_shapes.py', {
    'arch': TWO_STAGES, 'model.neck.in_channels': [8, 16], 'model.roi_head.bbox_head.reg_class_agnostic': False,
    'model.roi_head.mask_head.class_agnostic': False, 'model.test_cfg.rcnn.score_thr': 0.12}
RETINANET = 'retinanet_cvt13_coco.py', {
    'model.neck.in_channels': [16, 16], 'model.neck.out_channels': 8, 'model.neck.num_outs': 2,
    'model.bbox_head.in_channels': 8, 'model.bbox_head.anchor_generator.strides': [8, 16],
    'model.bbox_head.feat_channels': 8, 'model.bbox_head.num_classes': 3, 'model.bbox_head.stacked_convs': 1,
    'model.test_cfg.nms_pre': 40}


@pytest.fixture(scope='module')
def kernels():
    """mmcv's kernels for the two operators that exported files have."""
    from mmcv import ops

    def nms(boxes, scores, iou_threshold, score_threshold, max_boxes):
        good = (scores > score_threshold).nonzero()[:, 0]
        return good[ops.nms(boxes[good], scores[good], iou_threshold)[1]][:max_boxes]

    def roi_align(maps, boxes, height, width, scale, sampling_ratio, aligned):
        return ops.roi_align(maps.contiguous(), torch.nn.functional.pad(boxes, (1, 0)), (height, width), scale,
                             sampling_ratio, 'avg', aligned)

    torch.library.impl('cvt_dense::nms', 'CPU', nms, lib=detectors.library)
    torch.library.impl('cvt_dense::roi_align', 'CPU', roi_align, lib=detectors.library)


@pytest.mark.parametrize('config, changes', [MASK_RCNN, RETINANET], ids=['maskrcnn', 'retinanet'])
def test_detectors_arithmetic_is_mmdets(kernels, config, changes):
    """Before any exporter: what is exported gives what mmdet's own way gives, on an image that mmdet pads."""
    from mmdet.structures import DetDataSample
    model = tiny(config, **changes)
    exporter = Exporter(model, Options(SIZE), ABOUT)
    images = image(1, (71, 90))
    sample = DetDataSample(metainfo=dict(img_shape=(71, 90), ori_shape=(71, 90), scale_factor=(1., 1.)))
    with torch.no_grad():
        actual = dict(zip(exporter.names, exporter.network(exporter.normalise(images))))
        found, = model.test_step(dict(inputs=[images[0].flip(0)], data_samples=[sample]))
    expected = exporter.reference(images)
    assert len(actual['boxes']) >= 5
    for name, key in dict(boxes='bboxes', scores='scores', labels='labels').items():
        torch.testing.assert_close(actual[name], found.pred_instances[key], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(expected[name], found.pred_instances[key])
    if 'masks' in exporter.names:
        torch.testing.assert_close(actual['masks'], expected['masks'], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('config, changes, dynamic', [(*MASK_RCNN, False), (*RETINANET, True)],
                         ids=['maskrcnn', 'retinanet'])
def test_whole_detector_in_a_file(tmp_path, config, changes, dynamic):
    """In ONNX Runtime and OpenVINO, on an image that is padded, or of another size than it was traced with."""
    options = Options((71, 90), dynamic=dynamic)
    exporter = Exporter(tiny(config, **changes), options, ABOUT, report=lambda _: None)
    images = image(1, (93, 140) if dynamic else (71, 90))
    expected = exporter.reference(images)
    masks = ['masks'] if config.startswith('mask') else []
    assert exporter.names == ['boxes', 'scores', 'labels', *masks] and len(expected['boxes']) >= 5
    for name in ('a.onnx', 'a.xml'):
        assert exporter.export(tmp_path / name), name
        opened = open_exported(tmp_path / name)
        assert opened.metadata['batch'] == 1 and opened.metadata['outputs'] == exporter.names
        actual = opened(exporter.to_input(images))
        for key in exporter.names:
            torch.testing.assert_close(actual[key], expected[key], rtol=1e-3, atol=1e-3)
    every_layer_is_found(exporter)
    with pytest.raises(UserError, match='torch.export has no operators for what a whole detector does'):
        exporter.export(tmp_path / 'a.pt2')


def test_what_cannot_be_exported(tmp_path):
    model = ImageClassifier(dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token'), num_classes=3)
    with pytest.raises(UserError, match='--argmax turns the logits of a whole segmentor'):
        Exporter(model, Options(SIZE, argmax=True), ABOUT)
    with pytest.raises(UserError, match='--size 12x64: CvT needs at least 16x16'):
        Exporter(model, Options((12, 64)), ABOUT)
    with torch.device('meta'):
        backbone = CvT('cvt-13')
        windows = CvT('cvt-13', attn_cfg=[WINDOWS, WINDOWS, None])
    assert memory.largest_scores(backbone, (800, 1344)) == (4 * 200 * 336 * 100 * 168, 0)
    assert memory.largest_scores(windows, (800, 1344))[0] < 2**30
    with pytest.raises(UserError, match='stage 0 has 4.2 GiB of scores .*Write .xml or .pt2 .*window_size'):
        memory.check_attention(backbone, (800, 1344), '.onnx')
    memory.check_attention(backbone, (800, 1344), '.xml')
    memory.check_attention(windows, (800, 1344), '.onnx')
    windows = ImageClassifier(dict(
        type='cvt_dense.CvT', arch=ARCH, out_type='cls_token', attn_cfg=[dict(WINDOWS, window_size=4)] * 2 + [None]), 3)
    with pytest.raises(UserError, match='cannot be exported for images of any size .windowed attention'):
        Exporter(windows, Options(SIZE, dynamic=True), ABOUT).export(tmp_path / 'a.pt2')
    detector = tiny('dino_cvt13_coco.py', **{'model.neck.in_channels': [8, 16, 16]})
    with pytest.raises(UserError, match='DINO cannot be exported as a whole: it has .*--part backbone'):
        Exporter(detector, Options(SIZE), ABOUT)


@pytest.fixture(scope='module')
def tool():
    return load_tool('export')


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """The generated data, and a checkpoint of configs/cvt_nano_shapes.py as the Runner writes it, untrained."""
    folder = tmp_path_factory.mktemp('trained')
    generate(folder / 'data', train=1, val=1, train_per_class=1, val_per_class=1)
    cfg = Config.fromfile(ROOT / 'configs/cvt_nano_shapes.py')
    init_default_scope(cfg.default_scope)
    torch.save(dict(state_dict=MODELS.build(cfg.model).state_dict(), meta=dict(dataset_meta=dict(classes=CLASSES))),
               folder / 'epoch_1.pth')
    return folder


@pytest.mark.parametrize('out, flags, message', [
    ('a.tflite', (), "a.tflite': the suffix says what is written; allowed are .onnx"),
    ('file/a.onnx', (), 'cannot be written'),
    ('a.onnx', ('--size', '12x64'), '--size 12x64: CvT needs at least 16x16 pixels'),
    ('a.onnx', ('--size', 'large'), '--size large: write height and width in pixels, such as 800x1280'),
    ('a.onnx', ('--precision', 'int8', '--calibrate', '9'), '--calibrate 9: allowed are 1 to 8, the images of the '
     'training set'),
    ('a.onnx', ('--keep', 'backbone.stage7'), '--keep backbone.stage7: there is no such layer'),
    ('a.xml', ('--precision', 'int8'), '.xml with --precision int8 needs nncf, not installed here: run pip install -e'),
    ('a.onnx', ('--cfg-options', 'model.backbone.arch.embed_dims=[16,32,64]'), 'epoch_1.pth')])
def test_bad_input_is_one_paragraph(tool, trained, tmp_path, monkeypatch, capsys, out, flags, message):
    (tmp_path / 'file').touch()
    if 'nncf' in message:
        monkeypatch.setitem(sys.modules, 'nncf', None)  # as if it were not installed
    files = ROOT / 'configs/cvt_nano_shapes.py', trained / 'epoch_1.pth', tmp_path / out
    monkeypatch.setattr('sys.argv', ['export.py', *map(str, files), '--data-root',
                                     str(trained / 'data/classification'), *flags])
    with pytest.raises(SystemExit) as end:
        tool.main()
    text = capsys.readouterr().err
    assert end.value.code == 2 and message in text and text.startswith('error: ') and text.count('\n') == 1
    assert not (tmp_path / out).exists()


NEXT_TO_0 = """
import runpy, sys
from cvt_dense.deploy import check
check.TOLERANCES['fp32'] = 1e-12
sys.argv[0] = 'tools/export.py'
sys.path.insert(0, 'tools')
runpy.run_path('tools/export.py', run_name='__main__')
"""


def test_the_tool_writes_judges_and_says_so(run_tool, trained, tmp_path):
    """One file within its tolerance, evaluated beside the checkpoint; one above it, here because that is next to 0."""
    out = run_tool(
        '-c', NEXT_TO_0, ROOT / 'configs/cvt_nano_shapes.py', trained / 'epoch_1.pth', tmp_path / 'new/a.onnx',
        '--precision', 'fp32', 'bf16', '--raw-input', '--evaluate', '--data-root', trained / 'data/classification',
        rc=3).stdout
    assert sorted(path.name for path in (tmp_path / 'new').iterdir()) == ['a_bf16.onnx', 'a_fp32.above_tolerance.onnx']
    assert re.search('a_fp32.onnx was not written: it would differ from PyTorch by more than fp32 explains.*is in '
                     'a_fp32.above_tolerance.onnx', out)
    assert re.search(r'a_bf16.onnx: done, \d+\.\d\d MB', out) and '64x64, batch 2: logits' in out
    about = open_exported(tmp_path / 'new/a_bf16.onnx').metadata
    assert about['classes'] == list(CLASSES) and about['config'] == 'cvt_nano_shapes.py'
    assert re.fullmatch('[0-9a-f]{64}', about['config_hash'])
    header, *rows = out[out.index('accuracy/top1'):].splitlines()[:3]
    assert header.split() == ['accuracy/top1', 'accuracy/top5', 'MB', 'images/s']
    cells = [row.rsplit(maxsplit=4) for row in rows]
    assert [row[0] for row in cells] == ['PyTorch, fp32', 'a_bf16.onnx, bf16']
    assert cells[0][1:3] == cells[1][1:3] and all(float(cell) > 0 for row in cells for cell in row[3:])
    assert 'This CPU has ' in out


def test_a_file_above_the_tolerance_gets_another_name(exporter, tmp_path, monkeypatch):
    """Here because the model has changed since; OpenVINO's weights are moved too."""
    monkeypatch.setattr(exporter.model.head.bias, 'data', exporter.model.head.bias.data + 1)
    assert not exporter.export(tmp_path / 'a.xml')
    assert sorted(path.name for path in tmp_path.iterdir()) == ['a.above_tolerance.bin', 'a.above_tolerance.xml']
    assert 'ABOVE the tolerance of fp32' in exporter.lines[-1]
