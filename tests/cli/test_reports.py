"""tools/diagnose.py from its command line, and its page."""
import json
import shutil
from pathlib import Path

import pytest
from load_tool import run_tool
from PIL import Image

pytestmark = pytest.mark.slow


def test_a_page_shows_images_of_a_tar_file(nano, shapes, tmp_path):
    shutil.make_archive(str(tmp_path / 'images'), 'tar', shapes / 'classification/val')
    run_tool('diagnose', *nano['classification'], '--data-root', tmp_path, '--out-dir', tmp_path / 'report',
             '--work-dir', tmp_path / 'run', '--cfg-options', 'val_dataloader.dataset.split=images.tar')
    pictures = [Image.open(path) for path in (tmp_path / 'report/images').iterdir()]
    assert len(pictures) == 8 and not any(picture.getcolors() for picture in pictures), 'one is grey'
    assert len(json.loads((tmp_path / 'report/report.json').read_text())['images']) == 8


def test_wrong_arguments_and_data_end_before_anything_is_written(nano, shapes, tmp_path):
    data, out = Path(shutil.copytree(shapes / 'detection', tmp_path / 'data')), tmp_path / 'report'
    file = data / 'annotations/instances_val.json'
    file.write_text(json.dumps(json.loads(file.read_text()) | dict(annotations=[])))
    args = *nano['detection'], '--data-root', data, '--out-dir', out, '--work-dir', tmp_path / 'run', '--no-check'
    assert '--data-root' in run_tool('diagnose', *args, rc=2) and not out.exists()
    out.mkdir()
    (out / 'thesis.tex').write_text('no report')
    run_tool('diagnose', *args, '--force', rc=2)
    assert [path.name for path in out.iterdir()] == ['thesis.tex']
