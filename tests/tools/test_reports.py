"""tools/browse.py and tools/diagnose.py from their command lines, and their pages in a browser."""
import json
import shutil
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from load_tool import load_tool
from mmengine.config import Config
from PIL import Image

from cvt_dense.launch.flags import TestFlags
from cvt_dense.launch.read import read_test

TASKS = ('classification', 'detection', 'segmentation')
CHROMIUM = shutil.which('chromium') or shutil.which('google-chrome')


def run(name: str, *args: object, rc: int = 0) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('CVT_DENSE_TRACEBACK', '1')
        try:
            load_tool(name).main([*map(str, args)])
        except SystemExit as end:
            assert end.code == rc
        else:
            assert rc == 0


def own_visualizer(name: str) -> list[str]:
    """Options without which MMEngine would take the visualizer of an earlier run in this process."""
    return ['visualizer.type=mmengine.Visualizer', f'visualizer.name={name}']


@pytest.fixture(scope='module')
def reports(nano, shapes, tmp_path_factory) -> dict[str, Path]:
    """By tool and task, the folder of a report of an untrained network."""
    folder = tmp_path_factory.mktemp('reports')
    for task in TASKS:
        config, checkpoint = nano[task]
        data, out = ('--data-root', shapes / task), {tool: folder / f'{tool} {task}' for tool in ('browse', 'diagnose')}
        run('browse', config, *data, '--out-dir', out['browse'], '--number', 3, '--cfg-options',
            'train_dataloader.batch_size=2', *own_visualizer(f'browse_{task}'))
        run('diagnose', config, checkpoint, *data, '--out-dir', out['diagnose'], '--work-dir', folder / 'runs',
            '--cfg-options', *own_visualizer(f'diagnose_{task}'))
    return {path.name: path for path in folder.iterdir()}


def blocks(folder: Path, kind: str) -> list[dict]:
    content = json.loads((folder / 'report.json').read_text())
    return [block for section in content['sections'] for block in section['blocks'] if block['kind'] == kind]


@pytest.mark.parametrize('task', TASKS)
def test_both_tools_write_a_page_with_all_its_pictures(reports, task):
    for tool in ('browse', 'diagnose'):
        folder = reports[f'{tool} {task}']
        content = json.loads((folder / 'report.json').read_text())
        assert all((folder / image['file']).stat().st_size for image in content['images'].values())
        assert all((folder / figure['file']).is_file() for figure in blocks(folder, 'figure'))
    assert len(blocks(reports[f'browse {task}'], 'pictures')[0]['images']) == 3


