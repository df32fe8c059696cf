"""tools/export.py: what it writes, judges and refuses; the sizes that it chooses."""
import re
from argparse import Namespace

import pytest
import torch
from load_tool import load_tool, run_tool
from mmengine.config import Config

from cvt_dense.deploy import inputs
from cvt_dense.deploy.runtime import open_exported
from cvt_dense.errors import UserError
from cvt_dense.launch.flags import TestFlags
from cvt_dense.launch.start import start_test

tool = load_tool('export')


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
    ('a.onnx', ('--keep', 'backbone.stage7'), '--keep backbone.stage7'),
    ('a.onnx', ('--cfg-options', 'model.backbone.arch.embed_dims=[16,32,64]'), 'classification.pth')])
def test_bad_input_is_one_paragraph(export, tmp_path, out, flags, message):
    assert message in export('classification', tmp_path / out, *flags, rc=2)
    assert not (tmp_path / out).exists()


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
        return tool.choose_size(Namespace(size=size, dynamic=dynamic), cfg, task, set(sizes))

    assert choose('detection', (96, 128)) == ((96, 128), None)
    assert choose('detection', (96, 128), (128, 96)) == ((128, 128), None)
    assert choose('detection', (96, 128), size=(80, 90)) == ((80, 90), False)
    assert choose('segmentation', (100, 90)) == ((100, 90), False)
    assert choose('segmentation', (100, 90), (90, 100)) == ((100, 100), None)
    assert choose('segmentation', (100, 90), mode='slide', crop_size=(48, 64)) == ((48, 64), False)
    assert choose('classification', (64, 64), dynamic=True) == ((64, 64), True)
    with pytest.raises(UserError, match='--size'):
        choose('classification')


def test_inputs_are_those_of_the_runner(network, shapes, tmp_path):
    """Images for calibration and comparison are what a test of the config gives its network."""
    for task in ('classification', 'segmentation', 'detection'):
        made = network(task)
        runner = start_test(TestFlags(
            config=str(made.config), checkpoint=str(made.checkpoint), work_dir=str(tmp_path), no_check=True,
            data_root=str(shapes / task), cfg_options={'test_dataloader.batch_size': 1}))
        batch = next(iter(runner.test_dataloader))
        expected = runner.model.data_preprocessor(batch, False)['inputs']
        images = inputs.network_inputs(runner.cfg, runner.model, 'test', 2)
        assert len(images) == 2 and torch.equal(images[0], expected)


# -- the whole tool --------------------------------------------------------------------------------------------


def test_the_tool_writes_and_says_so(export, network, tmp_path):
    out = export('classification', tmp_path / 'new/a.xml', '--precision', 'bf16', '--raw-input')
    assert sorted(path.name for path in (tmp_path / 'new').iterdir()) == ['a.bin', 'a.xml']
    assert re.search(r'a.xml: done, \d+\.\d\d MB', out) and '64x64, batch 2, logits' in out
    about = open_exported(tmp_path / 'new/a.xml').metadata
    assert about['classes'] == network('classification').classes and about['config'] == 'classification.py'
    assert re.fullmatch('[0-9a-f]{64}', about['config_hash'])


def test_a_file_above_the_tolerance_has_another_name(export, tmp_path, monkeypatch):
    monkeypatch.setattr('cvt_dense.deploy.check.TOLERANCES', dict(fp32=-1.))
    assert 'ABOVE' in export('classification', tmp_path / 'a.pt2', rc=3)
    assert [path.name for path in tmp_path.iterdir()] == ['a.above_tolerance.pt2']
