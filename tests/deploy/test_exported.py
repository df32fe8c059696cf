"""Exported files are evaluated and drawn by the same Runner, metrics and tools as checkpoints, and run without us."""
import copy
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from load_tool import run_tool
from mmengine.registry import MODELS
from PIL import Image
from timm.data import create_transform

from cvt_dense.deploy.exported import ExportedBackbone
from cvt_dense.deploy.runtime import open_exported
from cvt_dense.errors import UserError
from cvt_dense.launch.flags import TestFlags
from cvt_dense.launch.start import start_test

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(network, data, tmp_path):
    """Start a test: ``run(task, checkpoint or file)`` with the flags of tools/test.py."""

    def run(task: str, checkpoint: Path | str | None = None, **changes):
        made = network(task)
        options = dict(made.options, **changes.pop('cfg_options', {}))
        given = dict(config=str(made.config), checkpoint=str(checkpoint or made.checkpoint),
                     work_dir=str(tmp_path / str(len(list(tmp_path.iterdir())))), data_root=str(data / task),
                     cfg_options=options)
        return start_test(TestFlags(**dict(given, **changes)))

    return run


# -- the same metrics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize('task, name, runtime, key', [
    ('classification', 'classifier', None, 'accuracy/top1'), ('segmentation', 'segmentor', 'openvino', 'mIoU')])
def test_the_same_metrics(run, files, task, name, runtime, key):
    expected = run(task).test()[key]
    assert run(task, files[name], runtime=runtime).test()[key] == pytest.approx(expected, abs=0.02) and expected > 0


def test_detector_around_a_backbone(run, files):
    """Neck and heads are the checkpoint's; the same boxes, from images of another size than the export's."""
    plain, exported = (run('detection', cfg_options={'test_dataloader.dataset.pipeline.1.scale': (112, 112)}, **more)
                       for more in ({}, dict(backbone=str(files['backbone']))))
    assert type(exported.model.backbone) is ExportedBackbone
    for runner in (plain, exported):
        runner.load_or_resume()
        runner.model.eval()
    batch = next(iter(plain.test_dataloader))
    plain, exported = (runner.model.test_step(copy.deepcopy(batch)) for runner in (plain, exported))
    for expected, found in zip(plain, exported, strict=True):
        assert len(expected.pred_instances) > 0
        torch.testing.assert_close(found.pred_instances.bboxes, expected.pred_instances.bboxes, rtol=0, atol=0.2)
        assert torch.equal(found.pred_instances.labels, expected.pred_instances.labels)


def test_backbone_in_a_config_of_ones_own(files, network):
    module = MODELS.build(dict(type='cvt_dense.ExportedBackbone', file=str(files['backbone'])))
    reference = network('detection').model.backbone
    assert module.out_channels == reference.out_channels and module.out_strides == reference.out_strides
    x = torch.randn(2, 3, 70, 64)
    with torch.no_grad():
        for found, expected in zip(module(x), reference(x), strict=True):
            assert found.is_contiguous()
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert copy.deepcopy(module)(x)[0].shape == (2, 8, 17, 16)
    whole = torch.nn.ModuleDict(dict(backbone=module, neck=torch.nn.Linear(2, 2)))
    assert not any(whole.load_state_dict({'backbone.norm0.weight': x, **whole.state_dict()}))  # nothing unexpected
    with pytest.raises(UserError, match='cannot be trained'):
        module.train()


def test_raw_images_give_what_normalised_ones_give(files, network):
    """The file normalises inside; the config's data preprocessor has done so before."""
    made = network('classification')
    batch = made.inputs(torch.randint(256, (3, 3, 64, 64), dtype=torch.uint8))
    with torch.no_grad():
        torch.testing.assert_close(open_exported(files['classifier']).run_normalised(batch)['logits'],
                                   made.model(batch), rtol=1e-3, atol=1e-3)


def test_predict_draws_from_a_file(data, tmp_path, files, network):
    """The same line as of the checkpoint."""
    made = network('classification')
    config = tmp_path / 'tiny.py'
    made.cfg.dump(config)
    lines = []
    for i, given in enumerate((files['classifier'], made.checkpoint)):
        output = run_tool('predict', config, given, data / 'classification/val/star/00000.png', '--out-dir',
                          tmp_path / f'{i}')
        lines.append(re.search(r'00000.png -> .*', output)[0].replace(f'{tmp_path}/{i}', ''))
        assert (tmp_path / f'{i}/00000.png').exists()
    assert lines[0] == lines[1]


