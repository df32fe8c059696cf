"""How errors are reported, flags that do not go together, and files that no tool overwrites without --force."""
import pytest

from cvt_dense import test
from cvt_dense.cli import command_line
from cvt_dense.cli.outputs import check_outputs
from cvt_dense.errors import UserError
from cvt_dense.launch.runs import TrainRun
from cvt_dense.launch.settings import read_training

test.__test__ = False


@pytest.mark.parametrize('traceback', ['0', '1'])
def test_a_mistake_of_the_user_is_one_line(traceback, capsys, monkeypatch):
    monkeypatch.setenv('CVT_DENSE_TRACEBACK', traceback)
    with pytest.raises(SystemExit) as stop, command_line.report_errors():
        raise UserError('no such thing.')
    *before, last = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2 and last == 'error: no such thing.' and bool(before) == (traceback == '1')


@pytest.mark.parametrize('settings, named', [
    (dict(tta=True, slice=64), '--tta'), (dict(amp='int8'), "'bf16'"),
    (dict(slice='64'), 'slice'), (dict(slice=16), 'slice'), (dict(overlap=0.5), 'overlap'),
    (dict(tta='yes'), 'tta'), (dict(options=['a=1']), 'options'),
    (dict(runtime='tensorrt'), 'onnxruntime'), (dict(work_dir=3), 'work_dir')])
def test_settings_that_are_not_allowed(settings, named):
    with pytest.raises(UserError, match=named):
        test(**dict(dict(config='cvt_dense://cvt-nano', checkpoint='cvt_dense://cvt-nano'), **settings))


def test_settings_of_a_training_that_do_not_go_together():
    with pytest.raises(UserError, match='--overwrite'):
        TrainRun('configs/cvt13_in1k.py', resume='auto', overwrite=True)
    with pytest.raises(UserError, match='base_batch_size'):
        read_training(TrainRun('configs/cvt13_in1k.py', auto_scale_lr=True, check=False,
                               options={'auto_scale_lr': None}))


# -- files -----------------------------------------------------------------------------------------


def test_existing_files_need_force(tmp_path):
    check_outputs([tmp_path / 'new.onnx', tmp_path / 'folder/new.json'])
    (tmp_path / 'old.onnx').touch()
    with pytest.raises(UserError, match='old.onnx.*--force'):
        check_outputs([tmp_path / 'new.onnx', tmp_path / 'old.onnx'])
    check_outputs([tmp_path / 'old.onnx'], force=True)
    (tmp_path / 'link').symlink_to(tmp_path / 'nowhere')
    with pytest.raises(UserError, match='--force'):
        check_outputs([str(tmp_path / 'link')])
    with pytest.raises(UserError, match='folder'):
        check_outputs([tmp_path], force=True)


def test_inputs_are_never_overwritten(tmp_path):
    (tmp_path / 'weights.bin').touch()
    (tmp_path / 'link.bin').symlink_to(tmp_path / 'weights.bin')
    for name in ('weights.bin', 'link.bin', 'sub/../weights.bin'):
        with pytest.raises(UserError, match='input'):
            check_outputs([tmp_path / name], force=True, inputs=[tmp_path / 'weights.bin'])
