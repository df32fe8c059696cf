"""Exported files are evaluated and drawn by the same Runner, metrics and tools as checkpoints, and run without us."""
import argparse
import copy
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from _shapes import CLASSES, generate
from load_tool import load_tool
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from PIL import Image

from cvt_dense.deploy.runtime import open_exported
from cvt_dense.errors import UserError
from cvt_dense.launch.start import start
from cvt_dense.models.exported import ExportedBackbone

exporting = pytest.importorskip('cvt_dense.deploy.export')
ROOT = Path(__file__).resolve().parents[2]
CLASSIFIER, SEGMENTOR, DETECTOR = (f'configs/{name}_shapes.py' for name in (
    'cvt_nano', 'upernet_cvt_nano', 'maskrcnn_cvt_nano'))
PARTS = {CLASSIFIER: 'classification', SEGMENTOR: 'segmentation', DETECTOR: 'detection'}


@pytest.fixture(scope='module')
def data(tmp_path_factory) -> Path:
    return generate(tmp_path_factory.mktemp('data') / 'shapes', train=1, val=3, train_per_class=1, val_per_class=2)


@pytest.fixture(scope='module')
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp('files')


def build_model(config: str) -> torch.nn.Module:
    """Random weights that tell images apart, so that scores, boxes and classes differ."""
    cfg = Config.fromfile(ROOT / config)
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    model = MODELS.build(copy.deepcopy(cfg.model)).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            parameter.data.mul_(2. if name.startswith('backbone') else 3.)
    return model


def write(config: str, folder: Path, name: str, **options) -> tuple[Path, Path]:
    """The file, and the checkpoint that it comes from."""
    model, classes = build_model(config), list(CLASSES)
    if config == SEGMENTOR:
        classes = ['background', *classes]
    checkpoint = folder / f'{Path(config).stem}.pth'
    torch.save(dict(state_dict=model.state_dict(), meta=dict(dataset_meta=dict(classes=classes))), checkpoint)
    about = dict(classes=classes, config=Path(config).name, config_hash='')
    lines = []
    file = exporting.export(model, folder / name, exporting.Options(**options), about, report=lines.append)
    assert file is not None, lines
    return file, checkpoint


@pytest.fixture(scope='module')
def classifier(folder) -> tuple[Path, Path]:
    return write(CLASSIFIER, folder, 'classifier.onnx', size=(64, 64), raw_input='NHWC')


@pytest.fixture(scope='module')
def segmentor(folder) -> tuple[Path, Path]:
    return write(SEGMENTOR, folder, 'segmentor.onnx', size=(128, 128))


@pytest.fixture(scope='module')
def backbone(folder) -> tuple[Path, Path]:
    return write(DETECTOR, folder, 'backbone.pt2', size=(96, 128), dynamic=True, part='backbone')


def test_arguments(data: Path, work_dir: Path, config: str, checkpoint: Path, **changes) -> argparse.Namespace:
    """As of tools/test.py."""
    given = dict(config=str(ROOT / config), checkpoint=str(checkpoint), work_dir=str(work_dir), launcher='none',
                 data_root=str(data / PARTS[config]), cfg_options=None, no_check=False, local_rank=0)
    return argparse.Namespace(**dict(given, **changes))


test_arguments.__test__ = False


def evaluate(*args, **changes) -> dict[str, float]:
    metrics = start(test_arguments(*args, **changes), ['test']).test()
    return {name: value for name, value in metrics.items() if 'time' not in name}


# -- the same metrics ---------------------------------------------------------------------------------------


def test_classifier_by_the_command(run_tool, data, tmp_path, classifier):
    file, checkpoint = classifier
    expected = evaluate(data, tmp_path / 'a', CLASSIFIER, checkpoint)['accuracy/top1']
    out = run_tool('tools/test.py', CLASSIFIER, file, '--data-root', data / 'classification',
                   '--work-dir', tmp_path / 'b').stdout
    assert re.search(rf'accuracy/top1: {expected:.4f}\b', out), (expected, out[-2000:])
    assert f'{file}: fp32, exported from cvt_nano_shapes.py, run by onnxruntime on the CPU' in out


@pytest.mark.parametrize('runtime', ['onnxruntime', 'openvino'])
def test_segmentor(data, tmp_path, segmentor, runtime):
    file, checkpoint = segmentor
    expected = evaluate(data, tmp_path / 'a', SEGMENTOR, checkpoint)
    assert evaluate(data, tmp_path / 'b', SEGMENTOR, file, runtime=runtime) == pytest.approx(expected, abs=0.02)
    assert expected['mIoU'] > 0


