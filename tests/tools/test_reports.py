"""tools/browse.py and tools/diagnose.py from their command lines, and their pages in a browser."""
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from load_tool import load_tool

TASKS = ('classification', 'detection', 'segmentation')
CHROMIUM = shutil.which('chromium') or shutil.which('google-chrome')


def run(name: str, *args: object, rc: int = 0) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, 'argv', [name, *map(str, args)])
        patch.setenv('CVT_DENSE_TRACEBACK', '1')
        try:
            load_tool(name).main()
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
        [CHROMIUM, '--headless', '--no-sandbox', '--disable-gpu', '--virtual-time-budget=10000', '--dump-dom',
         clicked.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    count = result.stdout.split('data-decoded="')[1].split('"')[0].split(' of ')
    assert count[0] == count[1] != '0'
    assert 'id="shown" style="display: block' in result.stdout
