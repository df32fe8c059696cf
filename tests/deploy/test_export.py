"""Exported files of every format and precision give the model's outputs and describe themselves in metadata."""
import copy
import json
import subprocess
import sys
from collections.abc import Collection
from unittest import mock

import cv2
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from load_tool import ROOT, run_tool
from mmengine.config import Config
from mmengine.hub import get_config
from mmengine.registry import MODELS, DefaultScope
from PIL import Image
from random_weights import randomise

from cvt_dense.deploy import int8, runtime
from cvt_dense.deploy.check import random_images
from cvt_dense.deploy.export import Exporter
from cvt_dense.deploy.exported import run_exported
from cvt_dense.deploy.runtime import open_exported
from cvt_dense.errors import UserError
from cvt_dense.inference import load
from cvt_dense.pretraining import ImageClassifier

pytestmark = pytest.mark.slow

ABOUT = dict(classes=None, config='mine.py', config_hash='0' * 64)


def logits(exporter, images):
    """Run a classifier on raw images as testing does, its own preprocessor included."""
    return torch.stack([sample['logits'] for sample in exporter.reference.model.test_step(dict(inputs=images))])


@pytest.mark.parametrize('name, tolerance', [
    ('a.onnx fp32', 1e-5), ('a.onnx int8', 0.1), ('a.xml fp32', 1e-5), ('a.xml bf16', 8e-2),
    ('a.xml int8', 0.1), ('a.pt2 fp32', 1e-5)])
def test_every_format_and_precision(exporter, tmp_path, name, tolerance):
    """Batches of 1 and 3, and the metadata. A BatchNorm that is lost differs by more."""
    file, precision = name.split()
    path, before = tmp_path / file, len(exporter.lines)
    assert exporter.export(path, precision), exporter.lines[before:]
    opened = open_exported(path)
    for batch in (1, 3):
        images = random_images((64, 64), batch, 5)
        expected = logits(exporter, images)
        actual = opened(images.permute(0, 2, 3, 1).contiguous())['logits']
        assert actual.dtype == torch.float32 and (actual - expected).norm() <= tolerance * expected.norm()
    about = opened.metadata
    assert about == json.loads(json.dumps(exporter.metadata(precision)))
    assert (len(about['classes']), about['layout'], about['input_size'], about['outputs']) == (
        8, 'NHWC', [64, 64], ['logits'])
    assert sorted(tmp_path.iterdir()) == sorted({path, path.with_suffix('.bin') if file == 'a.xml' else path})
    with pytest.raises(UserError, match='--dynamic'):
        opened(torch.zeros(1, 48, 48, 3, dtype=torch.uint8))


def int8_layers(model, names: Collection[str]) -> set[str]:
    """Those of the layers ``names`` that a quantised ONNX or OpenVINO model computes in int8."""
    layers = int8.layer_nodes(model, names)
    if hasattr(model, 'graph'):
        makers = {out: node.op_type for node in model.graph.node for out in node.output}
        return {layers[node.name] for node in model.graph.node if node.name in layers
                and all(makers.get(name) == 'DequantizeLinear' for name in node.input[:2])}
    return {layers[op.get_friendly_name()] for op in model.get_ops() if op.get_friendly_name() in layers
            and op.input_value(0).get_node().get_type_name() == 'FakeQuantize'}


def test_int8_operators_are_in_the_file(exporter, tmp_path):
    """All layers but those of --keep are quantised, and the products inside attention are not."""
    import onnx
    import onnxruntime
    exporter.export(tmp_path / 'a.onnx', 'int8')
    model = onnx.load(tmp_path / 'a.onnx')
    kept = {name for name in exporter.layers if name.startswith(('backbone.stage1.patch_embed', *int8.KEPT))}
    assert kept and int8_layers(model, exporter.layers) == exporter.layers - kept
    assert not [node for node in model.graph.node if node.op_type == 'Attention'
                and any('Dequantize' in name for name in node.input)]
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1  # so that ONNX Runtime joins MatMul and Add
    onnxruntime.InferenceSession(model.SerializeToString())