def test_detector_around_a_backbone(data, tmp_path, backbone):
    """Neck and heads are the checkpoint's; the same boxes, from images of another size than the export's."""
    file, checkpoint = backbone
    changes = dict(cfg_options={'model.test_cfg.rcnn.score_thr': 0.2, 'image_size': (112, 112)})
    runners = [start(test_arguments(data, tmp_path / name, DETECTOR, checkpoint, **changes, **more), ['test'])
               for name, more in (('plain', {}), ('exported', dict(backbone=str(file))))]
    assert type(runners[1].model.backbone) is ExportedBackbone
    metrics = [runner.test() for runner in runners]
    assert metrics[1]['coco/bbox_mAP'] == pytest.approx(metrics[0]['coco/bbox_mAP'], abs=1e-3)
    plain, exported = (runner.model.test_step(next(iter(runner.test_dataloader))) for runner in runners)
    for expected, found in zip(plain, exported, strict=True):
        assert len(expected.pred_instances) > 0
        torch.testing.assert_close(found.pred_instances.bboxes, expected.pred_instances.bboxes, rtol=0, atol=0.2)
        assert torch.equal(found.pred_instances.labels, expected.pred_instances.labels)


def test_backbone_in_a_config_of_ones_own(backbone):
    file, _ = backbone
    module = MODELS.build(dict(type='cvt_dense.ExportedBackbone', file=str(file)))
    reference = build_model(DETECTOR).backbone
    assert module.out_channels == reference.out_channels and module.out_strides == reference.out_strides
    x = torch.randn(2, 3, 70, 64)
    with torch.no_grad():
        for found, expected in zip(module(x), reference(x), strict=True):
            assert found.is_contiguous()
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert copy.deepcopy(module)(x)[0].shape == expected.shape[:1] + (32, 17, 16)
    with pytest.raises(UserError, match='backbone.pt2 is an exported file, which cannot be trained'):
        module.train()


def test_raw_images_give_what_normalised_ones_give(classifier):
    """The file normalises inside; the config's data preprocessor has done so before."""
    model = build_model(CLASSIFIER)
    batch = model.data_preprocessor(dict(inputs=torch.randint(256, (3, 3, 64, 64), dtype=torch.uint8)))['inputs']
    with torch.no_grad():
        torch.testing.assert_close(open_exported(classifier[0]).run_normalised(batch)['logits'], model(batch),
                                   rtol=1e-3, atol=1e-3)


def test_predict_draws_from_a_file(data, tmp_path, segmentor, classifier, monkeypatch, capsys):
    """The same line as of the checkpoint."""
    tool = load_tool('predict')
    for config, (file, checkpoint), image in (
            (SEGMENTOR, segmentor, 'segmentation/images/validation/00000.png'),
            (CLASSIFIER, classifier, 'classification/val/star/00000.png')):
        lines = []
        for given in (file, checkpoint):
            monkeypatch.setattr('sys.argv', ['predict.py', *map(str, (
                ROOT / config, given, data / image, '--out-dir', tmp_path))])
            tool.main()
            lines.append(re.search(r'00000.png -> .*', capsys.readouterr().out)[0])
        assert lines[0] == lines[1] and (tmp_path / '00000.png').exists()


def test_autocast_on_a_cpu(data, tmp_path, segmentor):
    runner = start(test_arguments(data, tmp_path, SEGMENTOR, segmentor[1], autocast='bf16'), ['test'])
    dtypes = set()
    linear = next(module for module in runner.model.modules() if isinstance(module, torch.nn.Linear))
    linear.register_forward_hook(lambda module, inputs, output: dtypes.add(output.dtype))
    expected = evaluate(data, tmp_path / 'plain', SEGMENTOR, segmentor[1])['aAcc']
    assert runner.test()['aAcc'] == pytest.approx(expected, abs=5) and dtypes == {torch.bfloat16}


# -- without this package -------------------------------------------------------------------------------------


