"""tools/export.py: what it writes, judges and refuses; the sizes that it chooses."""
import re
import sys
from argparse import Namespace

import pytest
import torch
from load_tool import load_tool, run_tool
from mmengine.config import Config

from cvt_dense.deploy import inputs
from cvt_dense.deploy.runtime import open_exported
from cvt_dense.errors import UserError


@pytest.fixture(scope='module')
def tool():
    return load_tool('export')


@pytest.fixture(scope='module')
def configs(network, tmp_path_factory):
    """The config files of the tiny networks."""
    folder = tmp_path_factory.mktemp('configs')
    for task in ('classification', 'segmentation', 'detection'):
        network(task).cfg.dump(folder / f'{task}.py')
    return folder


@pytest.fixture
def export(configs, network, data):
    """Run the tool: ``export(task, out, *flags)`` returns what it printed."""

    def export(task, out, *flags, checkpoint=None, rc=0):
        return run_tool('export', configs / f'{task}.py', checkpoint or network(task).checkpoint, out, '--data-root',
                        data / task, *flags, rc=rc)

    return export


@pytest.mark.parametrize('out, flags, message', [
    ('a.tflite', (), 'a.tflite'),
    ('a.onnx', ('--precision', 'bf16'), '--precision bf16'),
    ('a.pt2', ('--precision', 'int8'), '--precision int8'),
    ('a.onnx', ('--size', '12x64'), '--size 12x64'),
    ('a.onnx', ('--precision', 'int8', '--calibrate', '9'), '--calibrate 9: allowed are 1 to 8'),
    ('a.onnx', ('--keep', 'backbone.stage7'), '--keep backbone.stage7'),
    ('a.xml', ('--precision', 'int8'), 'needs nncf'),
    ('a.onnx', ('--cfg-options', 'model.backbone.arch.embed_dims=[16,32,64]'), 'classification.pth')])
def test_bad_input_is_one_paragraph(export, tmp_path, monkeypatch, out, flags, message):
    if 'nncf' in message:
        monkeypatch.setitem(sys.modules, 'nncf', None)  # as if it were not installed
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


# -- sizes and normalisation -----------------------------------------------------------------------------------


def test_sizes(tool, network):
    """Detectors take any size; a fixed one is that of the test images, not that of the config's scale."""
    def choose(task, found, size=None, dynamic=False):
        return tool.choose_size(Namespace(size=size, dynamic=dynamic), network(task).cfg, task, found)

    assert choose('detection', [(96, 128)]) == ((96, 128), None)
    assert choose('detection', [(96, 128), (128, 96)]) == ((128, 128), None)
    assert choose('detection', [(96, 128)], '80x90') == ((80, 90), False)
    assert choose('segmentation', [(100, 90)]) == ((100, 90), False)
    assert choose('segmentation', [(100, 90), (90, 100)]) == ((100, 100), None)
    assert choose('classification', []) == ((64, 64), False)
    assert choose('classification', [], dynamic=True) == ((64, 64), True)
    cfg = Config(dict(model=dict(test_cfg=dict(mode='slide', crop_size=(48, 64)))))
    assert inputs.config_size(cfg) == ((48, 64), True)


NORMALIZE = dict(type='Normalize', mean=[1., 2., 3.], std=[4., 5., 6.], to_rgb=True)


@pytest.mark.parametrize('wrap', [lambda step: step, lambda step: dict(type='mmcv.TestTimeAug', transforms=[[step]]),
                                  lambda step: dict(step, type='mmcv.Normalize')])
def test_a_pipeline_that_normalises(network, wrap):
    """The file's metadata describes the pipeline."""
    made = network('segmentation')
    cfg = Config(made.cfg.to_dict())
    cfg.test_dataloader.dataset.pipeline.insert(1, wrap(NORMALIZE))
    cfg.model.data_preprocessor = dict(type='SegDataPreProcessor')
    about = inputs.describe(cfg, made.model)
    assert (about['mean'], about['std'], about['bgr_to_rgb']) == ([1., 2., 3.], [4., 5., 6.], True)
    assert inputs.pipeline_normalise(cfg) is not None and inputs.pipeline_normalise(made.cfg) is None


def test_raw_input_where_the_pipeline_normalises(export, tmp_path):
    printed = export('segmentation', tmp_path / 'a.onnx', '--raw-input', '--cfg-options',
                     f'test_dataloader.dataset.pipeline.0={dict(NORMALIZE)}', rc=2)
    assert '--raw-input' in printed and not (tmp_path / 'a.onnx').exists()


def test_inputs_are_those_of_the_runner(network, data, tmp_path):
    """Images for calibration and comparison are what a test of the config gives its network."""
    from cvt_dense.launch.flags import TestFlags
    from cvt_dense.launch.start import start_test
    for task in ('classification', 'segmentation', 'detection'):
        made = network(task)
        runner = start_test(TestFlags(
            config=str(made.config), checkpoint=str(made.checkpoint), work_dir=str(tmp_path), no_check=True,
            data_root=str(data / task), cfg_options=dict(made.options, **{'test_dataloader.batch_size': 1})))
        batch = next(iter(runner.test_dataloader))
        expected = runner.model.data_preprocessor(batch, False)['inputs']
        found = inputs.network_inputs(runner.cfg, runner.model, 'test', limit=2)
        assert len(found) == 2 and torch.equal(found[0], expected)
    with pytest.raises(UserError, match='--calibrate 99'):
        inputs.network_inputs(runner.cfg, runner.model, 'train', 99)


# -- the whole tool --------------------------------------------------------------------------------------------


def test_the_tool_writes_judges_and_says_so(export, network, tmp_path):
    """Files of two precisions, evaluated beside the checkpoint."""
    out = export('classification', tmp_path / 'new/a.xml', '--precision', 'fp32', 'bf16', '--raw-input', '--evaluate')
    assert sorted(path.name for path in (tmp_path / 'new').iterdir()) == [
        f'a_{precision}.{suffix}' for precision in ('bf16', 'fp32') for suffix in ('bin', 'xml')]
    assert re.search(r'a_fp32.xml: done, \d+\.\d\d MB', out) and '64x64, batch 2: logits' in out
    about = open_exported(tmp_path / 'new/a_bf16.xml').metadata
    assert about['classes'] == network('classification').classes and about['config'] == 'classification.py'
    assert re.fullmatch('[0-9a-f]{64}', about['config_hash'])
    header, *rows = out[out.index('accuracy/top1'):].splitlines()[:4]
    assert header.split() == ['accuracy/top1', 'accuracy/top5', 'MB', 'images/s']
    cells = [row.rsplit(maxsplit=4) for row in rows]
    assert [row[0] for row in cells] == ['PyTorch, fp32', 'a_fp32.xml, fp32', 'a_bf16.xml, bf16']
    assert cells[0][1:3] == cells[1][1:3] and all(float(cell) > 0 for row in cells for cell in row[3:])


def test_an_evaluation_that_fails_keeps_the_others(export, tmp_path):
    """The evaluation fails because the file is for another size than that of the test images."""
    printed = export('classification', tmp_path / 'a.pt2', '--size', '48x64', '--evaluate', rc=3)
    assert re.search(r'PyTorch, fp32 +[\d.]+', printed) and '64x64' in printed