def multiply_in_16_bits(activations: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Multiply uint8 (N, in) by int8 (in, out) as x86 without VNNI does: pairs of products are added in 16 bits."""
    products = activations.astype(np.int64)[:, :, None] * weights
    return (products[:, ::2] + products[:, 1::2]).clip(-2**15, 2**15 - 1).sum(axis=1)  # vpmaddubsw saturates


@pytest.mark.parametrize('full_range', [False, True])
def test_int8_is_the_same_on_every_cpu(exporter, monkeypatch, full_range):
    """No pair of products overflows in 16 bits, as pairs do if weights have the whole range of int8."""
    import nncf
    import onnx
    import onnxruntime
    import openvino
    if full_range:
        made = nncf.AdvancedQuantizationParameters
        monkeypatch.setattr(nncf, 'AdvancedQuantizationParameters', lambda **options: made(
            **dict(options, overflow_fix=nncf.OverflowFix.DISABLE)))
    model = exporter._convert('.onnx', 'int8')
    makers = {out: node for node in model.graph.node for out in node.output}
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    linear = {makers[node.input[0]].input[0]: stored[makers[node.input[1]].input[0]] for node in model.graph.node
              if node.op_type == 'MatMul' and node.name in exporter.quantized}
    for name in linear:
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UINT8, None))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=['CPUExecutionProvider'])
    image = random_images((64, 64), 1, 5).permute(0, 2, 3, 1).numpy()
    exact = [np.array_equal(multiply_in_16_bits(rows, weights), rows.astype(np.int64) @ weights)
             for (name, weights), tokens in zip(linear.items(), session.run(list(linear), dict(image=image)))
             for rows in [tokens.reshape(-1, len(weights))]]
    assert len(exact) > 5 and all(exact) != full_range
    largest = max(np.abs(op.data.astype(int)).max() for op in exporter._convert('.xml', 'int8').get_ops()
                  if op.get_type_name() == 'Constant' and op.get_element_type() == openvino.Type.i8)
    assert (2 * 255 * largest < 2**15) != full_range  # for any activations


def test_raw_images_are_those_of_the_pipeline(network, exporter, tmp_path):
    """A file that normalises otherwise than the test pipeline is above the tolerance."""
    images = [random_images((64, 64), 1, i) for i in range(3)]
    for scale, good in ((1, True), (2, False)):
        tests = [exporter.normalise(image) * scale for image in images]
        made = network('classification').exporter((64, 64), raw_input=True, tests=tests)
        made.onnx = exporter.onnx  # the trace takes seconds
        assert made.export(tmp_path / 'a.onnx') == good


# -- segmentors ------------------------------------------------------------------------------------------------


def test_a_segmentor_for_one_size_says_so_before_data_are_read(network, segmentor, tmp_path):
    one_size = copy.copy(segmentor)
    one_size.onnx, one_size.dynamic = segmentor.onnx, False
    assert one_size.export(tmp_path / 'a.onnx')
    (tmp_path / 'b.png').touch()
    files = network('segmentation').config, *sorted(tmp_path.iterdir())
    output = run_tool('predict', *files, '--out-dir', tmp_path / 'c', rc=1)
    assert output.index('64x48') < output.index('failed')


def test_segmentor_for_any_size(segmentor, network, tmp_path):
    """Pooling to fixed bins and resizing to the image follow the size; every layer keeps its name."""
    assert segmentor.export(tmp_path / 'a.xml') and segmentor.dynamic
    assert set(int8.layer_nodes(segmentor.onnx, segmentor.layers).values()) == segmentor.layers
    images = random_images((75, 53), 2)
    x = network('segmentation').inputs(images)
    meta = dict.fromkeys(('img_shape', 'ori_shape', 'pad_shape'), (75, 53))
    with torch.no_grad():
        expected = network('segmentation').model.encode_decode(x, [meta] * 2)
    torch.testing.assert_close(open_exported(tmp_path / 'a.xml')(x)['logits'], expected, rtol=1e-3, atol=1e-3)


def test_upernet_in_int8(segmentor, tmp_path):
    """All layers but those of the pooled maps."""
    assert segmentor.export(tmp_path / 'a.xml', 'int8'), segmentor.lines
    kept = {name for name in segmentor.layers if name.startswith(int8.KEPT)}
    model = runtime.openvino_core().read_model(tmp_path / 'a.xml')
    assert kept and int8_layers(model, segmentor.layers) == segmentor.layers - kept


# -- detectors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('task', ['detection', 'cascade', 'retinanet', 'fcos', 'gfl', 'rtmdet'])
def test_whole_detector(network, detector, tmp_path, recwarn, task):
    """A file in the place of the model gives its boxes and masks; a file for one size fits others into it."""
    import onnx
    from mmdet.structures import DetDataSample
    made = network(task)
    exporter = detector if task == 'detection' else made.exporter((64, 96))
    assert exporter.export(tmp_path / 'a.onnx'), exporter.lines
    assert any(', scores: ' in line for line in exporter.lines)  # of objects that both detect
    if task in ('retinanet', 'detection'):  # for one size and for any
        run_documented_program(tmp_path)
    if task == 'detection':  # its thresholds are in the file, but for that of the masks
        prefix = 'model.test_cfg.rcnn'
        for name, value in (('score_thr', 0.3), ('nms.iou_threshold', 0.9), ('max_per_img', 1)):
            with pytest.raises(UserError, match=name):
                load(str(made.config), tmp_path / 'a.onnx', cfg_options={f'{prefix}.{name}': value})
        load(str(made.config), tmp_path / 'a.onnx', cfg_options={f'{prefix}.mask_thr_binary': 0.3})
    onnx.checker.check_model(tmp_path / 'a.onnx', full_check=True)  # with shape inference
    assert set(int8.layer_nodes(exporter.onnx, exporter.layers).values()) == exporter.layers
    opened = open_exported(tmp_path / 'a.onnx')
    assert opened.metadata['batch'] == 1 and opened.metadata['dynamic'] == (task == 'detection')
    with pytest.raises(UserError, match='a.onnx'):
        opened(torch.zeros(2, 3, 64, 96))
    file = run_exported(MODELS.build(made.cfg.model), open_exported(tmp_path / 'a.onnx'), made.cfg.model)
    for size in ((50, 90), (31, 60)) if exporter.dynamic else ((64, 96), (32, 48)):
        images = random_images(size)
        sample = DetDataSample(metainfo=dict(img_shape=size, ori_shape=size, scale_factor=(1., 1.)))
        data = dict(inputs=[images[0].flip(0)], data_samples=[sample])
        actual = file.test_step(copy.deepcopy(data))[0].pred_instances
        if size == (32, 48):  # which the file gets enlarged
            enlarged = F.interpolate(made.inputs(images), (64, 96), mode='bilinear', antialias=True)
            sample.set_metainfo(dict(img_shape=(64, 96), batch_input_shape=(64, 96), scale_factor=(2., 2.)))
            with torch.no_grad():
                expected = made.model.predict(enlarged, [sample])[0].pred_instances
        else:
            expected = made.model.test_step(data)[0].pred_instances
        assert any('a.onnx' in str(warning.message) for warning in recwarn) == (size == (32, 48)) and len(expected) >= 5
        for key in ('bboxes', 'scores', 'labels'):
            torch.testing.assert_close(actual[key], expected[key], rtol=1e-3, atol=1e-3)
        assert 'masks' not in expected or (actual.masks != expected.masks).float().mean() < 1e-3
    # Both formats of detectors in one stage and in two; a .pt2 file of two stages for any size takes long to open.
    for name in dict(detection=['a.xml'], retinanet=['a.xml', 'a.pt2'], cascade=['a.pt2']).get(task, []):
        assert exporter.export(tmp_path / name), exporter.lines


@pytest.mark.parametrize('task', ['detection', 'retinanet'])
def test_a_detector_that_detects_nothing(network, tmp_path, task):
    """Its file is compared on a plain image, and gives no boxes and no masks."""
    made = copy.copy(network(task))
    made.model = copy.deepcopy(made.model)
    for part in made.model.modules():
        if 'score_thr' in (getattr(part, 'test_cfg', None) or {}):
            part.test_cfg.score_thr = 0.999
    exporter = made.exporter((64, 96))
    assert len(exporter.examples()) == 2 and exporter.export(tmp_path / 'a.onnx'), exporter.lines
    outputs = open_exported(tmp_path / 'a.onnx')(torch.zeros(1, 3, 64, 96))
    assert {len(output) for output in outputs.values()} == {0}
    with mock.patch('cvt_dense.deploy.runtime.Exported.__call__', side_effect=RuntimeError('Reshape')):
        with pytest.raises(UserError, match='Reshape'):
            exporter.export(tmp_path / 'b.onnx')
    assert not (tmp_path / 'b.onnx').exists()


def run_documented_program(folder):
    """The program in the documentation prints the objects that the file finds in an image that it reduces."""
    program = (ROOT / 'docs/examples/detect_onnx.py').read_text()
    opened = open_exported(folder / 'a.onnx')
    size = opened.metadata['input_size'] or [min(opened.metadata['scale'])] * 2
    image = Image.fromarray(random_images([side * 2 for side in size])[0].permute(1, 2, 0).numpy())
    image.save(folder / 'photo.png')
    done = subprocess.run([sys.executable, '-c', program, 'a.onnx', 'photo.png'], cwd=folder, capture_output=True,
                          text=True)
    assert not done.returncode and (folder / 'detections.png').exists(), done.stderr
    mean, std = (torch.tensor(opened.metadata[key]) for key in ('mean', 'std'))
    pixels = torch.tensor(cv2.resize(np.asarray(image), size[::-1]))
    actual = opened(((pixels - mean) / std).permute(2, 0, 1)[None])
    expected = torch.cat([actual['scores'][:, None], actual['boxes'] * 2], dim=1)[actual['scores'] >= 0.3]
    printed = [[float(number) for number in line.split()[-5:]] for line in done.stdout.splitlines()[:-1]]
    torch.testing.assert_close(torch.tensor(printed), expected, rtol=0, atol=0.06)
    assert printed
    image.resize((1, 900)).save(folder / 'photo.png')
    subprocess.run([sys.executable, '-c', program, 'a.onnx', 'photo.png'], cwd=folder, check=True)


# -- what cannot be exported -----------------------------------------------------------------------------------


def test_what_cannot_be_exported(network, monkeypatch, tmp_path):
    monkeypatch.setattr('cvt_dense.deploy.formats.trace', mock.Mock(side_effect=RuntimeError))
    with pytest.raises(UserError, match='--dynamic'):
        network('classification').exporter((48, 64), dynamic=True).export(tmp_path / 'a.pt2')
    detector = copy.deepcopy(network('retinanet').model)
    detector.bbox_head.test_cfg.nms.type = 'soft_nms'
    with pytest.raises(UserError, match='--part backbone'):
        Exporter(detector, (48, 64), ABOUT)
    assert 'images' in run_tool('export', 'cvt_dense://cvt-nano-coco', tmp_path / 'a.xml', '--precision', 'int8', rc=2)


@pytest.mark.parametrize('name', ['dino_cvt13_coco.py', 'mmdet::panoptic_fpn/panoptic-fpn_r50_fpn_1x_coco.py'])
def test_of_queries_and_panoptic_heads_the_backbone_is_exported(tmp_path, name):
    cfg = get_config(name) if '::' in name else Config.fromfile(ROOT / 'configs' / name)
    cfg.model.backbone = dict(type='cvt_dense.CvT', arch=dict(embed_dims=(8, 16), depths=(1, 1), num_heads=(1, 2)))
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model = MODELS.build(cfg.model)
    with pytest.raises(UserError, match=f'{type(model).__name__} .*--part backbone'):
        Exporter(model, (48, 64), ABOUT)
    assert Exporter(model, (48, 64), ABOUT, part='backbone').export(tmp_path / 'a.onnx')


def test_windows_for_any_size(tmp_path):
    """Whole windows, cut ones, and maps smaller than a window, with a CLS token."""
    window = dict(type='cvt_dense.WindowedAttention', window_size=8)
    windows = randomise(ImageClassifier(dict(
        type='cvt_dense.CvT', arch=dict(embed_dims=(8, ), depths=(1, ), num_heads=(1, )), out_type='cls_token',
        attn_cfg=window), 3))
    assert Exporter(windows, (48, 64), ABOUT, dynamic=None).export(tmp_path / 'a.onnx')
    opened = open_exported(tmp_path / 'a.onnx')
    for size in ((64, 96), (70, 33), (19, 90)):
        x = torch.rand(2, 3, *size)
        with torch.no_grad():
            torch.testing.assert_close(opened(x)['logits'], windows(x), rtol=1e-4, atol=1e-4)


def test_backbone_for_any_size(network, tmp_path):
    """A file gives the maps of a backbone, for any number of images of any size."""
    exporter, x = network('detection').exporter((96, 128), dynamic=True, part='backbone'), torch.randn(3, 3, 70, 64)
    with torch.no_grad():
        expected = network('detection').model.backbone(x)
    for name in ('a.onnx', 'a.xml'):
        assert exporter.export(tmp_path / name), exporter.lines
        opened = open_exported(tmp_path / name)
        assert opened.metadata['outputs'] == ['feat0', 'feat1'] and opened.metadata['part'] == 'backbone'
        torch.testing.assert_close(tuple(opened(x).values()), expected, rtol=1e-4, atol=1e-4)
