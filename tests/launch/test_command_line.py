"""How errors are reported, flags that do not go together, and files that no tool overwrites without --force."""
import pytest
from load_tool import flags_of
from mmengine.config import Config

from cvt_dense.errors import UserError
from cvt_dense.inference.model import prepare_model
from cvt_dense.launch import command_line
from cvt_dense.launch.flags import read_training, set_views
from cvt_dense.launch.outputs import check_outputs


@pytest.mark.parametrize('traceback', ['0', '1'])
def test_a_mistake_of_the_user_is_one_line(traceback, capsys, monkeypatch):
    monkeypatch.setenv('CVT_DENSE_TRACEBACK', traceback)
    with pytest.raises(SystemExit) as stop, command_line.report_errors():
        raise UserError('no such thing.')
    *before, last = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2 and last == 'error: no such thing.' and bool(before) == (traceback == '1')


def test_flags_that_do_not_go_together():
    with pytest.raises(UserError, match='--tta'):
        set_views(Config(), True, 64, 0.2)
    with pytest.raises(UserError, match='amp'):
        prepare_model(Config(), 'a.onnx', amp='bf16')
    with pytest.raises(UserError, match='base_batch_size'):
        read_training(flags_of('train', 'configs/cvt13_in1k.py', '--auto-scale-lr',
                               cfg_options={'auto_scale_lr': None}))


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
