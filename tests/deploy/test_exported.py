"""Exported files are evaluated and drawn by the same Runner, metrics and tools as checkpoints, and run without us."""
import copy
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from load_tool import ROOT, run_tool
from PIL import Image
from timm.data import create_transform

from cvt_dense.deploy.exported import exported_model
from cvt_dense.deploy.fuse import fuse
from cvt_dense.deploy.runtime import open_exported
from cvt_dense.errors import UserError
from cvt_dense.launch.flags import TestFlags
from cvt_dense.launch.start import start_test


@pytest.fixture
def run(network, shapes, tmp_path):
    """Start a test: ``run(task, checkpoint or file)`` with the flags of tools/test.py."""

    def run(task: str, checkpoint: Path | str | None = None, **changes):
        made = network(task)
        flags = dict(config=str(made.config), checkpoint=str(checkpoint or made.checkpoint),
                     work_dir=str(tmp_path / str(len(list(tmp_path.iterdir())))), data_root=str(shapes / task))
        return start_test(TestFlags(**dict(flags, **changes)))

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


def test_fused_weights_have_the_same_metrics(run, network, tmp_path):
    """tools/test.py --fuse on a checkpoint with averaged and raw weights."""
    made = network('classification')
    averaged = made.model.state_dict()
    raw = {f'module.{key}': 1.1 * value if value.is_floating_point() else value for key, value in averaged.items()}
    torch.save(dict(state_dict=averaged, ema_state_dict=dict(raw, steps=torch.tensor(9)), meta={}),
               tmp_path / 'both.pth')
    expected = run('classification', tmp_path / 'both.pth').test()
    with mock.patch('cvt_dense.deploy.fuse_hook.fuse', wraps=fuse) as fusing:
        fused = run('classification', tmp_path / 'both.pth', fuse=True).test()
    assert fusing.call_count == 1 and fused == pytest.approx(expected, abs=1e-4)
    assert expected['raw/loss'] != expected['accuracy/loss']


# -- without this package -------------------------------------------------------------------------------------


def test_program_without_torch_or_this_package(tmp_path, files, network):
    """The documentation's crops a photograph as the config's test pipeline, and so predict.py, does."""
    made = network('classification')
    transform = dict(input_size=64, crop_pct=0.8, interpolation='bicubic')
    about = made.exporter((64, 64)).about
    assert (about['crop_pct'], about['crop_mode'], about['interpolation']) == (1.0, 'center', 'bilinear')
    import onnx
    model = onnx.load(files['classifier'])
    for prop in model.metadata_props:
        prop.value = prop.value.replace('"crop_pct": 1.0', '"crop_pct": 0.8').replace('"bilinear"', '"bicubic"')
    onnx.save(model, tmp_path / 'classifier.onnx')
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
    model = cfg.model
    with pytest.raises(UserError, match='segmentation.py'):
        exported_model(str(files['segmentor']), model.pop('type'), **model)


@pytest.mark.parametrize('task, name', [('classification', 'classifier'), ('segmentation', 'segmentor')])
def test_a_file_whose_classes_are_in_another_order(run, network, files, task, name):
    names = network(task).classes[::-1]
    with pytest.raises(UserError, match=files[name].name):
        run(task, files[name], cfg_options={'test_dataloader.dataset.metainfo.classes': names})


def test_files_of_someone_else(tmp_path):
    torch.onnx.export(torch.nn.Flatten(), (torch.zeros(2, 3, 4, 4), ), tmp_path / 'other.onnx', dynamo=True,
                      verbose=False)
    torch.export.save(torch.export.export(torch.nn.Flatten(), (torch.zeros(2, 3, 4, 4), )), tmp_path / 'other.pt2')
    for name, runtime in (('other.onnx', None), ('other.onnx', 'openvino'), ('other.pt2', None)):
        with pytest.raises(UserError, match='metadata'):
            open_exported(tmp_path / name, runtime)
