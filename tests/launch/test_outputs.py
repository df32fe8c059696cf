"""No tool overwrites a file that exists without --force."""
import pytest

from cvt_dense.errors import UserError
from cvt_dense.launch.outputs import check_outputs


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
