"""tools/export.py, and its files in the place of checkpoints: in tools/test.py and predict.py, and without us."""
import copy
import pickle
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from load_tool import ROOT, run_tool
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from PIL import Image
from timm.data import create_transform

from cvt_dense.deploy import inputs
from cvt_dense.deploy.exported import run_exported
from cvt_dense.deploy.runtime import open_exported
from cvt_dense.errors import UserError, cause
from cvt_dense.inference.export import choose_size
from cvt_dense.launch.runs import TestRun
from cvt_dense.launch.start import start_test

pytestmark = pytest.mark.slow

# -- tools/export.py -------------------------------------------------------------------------------


@pytest.fixture
def export(network, shapes):
    """Run the tool: ``export(task, out, *flags)`` returns what it printed."""

    def export(task, out, *flags, checkpoint=None, rc=0):
        return run_tool('export', network(task).config, checkpoint or network(task).checkpoint, out, '--data-root',
                        shapes / task, *flags, rc=rc)

    return export


@pytest.mark.parametrize('out, flags, message', [
    ('a.tflite', (), 'a.tflite'),
    ('a.onnx', ('--precision', 'bf16'), '--precision bf16'),
    ('a.onnx', ('--size', '64xa'), '--size'),
    ('a.onnx', ('--precision', 'int8', '--keep', 'backbone.stage7'), '--keep backbone.stage7'),
    ('a.onnx', ('--cfg-options', 'model.backbone.arch.embed_dims=[16,32,64]'), 'classification.pth')])
def test_bad_input_is_one_paragraph(export, tmp_path, out, flags, message):
    assert message in export('classification', tmp_path / out, *flags, rc=2) and not (tmp_path / out).exists()


def test_nothing_is_overwritten(export, network, tmp_path):
    """Neither what is there, nor, even with --force, the checkpoint that OpenVINO's weights would replace."""
    checkpoint = tmp_path / 'm.bin'
    checkpoint.write_bytes(network('classification').checkpoint.read_bytes())
    (tmp_path / 'a.onnx').write_text('mine')
    for out, flags in (('m.xml', ()), ('m.xml', ('--force', )), ('a.onnx', ())):
        printed = export('classification', tmp_path / out, *flags, checkpoint=checkpoint, rc=2)
        assert str(tmp_path / out.replace('xml', 'bin')) in printed
    assert torch.load(checkpoint)['state_dict'] and (tmp_path / 'a.onnx').read_text() == 'mine'
    assert sorted(path.name for path in tmp_path.iterdir()) == ['a.onnx', 'm.bin']


# -- sizes and inputs ------------------------------------------------------------------------------------------


def test_the_exported_size_follows_from_the_test_images():
    """Detectors take any size; a fixed one is that of the test images, not that of the config's scale."""
    def choose(task, *sizes, size=None, dynamic=False, **test_cfg):
        cfg = Config(dict(model=dict(test_cfg=test_cfg)))
        return choose_size(size, dynamic, SimpleNamespace(cfg=cfg, task=task), set(sizes))

    assert choose('detection', (96, 128)) == ((96, 128), None)
    assert choose('detection', (96, 128), (128, 96)) == ((128, 128), None)
    assert choose('detection', (96, 128), size=(80, 90)) == ((80, 90), False)
    assert choose('segmentation', (100, 90)) == ((100, 90), False)
    assert choose('segmentation', (100, 90), (90, 100)) == ((100, 100), None)
    assert choose('segmentation', (100, 90), mode='slide', crop_size=(48, 64)) == ((48, 64), False)
    assert choose('classification', (64, 64), dynamic=True) == ((64, 64), True)
    with pytest.raises(UserError, match='--size'):
        choose('classification')


def test_the_metadata_say_how_images_are_resized():
    """The long side is the first, in whichever order the config names them."""
    for scale in ((800, 1333), (1333, 800)):
        cfg = Config.fromfile(ROOT / 'configs/maskrcnn_cvt13_coco.py')
        next(step for step in cfg.test_dataloader.dataset.pipeline if step.type == 'Resize').scale = scale
        assert inputs.describe(cfg)['scale'] == [1333, 800]