CLICK = """<script>
let table = [...document.querySelectorAll('h2')].find(title => title.textContent == 'Confusion');
while (table.tagName != 'TABLE') table = table.nextElementSibling;
const cell = table.querySelector('td[data-images]');
cell.click();
const pictures = [...document.querySelectorAll('#shown img')];
Promise.all(pictures.map(one => { one.loading = 'eager'; return one.decode(); })).then(() => {
  document.body.dataset.decoded = pictures.length + ' of ' + cell.dataset.images.split(',').length; });
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason='Chromium is not installed')
@pytest.mark.parametrize('task', TASKS)
def test_a_click_on_a_confusion_cell_lists_pictures_that_the_browser_can_show(reports, task):
    page = reports[f'diagnose {task}'] / 'report.html'
    clicked = page.with_name('clicked.html')
    clicked.write_text(page.read_text() + CLICK)
    result = subprocess.run(
        [CHROMIUM, '--headless', '--no-sandbox', '--disable-gpu', '--virtual-time-budget=60000', '--dump-dom',
         clicked.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    count = result.stdout.split('data-decoded="')[1].split('"')[0].split(' of ')
    assert count[0] == count[1] != '0'
    assert 'id="shown" style="display: block' in result.stdout


@pytest.mark.parametrize('split', ('train', 'val'))
def test_class_folders_are_numbered_as_in_the_checkpoint(nano, tmp_path, split):
    checkpoint, classes = tmp_path / 'classes.pth', ['nothing', 'circle', 'star']
    torch.save(dict(state_dict={}, meta=dict(dataset_meta=dict(classes=classes))), checkpoint)
    flags = TestFlags(config=str(nano['classification'][0]), checkpoint=str(checkpoint))
    cfg = read_test(flags, partial(load_tool('diagnose').test_on, split=split))
    assert cfg.test_dataloader.dataset.metainfo.classes == classes
    assert cfg.test_dataloader.dataset.split == cfg[f'{split}_dataloader'].dataset.split


# -- kinds of data -----------------------------------------------------------------------------------------


def _listed(cfg, data: Path) -> None:
    names = sorted(path.name for path in (data / 'val').iterdir())
    lines = [f'{path.relative_to(data / "val")} {names.index(path.parent.name)}'
             for path in (data / 'val').rglob('*.png')]
    (data / 'val.txt').write_text('\n'.join(lines))
    for stage in ('train', 'val'):
        cfg[f'{stage}_dataloader'].dataset.update(split='val', ann_file='val.txt', metainfo=None)


def _in_tars(cfg, data: Path) -> None:
    for stage in ('train', 'val'):
        shutil.make_archive(str(data / stage), 'tar', data / stage)
        cfg[f'{stage}_dataloader'].dataset.split = f'{stage}.tar'


def _joined(cfg, data: Path) -> None:
    one = cfg.val_dataloader.dataset
    cfg.val_dataloader.dataset = dict(type='ConcatDataset', datasets=[one, one])


def _edited(change):
    def edit_file(cfg, data: Path) -> None:
        edit(data / 'annotations/instances_val.json', change)
    return edit_file


def _one_image(content) -> None:
    content['images'] = content['images'][:1]
    content['annotations'] = [one for one in content['annotations'] if one['image_id'] == content['images'][0]['id']]


def _one_file_twice(content) -> None:
    content['images'].append(dict(content['images'][0], id=999))
    content['annotations'].append(dict(content['annotations'][0], id=9999, image_id=999))


def _an_image_without_objects(content) -> None:
    first = content['images'][0]['id']
    content['annotations'] = [one for one in content['annotations'] if one['image_id'] != first]


def _a_polygon_without_points(content) -> None:
    content['annotations'][0]['segmentation'] = [[1, 1, 2, 2]]


def _arrays(cfg, data: Path) -> None:
    for file in data.glob('images/*/*.png'):
        np.save(file.with_suffix('.npy'), np.asarray(Image.open(file)))
    load = dict(type='LoadImageFromNpyFile')
    for stage in ('train', 'val'):
        data_set = cfg[f'{stage}_dataloader'].dataset
        data_set.img_suffix = '.npy'
        data_set.pipeline = [load if step['type'] == 'LoadImageFromFile' else step for step in data_set.pipeline]


def _names(cfg, data: Path) -> None:
    new = ['a $x$', "it's", '"b"', '猫', *(f'c{i}' for i in range(20))]
    files = [data / f'annotations/instances_{split}.json' for split in ('train', 'val')]
    old = [category['name'] for category in json.loads(files[0].read_text())['categories']]
    for file in files:
        edit(file, lambda content: [category.update(name=name) for category, name in zip(content['categories'], new)])
    for stage in ('train', 'val'):
        cfg[f'{stage}_dataloader'].dataset.metainfo = dict(classes=new[:len(old)])


@pytest.mark.parametrize('task, change', [
    ('classification', _listed), ('classification', _in_tars), ('classification', _joined), ('detection', _joined),
    ('detection', _edited(_one_image)), ('detection', _edited(_one_file_twice)), ('detection', _names),
    ('detection', _edited(_an_image_without_objects)),
    ('detection', _edited(_a_polygon_without_points)), ('segmentation', _joined), ('segmentation', _arrays)])
def test_kinds_of_data(nano, shapes, tmp_path, task, change):
    """Each gives both pages, without images that cannot be read, and two equal networks are equal on it."""
    config, checkpoint = nano[task]
    data = Path(shutil.copytree(shapes / task, tmp_path / 'data'))
    cfg = Config.fromfile(config)
    cfg.work_dir = None
    change(cfg, data)
    cfg.test_dataloader = cfg.val_dataloader
    cfg.dump(tmp_path / 'config.py')
    if change is _names:
        saved = torch.load(checkpoint)
        saved['meta']['dataset_meta']['classes'] = cfg.val_dataloader.dataset.metainfo.classes
        checkpoint = tmp_path / 'names.pth'
        torch.save(saved, checkpoint)
    name = f'{task}{tmp_path.name}'
    common = '--data-root', data, '--no-check'
    run('browse', tmp_path / 'config.py', *common, '--out-dir', tmp_path / 'browse', '--number', 2, '--cfg-options',
        'train_dataloader.batch_size=2', *own_visualizer(f'browse_{name}'))
    run('diagnose', tmp_path / 'config.py', checkpoint, '--compare', checkpoint, *common, '--out-dir',
        tmp_path / 'diagnose', '--work-dir', tmp_path / 'run', '--cfg-options', *own_visualizer(f'diagnose_{name}'))
    for tool in ('browse', 'diagnose'):
        summary = json.loads((tmp_path / tool / 'report.json').read_text())['summary']
        assert not any('cannot be read' in line for line in summary), summary
    assert 'is +0.00 points' in summary[0]


def test_other_folders_stay(nano, shapes, tmp_path):
    """A report that replaces an older one leaves the user's folders with similar names as they are."""
    config, _ = nano['classification']
    for name in ('report.old', 'report.partial'):
        (tmp_path / name).mkdir()
    for force in ((), ('--force', )):
        run('browse', config, '--data-root', shapes / 'classification', '--out-dir', tmp_path / 'report', *force,
            '--number', 1, '--cfg-options', 'train_dataloader.batch_size=2',
            *own_visualizer(f'browse_again{len(force)}'))
    assert sorted(path.name for path in tmp_path.iterdir()) == ['report', 'report.old', 'report.partial']


