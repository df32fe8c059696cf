"""tools/diagnose.py from its command line, and its page."""
import json
import shutil
from pathlib import Path

import pytest
from load_tool import run_tool
from mmengine.config import Config

pytestmark = pytest.mark.slow


def _in_tars(cfg, data: Path) -> None:
    for stage in ('train', 'val'):
        shutil.make_archive(str(data / stage), 'tar', data / stage)
        cfg[f'{stage}_dataloader'].dataset.split = f'{stage}.tar'


def _joined(cfg, data: Path) -> None:
    item = cfg.val_dataloader.dataset
    cfg.val_dataloader.dataset = dict(type='ConcatDataset', datasets=[item, item])


CHANGES = dict(classification=_in_tars, segmentation=_joined)  # test_guides.py runs a detector


@pytest.mark.parametrize('task', CHANGES)
def test_the_page_of_an_untrained_network_has_all_its_pictures(nano, shapes, tmp_path, task):
    data, out = Path(shutil.copytree(shapes / task, tmp_path / 'data')), tmp_path / 'report'
    cfg = Config.fromfile(nano[task][0])
    cfg.work_dir = None
    CHANGES[task](cfg, data)
    cfg.test_dataloader = cfg.val_dataloader
    cfg.dump(tmp_path / 'config.py')
    run_tool('diagnose', tmp_path / 'config.py', nano[task][1], '--data-root', data, '--no-check', '--out-dir', out,
             '--work-dir', tmp_path / 'runs')
    content = json.loads((out / 'report.json').read_text())
    assert not any('.png' in line for line in content['summary'])  # which would name an unreadable image
    assert content['images'] and all((out / image['file']).stat().st_size for image in content['images'].values())


def test_wrong_arguments_and_data_end_before_anything_is_written(nano, shapes, tmp_path):
    data, out = Path(shutil.copytree(shapes / 'detection', tmp_path / 'data')), tmp_path / 'report'
    file = data / 'annotations/instances_val.json'
    file.write_text(json.dumps(json.loads(file.read_text()) | dict(annotations=[])))
    args = *nano['detection'], '--data-root', data, '--out-dir', out, '--work-dir', tmp_path / 'run', '--no-check'
    assert 'annotation' in run_tool('diagnose', *args, rc=2) and not out.exists()
    out.mkdir()
    (out / 'thesis.tex').write_text('no report')
    run_tool('diagnose', *args, '--force', rc=2)
    assert [path.name for path in out.iterdir()] == ['thesis.tex']