# -- the whole tool --------------------------------------------------------------------------------------------


def test_the_tool_writes_and_says_so(export, network, tmp_path, monkeypatch):
    monkeypatch.setattr('cvt_dense.deploy.check.TOLERANCES', dict(int8=1.))  # the weights are random
    out = export('classification', tmp_path / 'new/a.xml', '--precision', 'int8', '--calibrate', 4, '--keep',
                 'backbone.stage1.patch_embed', '--raw-input')
    assert sorted(path.name for path in (tmp_path / 'new').iterdir()) == ['a.bin', 'a.xml']
    assert re.search(r'a.xml: done, \d+\.\d\d MB', out) and '64x64, batch 2, logits' in out
    about = open_exported(tmp_path / 'new/a.xml').metadata
    assert about['classes'] == network('classification').classes and about['config'] == 'classification.py'
    assert re.fullmatch('[0-9a-f]{64}', about['config_hash'])


def test_a_file_above_the_tolerance_has_another_name(export, tmp_path, monkeypatch):
    monkeypatch.setattr('cvt_dense.deploy.check.TOLERANCES', dict(fp32=-1.))
    assert 'ABOVE' in export('classification', tmp_path / 'a.pt2', rc=3)
    assert [path.name for path in tmp_path.iterdir()] == ['a.above_tolerance.pt2']


# -- the files -------------------------------------------------------------------------------------


@pytest.fixture
def run(network, shapes, tmp_path):
    """Start a test: ``run(task, checkpoint or file)`` with the flags of tools/test.py."""

    def run(task: str, checkpoint: Path | str | None = None, **changes):
        made = network(task)
        flags = dict(work_dir=str(tmp_path / str(len(list(tmp_path.iterdir())))), data_root=str(shapes / task))
        return start_test(TestRun(made.config, checkpoint or made.checkpoint, **dict(flags, **changes)))

    return run


# -- the same metrics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize('task, name, runtime, key', [
    ('classification', 'classifier', None, 'accuracy/top1'), ('segmentation', 'segmentor', 'openvino', 'mIoU')])
def test_the_same_metrics(run, files, task, name, runtime, key):
    expected = run(task).test()[key]
    assert run(task, files[name], runtime=runtime).test()[key] == pytest.approx(expected, abs=0.02) and expected > 0


def test_predict_draws_from_a_file(shapes, tmp_path, files, network):
    """The same line as of the checkpoint."""
    made, lines = network('classification'), []
    for i, weights in enumerate((files['classifier'], made.checkpoint)):
        output = run_tool('predict', made.config, weights, shapes / 'classification/val/star/00000.png', '--out-dir',
                          tmp_path / f'{i}')
        lines.append(re.search(r'00000.png -> .*', output)[0].replace(f'{tmp_path}/{i}', ''))
        assert (tmp_path / f'{i}/00000.png').exists()
    assert lines[0] == lines[1]


def test_raw_weights_and_mixed_precision(run, network, tmp_path):
    """A checkpoint with averaged and raw weights; under autocast the loss is rounded."""
    averaged = network('classification').model.state_dict()
    raw = {f'module.{key}': 1.1 * value if value.is_floating_point() else value for key, value in averaged.items()}
    torch.save(dict(state_dict=averaged, ema_state_dict=dict(raw, steps=torch.tensor(9)), meta={}),
               tmp_path / 'both.pth')
    expected = run('classification', tmp_path / 'both.pth').test()
    rounded = run('classification', tmp_path / 'both.pth', amp='bf16').test()['accuracy/loss']
    assert rounded == pytest.approx(expected['accuracy/loss'], rel=0.02) and rounded != expected['accuracy/loss']
    assert expected['raw/accuracy/loss'] != expected['accuracy/loss']


# -- threads and processes ------------------------------------------------------------------------------------