def test_program_without_torch_or_this_package(tmp_path, folder, classifier):
    """The README's, in an environment that has nothing but numpy, Pillow and ONNX Runtime."""
    text = (ROOT / 'tools/README.md').read_text()
    program = next(block for block in re.findall(r'^```python\n(.*?)^```', text, re.M | re.S) if 'onnxruntime' in block)
    assert len(program.splitlines()) <= 15
    subprocess.run([sys.executable, '-m', 'venv', '--without-pip', tmp_path / 'venv'], check=True)
    packages, = (tmp_path / 'venv').glob('lib/python*/site-packages')
    for module in ('numpy', 'PIL', 'onnxruntime'):
        source = Path(__import__(module).__file__).parent
        names = [source.name, *(f'{name}.libs' for name in ('numpy', 'pillow') if source.name in (name, 'PIL'))]
        for name in names:
            if (source.parent / name).exists() and not (packages / name).exists():
                (packages / name).symlink_to(source.parent / name)
    python = tmp_path / 'venv/bin/python'
    for module in ('torch', 'cvt_dense', 'mmengine', 'timm'):
        assert subprocess.run([python, '-c', f'import {module}'], cwd=tmp_path, stderr=subprocess.PIPE).returncode == 1
    (tmp_path / 'classifier.onnx').symlink_to(classifier[0])
    (tmp_path / 'program.py').write_text(program)
    pixels = np.random.default_rng(0).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    photo = Image.fromarray(pixels).resize((64, 64), Image.Resampling.BICUBIC)
    photo.save(tmp_path / 'photo.jpg', quality=95)
    result = subprocess.run([python, 'program.py', 'photo.jpg'], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    model = build_model(CLASSIFIER)
    image = torch.from_numpy(np.array(Image.open(tmp_path / 'photo.jpg'))).permute(2, 0, 1)[None]
    with torch.no_grad():
        scores = model(model.data_preprocessor(dict(inputs=image))['inputs']).softmax(1)[0]
    printed = [line.rsplit(' ', 1) for line in result.stdout.splitlines()]
    assert [name for name, _ in printed] == [CLASSES[i] for i in scores.topk(5).indices]
    assert [float(score) for _, score in printed] == pytest.approx(scores.topk(5).values.tolist(), abs=0.006)


# -- mistakes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('options, message', [
    (dict(config=SEGMENTOR), r'has 8 classes \(arrow, .*\), the config.s model has 9: use the config that the file was '
                             r'exported with \(cvt_nano_shapes.py\)'),
    (dict(cfg_options={'model.num_classes': 5}), 'has 8 classes .* the config.s model has 5'),
    (dict(cfg_options={'model.data_preprocessor.mean': [0, 0, 0]}), r'was exported for images with mean \[123.67'),
    (dict(fuse=True), '--fuse: .* was fused when it was exported'),
    (dict(autocast='bf16'), '--amp bf16: .* has the precision that it was exported with'),
    (dict(backbone='b.onnx'), '--backbone b.onnx takes its place in the model of a checkpoint'),
    (dict(runtime='torch'), r"runtime='torch' does not open .onnx files.*: onnxruntime and openvino do"),
    (dict(checkpoint='no.onnx'), 'no.onnx.* does not exist'),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else '')
def test_what_does_not_go_together(data, tmp_path, classifier, options, message):
    options = dict(dict(config=CLASSIFIER, checkpoint=classifier[0]), **options)
    with pytest.raises(UserError, match=message):
        start(test_arguments(data, tmp_path, **options), ['test'])
    assert not list(tmp_path.iterdir())


def test_a_backbone_is_not_a_whole_model(data, tmp_path, backbone, classifier):
    with pytest.raises(UserError, match=r'backbone.pt2 is a backbone; evaluate it in its model with tools/test.py '
                                        r'CONFIG CHECKPOINT --backbone'):
        start(test_arguments(data, tmp_path, DETECTOR, backbone[0]), ['test'])
    with pytest.raises(UserError, match='classifier.onnx is a whole model, not a backbone'):
        MODELS.build(dict(type='cvt_dense.ExportedBackbone', file=str(classifier[0])))


def test_sizes_that_a_file_was_not_made_for(data, tmp_path, classifier, backbone):
    runner = start(test_arguments(data, tmp_path, CLASSIFIER, classifier[0], cfg_options={'image_size': 96}),
                          ['test'])
    with pytest.raises(UserError, match=r'classifier.onnx was made for images of 64x64 pixels \(height x width\) and '
                                        'got 96x96: resize or pad'):
        runner.test()
    with pytest.raises(UserError, match='image of 8x64 pixels .* needs at least 16x16'):
        open_exported(backbone[0])(torch.zeros(1, 3, 8, 64))


@pytest.mark.parametrize('name', ['broken.onnx', 'broken.xml', 'broken.pt2'])
def test_files_that_are_none(tmp_path, name):
    (tmp_path / name).write_bytes(b'no network')
    with pytest.raises(UserError, match=f'cannot open .*{name}'):
        open_exported(tmp_path / name)


def test_files_of_someone_else(tmp_path):
    torch.onnx.export(torch.nn.Flatten(), (torch.zeros(2, 3, 4, 4), ), tmp_path / 'other.onnx', dynamo=True,
                      verbose=False)
    torch.export.save(torch.export.export(torch.nn.Flatten(), (torch.zeros(2, 3, 4, 4), )), tmp_path / 'other.pt2')
    for name, runtime in (('other.onnx', None), ('other.onnx', 'openvino'), ('other.pt2', None)):
        with pytest.raises(UserError, match=f'{name} was not written by tools/export.py'):
            open_exported(tmp_path / name, runtime)


def test_a_runtime_that_is_not_installed(data, tmp_path, classifier, monkeypatch):
    monkeypatch.setitem(sys.modules, 'onnxruntime', None)  # as if it were not
    with pytest.raises(UserError, match="classifier.onnx needs the package 'onnxruntime', which is not installed: pip "
                                        "install .*'openvino' is installed and opens it too"):
        start(test_arguments(data, tmp_path, CLASSIFIER, classifier[0]), ['test'])
