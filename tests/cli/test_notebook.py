"""The notebook of the pages, from the training to an exported file."""
import json
import re
import shutil

import pytest
from load_tool import ROOT


@pytest.mark.slow
def test_the_notebook_trains_tests_predicts_and_exports(shapes, tmp_path, monkeypatch):
    """In one process, on data of the user, with fewer iterations."""
    folder = tmp_path / 'data'
    shutil.copytree(shapes / 'detection', folder)
    for file in (folder / 'annotations').iterdir():
        file.rename(file.with_name(file.name.removeprefix('instances_')))
    monkeypatch.setenv('DATA', str(folder))
    monkeypatch.chdir(tmp_path)
    content = json.loads((ROOT / 'docs/get_started/first_detector.ipynb').read_text())
    cells = [''.join(cell['source']) for cell in content['cells'] if cell['cell_type'] == 'code']
    assert not [cell for cell in cells if re.search('^[!%]', cell, re.M)], 'commands of a shell'
    names: dict = {}
    for cell in cells:
        exec(compile(cell.replace('224, 600', '64, 2'), 'first_detector.ipynb', 'exec'), names)
        # Without a detection, which two iterations do not learn, there is no metric; windows take a minute to trace.
        if 'config.write_text' in cell:
            lines = 'model["test_cfg"] = dict(score_thr=0.)', 'model["backbone"]["attn_cfg"] = None\n'
            names['config'].write_text('\n'.join([names['config'].read_text(), *lines]))
    assert names['run'].last and min(names['picture'].size) > 100 and 0 <= names['scores']['coco/bbox_mAP'] <= 1