@pytest.fixture
def detection_data(shapes, tmp_path) -> Path:
    return Path(shutil.copytree(shapes / 'detection', tmp_path / 'data'))


def edit(file: Path, change) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def test_unreadable_images_are_named_and_the_others_reported(nano, detection_data, tmp_path):
    for split in ('train', 'val'):
        (detection_data / split / '00000.png').write_bytes(b'no image')
    config, checkpoint = nano['detection']
    run('browse', config, '--data-root', detection_data, '--out-dir', tmp_path / 'browse', '--cfg-options',
        *own_visualizer('browse_unreadable'))
    run('diagnose', config, checkpoint, '--data-root', detection_data, '--out-dir', tmp_path / 'diagnose',
        '--work-dir', tmp_path, '--cfg-options', *own_visualizer('diagnose_unreadable'))
    for tool, number in (('browse', 2), ('diagnose', 1)):
        summary = json.loads((tmp_path / tool / 'report.json').read_text())['summary']
        assert any(f'{number} images cannot be read' in line and '00000.png' in line for line in summary), tool


def test_wrong_arguments_and_data_end_before_anything_is_written(nano, detection_data, tmp_path, capsys):
    config, checkpoint = nano['detection']
    out = tmp_path / 'report'
    args = config, checkpoint, '--data-root', detection_data, '--out-dir', out, '--work-dir', tmp_path / 'run'

    def refused(tool: str, *args: object, names: str) -> None:
        run(tool, *args, rc=2)
        assert names in capsys.readouterr().err.splitlines()[-1]
        assert not out.exists()

    refused('diagnose', *args, '--split', 'other', names='--split')
    refused('browse', config, '--data-root', detection_data, '--number', 0, names='--number')
    refused('diagnose', *args, '--compare', 'no.pth', names='no.pth')
    refused('diagnose', *args, '--launcher', 'pytorch', names='--launcher')
    refused('diagnose', *args, '--split', 'train', '--cfg-options', 'train_dataloader=None', names='--split')
    for tool, rest in (('diagnose', args[1:]), ('browse', args[2:])):
        refused(tool, config, *rest, '--out-dir', detection_data, names='--out-dir')
        refused(tool, config, *rest, '--out-dir', config / 'report', names='--out-dir')
    annotations = detection_data / 'annotations' / 'instances_val.json'
    edit(annotations, lambda content: content.update(annotations=[]))
    refused('diagnose', *args, '--no-check', '--cfg-options', *own_visualizer('none'), names='annotation')
    edit(annotations, lambda content: content.update(images=[]))
    refused('diagnose', *args, names='test_dataloader')
    out.mkdir()
    (out / 'thesis.tex').write_text('no report')
    for force in ((), ('--force', )):
        run('diagnose', *args, *force, rc=2)
    assert [path.name for path in out.iterdir()] == ['thesis.tex']
