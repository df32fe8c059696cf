"""tools/browse.py and tools/diagnose.py from their command lines, and their pages."""
import json
import shutil
from pathlib import Path

import pytest
from load_tool import run_tool
from mmengine.config import Config

pytestmark = pytest.mark.slow


def edit(file: Path, change) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def _in_tars(cfg, data: Path) -> None:
    for stage in ('train', 'val'):
        shutil.make_archive(str(data / stage), 'tar', data / stage)
        cfg[f'{stage}_dataloader'].dataset.split = f'{stage}.tar'


def _joined(cfg, data: Path) -> None:
    item = cfg.val_dataloader.dataset
    cfg.val_dataloader.dataset = dict(type='ConcatDataset', datasets=[item, item])


def _an_image_without_objects(cfg, data: Path) -> None:
    def change(content) -> None:
        first = content['images'][0]['id']
        content['annotations'] = [item for item in content['annotations'] if item['image_id'] != first]
        content['annotations'][0]['segmentation'] = [[1, 1, 9, 9]]  # of two points, which MMDetection leaves out

    edit(data / 'annotations/instances_val.json', change)


CHANGES = dict(classification=_in_tars, detection=_an_image_without_objects, segmentation=_joined)


@pytest.fixture(scope='module')
def reports(nano, shapes, tmp_path_factory) -> dict[str, Path]:
    """By tool and task, the folder of a report of an untrained network, each of another kind of data."""
    folder = tmp_path_factory.mktemp('reports')
    for task, change in CHANGES.items():
        data = Path(shutil.copytree(shapes / task, folder / f'data {task}'))
        cfg = Config.fromfile(nano[task][0])
        cfg.work_dir = None
        change(cfg, data)
        cfg.test_dataloader = cfg.val_dataloader
        cfg.dump(folder / f'{task}.py')
        common = '--data-root', data, '--no-check', '--out-dir'
        run_tool('browse', folder / f'{task}.py', *common, folder / f'browse {task}', '--number', 3, '--cfg-options',
                 'train_dataloader.batch_size=2')
        run_tool('diagnose', folder / f'{task}.py', nano[task][1], *common, folder / f'diagnose {task}', '--work-dir',
                 folder / 'runs')
    return {path.name: path for path in folder.iterdir()}


def blocks(folder: Path, kind: str) -> list[dict]:
    content = json.loads((folder / 'report.json').read_text())
    return [block for section in content['sections'] for block in section['blocks'] if block['kind'] == kind]


@pytest.mark.parametrize('task', CHANGES)
def test_both_tools_write_a_page_with_all_its_pictures(reports, task):
    for tool in ('browse', 'diagnose'):
        folder = reports[f'{tool} {task}']
        content = json.loads((folder / 'report.json').read_text())
        assert not any('.png' in line for line in content['summary'])  # which would name an unreadable image
        assert all((folder / image['file']).stat().st_size for image in content['images'].values())
    assert len(blocks(reports[f'browse {task}'], 'pictures')[0]['images']) == 3


def test_wrong_arguments_and_data_end_before_anything_is_written(nano, shapes, tmp_path):
    config, checkpoint = nano['detection']
    detection_data = Path(shutil.copytree(shapes / 'detection', tmp_path / 'data'))
    out = tmp_path / 'report'
    args = config, checkpoint, '--data-root', detection_data, '--out-dir', out, '--work-dir', tmp_path / 'run'
    assert 'exists already' in run_tool('diagnose', *args, '--out-dir', detection_data, rc=2) and not out.exists()
    edit(detection_data / 'annotations/instances_val.json', lambda content: content.update(images=[]))
    assert 'test_dataloader' in run_tool('diagnose', *args, rc=2) and not out.exists()
    out.mkdir()
    (out / 'thesis.tex').write_text('no report')
    run_tool('diagnose', *args, '--force', rc=2)
    assert [path.name for path in out.iterdir()] == ['thesis.tex']