@pytest.mark.parametrize('task, name', [('classification', 'classifier'), ('segmentation', 'segmentor')])
def test_diagnose_reports_of_a_file_what_it_reports_of_the_checkpoint(data, tmp_path, files, network, task, name):
    made, found = network(task), []
    made.cfg.dump(tmp_path / 'tiny.py')
    for i, given in enumerate((files[name], made.checkpoint)):
        run_tool('diagnose', tmp_path / 'tiny.py', given, '--data-root', data / task, '--out-dir', tmp_path / f'{i}',
                 '--work-dir', tmp_path / 'run')
        content = json.loads((tmp_path / f'{i}/report.json').read_text())
        tables = [[[cell['value'] for cell in row] for row in block['rows']] for section in content['sections']
                  for block in section['blocks'] if block['kind'] == 'table']
        found.append([value for table in tables for row in table for value in row if isinstance(value, (int, float))])
    assert len(found[0]) > 20 and found[0] == pytest.approx(found[1], abs=0.02)


# -- without this package -------------------------------------------------------------------------------------


def test_program_without_torch_or_this_package(tmp_path, files, network):
    """The documentation's, in an environment that has nothing but numpy, Pillow and ONNX Runtime.

    It crops a photograph as the config's test pipeline, and so predict.py, does.
    """
    made = network('classification')
    transform = dict(input_size=64, crop_pct=0.8, interpolation='bicubic')
    about = made.exporter((64, 64)).about
    assert (about['crop_pct'], about['crop_mode'], about['interpolation']) == (1.0, 'center', 'bilinear')
    import onnx
    model = onnx.load(files['classifier'])
    for prop in model.metadata_props:
        prop.value = prop.value.replace('"crop_pct": 1.0', '"crop_pct": 0.8').replace('"bilinear"', '"bicubic"')
    onnx.save(model, tmp_path / 'classifier.onnx')
    text = (ROOT / 'docs/guides/exporting.md').read_text()
    program = re.findall(r'^```python\n(import json\n.*?)^```', text, re.M | re.S)[0]
    assert len(program.splitlines()) <= 22
    subprocess.run([sys.executable, '-m', 'venv', '--without-pip', tmp_path / 'venv'], check=True)
    packages, = (tmp_path / 'venv').glob('lib/python*/site-packages')
    for module in ('numpy', 'PIL', 'onnxruntime'):
        source = Path(__import__(module).__file__).parent
        names = [source.name, *(f'{name}.libs' for name in ('numpy', 'pillow') if source.name in (name, 'PIL'))]
        for name in names:
            if (source.parent / name).exists() and not (packages / name).exists():
                (packages / name).symlink_to(source.parent / name)
    python = tmp_path / 'venv/bin/python'
    assert subprocess.run([python, '-c', 'import torch'], cwd=tmp_path, stderr=subprocess.PIPE).returncode == 1
    (tmp_path / 'program.py').write_text(program)
    pixels = np.random.default_rng(0).integers(0, 256, (5, 8, 3), dtype=np.uint8)
    photo = Image.fromarray(pixels).resize((211, 130), Image.Resampling.BICUBIC)
    photo.save(tmp_path / 'photo.png')
    result = subprocess.run([python, 'program.py', 'photo.png'], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    image = torch.as_tensor(create_transform(**transform, use_prefetcher=True)(photo))[None]
    with torch.no_grad():
        scores = made.model(made.inputs(image)).softmax(1)[0]
    printed = [line.rsplit(' ', 1) for line in result.stdout.splitlines()]
    assert [name for name, _ in printed] == [made.classes[i] for i in scores.topk(5).indices]
    assert [float(score) for _, score in printed] == pytest.approx(scores.topk(5).values.tolist(), abs=0.006)


# -- mistakes -------------------------------------------------------------------------------------------------


def test_a_backbone_is_not_a_whole_model(run, files):
    with pytest.raises(UserError, match='--backbone'):
        run('detection', files['backbone'])
    with pytest.raises(UserError, match='whole model'):
        MODELS.build(dict(type='cvt_dense.ExportedBackbone', file=str(files['classifier'])))


def test_sizes_that_a_file_was_not_made_for(run, files):
    runner = run('classification', files['classifier'],
                 cfg_options={'test_dataloader.dataset.transform.input_size': 96})
    with pytest.raises(UserError, match='64x64.*96x96'):
        runner.test()
    with pytest.raises(UserError, match='8x64'):
        open_exported(files['backbone'])(torch.zeros(1, 3, 8, 64))


def test_files_of_someone_else(tmp_path):
    torch.onnx.export(torch.nn.Flatten(), (torch.zeros(2, 3, 4, 4), ), tmp_path / 'other.onnx', dynamo=True,
                      verbose=False)
    torch.export.save(torch.export.export(torch.nn.Flatten(), (torch.zeros(2, 3, 4, 4), )), tmp_path / 'other.pt2')
    for name, runtime in (('other.onnx', None), ('other.onnx', 'openvino'), ('other.pt2', None)):
        with pytest.raises(UserError, match='metadata'):
            open_exported(tmp_path / name, runtime)