@pytest.mark.parametrize('runtime', ['onnxruntime', 'openvino'])
def test_threads_and_pickled_files_have_outputs_of_their_own(files, runtime, tmp_path, monkeypatch):
    shutil.copy(files['classifier'], tmp_path / 'A.ONNX')
    monkeypatch.chdir(tmp_path)
    opened = open_exported('A.ONNX', runtime)
    monkeypatch.chdir('/')
    images = torch.randn(16, 1, 3, *opened.metadata['input_size'])
    alone = [opened.run_normalised(image)['logits'] for image in images]
    assert not torch.allclose(alone[0], alone[1], rtol=1e-3)
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda image: opened.run_normalised(image)['logits'], [*images] * 30))
    torch.testing.assert_close(together, alone * 30)
    again = pickle.loads(pickle.dumps(opened))
    torch.testing.assert_close(again.run_normalised(images[1])['logits'], alone[1])


# -- without this package -------------------------------------------------------------------------------------


def test_program_without_torch_or_this_package(tmp_path, files, network):
    """The documentation's crops a photograph as the config's test pipeline, and so predict.py, does."""
    made = network('classification')
    transform = dict(input_size=64, crop_pct=0.8, interpolation='bicubic')
    shutil.copy(files['classifier'], tmp_path / 'classifier.onnx')
    program = (ROOT / 'docs/examples/classify_onnx.py').read_text()
    blocked = 'import sys; sys.modules.update(dict.fromkeys(("torch", "mmengine", "cvt_dense")));'
    pixels = np.random.default_rng(0).integers(0, 256, (5, 8, 3), dtype=np.uint8)
    photo = Image.fromarray(pixels).resize((211, 130), Image.Resampling.BICUBIC)
    photo.save(tmp_path / 'photo.png')
    result = subprocess.run([sys.executable, '-c', f'{blocked} exec({program!r})', 'photo.png'], cwd=tmp_path,
                            capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    image = torch.as_tensor(create_transform(**transform, use_prefetcher=True)(photo))[None]
    with torch.no_grad():
        scores = made.model(made.inputs(image)).softmax(1)[0]
    printed = [line.rsplit(' ', 1) for line in result.stdout.splitlines()]
    assert [name for name, _ in printed] == [made.classes[i] for i in scores.topk(5).indices]
    assert [float(score) for _, score in printed] == pytest.approx(scores.topk(5).values.tolist(), abs=0.006)


# -- mistakes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('task, options', [
    ('detection', {}), ('segmentation', {'model.decode_head.num_classes': 5}),
    *(('segmentation', {f'model.data_preprocessor.{key}': value}) for key, value in dict(
        std=[1., 1., 1.], bgr_to_rgb=False).items())])
def test_a_file_of_another_config(network, files, task, options):
    cfg = copy.deepcopy(network(task).cfg)
    cfg.merge_from_dict(options)
    with pytest.raises(UserError, match='segmentation.py'), DefaultScope.overwrite_default_scope(cfg.default_scope):
        run_exported(MODELS.build(cfg.model), open_exported(files['segmentor']), cfg.model)


@pytest.mark.parametrize('task, name', [('classification', 'classifier'), ('segmentation', 'segmentor')])
def test_a_file_whose_classes_are_in_another_order(run, network, files, task, name):
    names = network(task).classes[::-1]
    with pytest.raises(UserError, match=files[name].name):
        run(task, files[name], options={'test_dataloader.dataset.metainfo.classes': names})


def test_damaged_files_are_named(files, tmp_path):
    pointer = b'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n'
    half = files['classifier'].read_bytes()[:files['classifier'].stat().st_size // 2]
    for name, content, runtime in (('a.onnx', half, None), ('b.onnx', half, 'openvino'), ('c.onnx', pointer, None),
                                   ('d.xml', pointer, None), ('e.pt2', pointer, None), ('f.onnx', b'', None)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=name):
            open_exported(tmp_path / name, runtime)
    model = onnx.load(files['classifier'])
    model.opset_import[0].version = 99  # a long signature of C++ comes before the reason
    onnx.save(model, tmp_path / 'g.onnx')
    with pytest.raises(UserError, match='99'):
        open_exported(tmp_path / 'g.onnx')
    assert cause(RuntimeError('a' * 2000 + 'reason')).endswith('reason')
