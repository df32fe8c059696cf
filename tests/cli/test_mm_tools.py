"""mmdet's and mmseg's own tools and inferencers with configs of docs/guides/mm_config.md, no import of ours.

``type='cvt_dense.CvT'`` is all that names the project; it need only be installed (here: on the path).
"""
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import mmengine
import numpy as np
import pytest
from load_tool import ROOT
from mmengine.config import Config
from PIL import Image

pytestmark = pytest.mark.slow

# Data, recipe that reads them, base of the page's config, the checkpoint of a training, and settings for CvT-nano.
PACKAGES = dict(
    mmdet=('detection', 'maskrcnn_cvt_nano_shapes', 'faster-rcnn', 'epoch_1.pth', {
        'train_cfg.max_epochs': 1, 'model.neck.in_channels': [32, 64, 128],
        'model.roi_head.bbox_head.fc_out_channels': 64, 'model.roi_head.bbox_head.num_classes': 8,
        'val_evaluator.metric': 'bbox', 'test_evaluator.metric': 'bbox',
        'load_from': 'cvt_dense://cvt-nano-coco', 'default_hooks.checkpoint.type': 'cvt_dense.SafeCheckpointHook',
        'default_hooks.stop': dict(type='cvt_dense.StopHook'), 'custom_hooks': [dict(type='cvt_dense.SeedHook')],
        'default_hooks.resume': dict(type='cvt_dense.ResumeHook')}),
    mmseg=('segmentation', 'upernet_cvt_nano_shapes', 'upernet', 'iter_2.pth', {
        'train_cfg.max_iters': 2, 'train_cfg.val_interval': 2, 'model.data_preprocessor.size': (64, 64),
        'model.decode_head.in_channels': [32, 64, 128], 'model.auxiliary_head.in_channels': 128, **{
            f'model.{head}.{key}': value for head in ('decode_head', 'auxiliary_head')
            for key, value in (('num_classes', 9), ('norm_cfg.type', 'BN'), ('channels', 8))}}))

INFER = """
import sys
kind, config, checkpoint, image = sys.argv[1:]
if kind == 'mmdet':
    from mmdet.apis import DetInferencer
    infer = DetInferencer(config, checkpoint, device='cpu', show_progress=False)
    print('inferencer', len(infer(image, no_save_vis=True)['predictions'][0]['bboxes']))
    print('backbone', type(infer.model.backbone).__module__)
else:
    from mmseg.apis import MMSegInferencer
    result = MMSegInferencer(config, checkpoint, classes=['x'] * 9, palette=[[0, 0, 0]] * 9, device='cpu')(image)
    print('inferencer', result['predictions'].shape)
"""


# Each step in a process of its own, forked before anything of this project is imported.
STEPS = """
import gc, json, os, runpy, sys
import mmdet.apis, mmseg.apis
from mmengine.runner import runner
from yapf.yapflib import yapf_api
env = runner.collect_env()  # once, as in conftest.py
runner.collect_env, yapf_api.FormatCode = lambda: env, lambda text, **_: (text, True)
assert 'cvt_dense.models' not in sys.modules
gc.freeze()  # a data set collects garbage
for sys.argv in json.loads(sys.argv[1]):
    if not os.fork():
        sys.path[0] = os.path.dirname(sys.argv[0])
        runpy.run_path(sys.argv[0], run_name='__main__')
        sys.stdout.flush()
        os._exit(0)  # Python would take all modules down
    if code := os.waitstatus_to_exitcode(os.wait()[1]):
        sys.exit(code)
"""


def write_config(path: Path, package: str, data: Path) -> None:
    """Write the page's config with CvT-nano and the data of a recipe of this project."""
    task, recipe, base, _, options = PACKAGES[package]
    page = (ROOT / 'docs/guides/mm_config.md').read_text()
    path.write_text(next(block for block in re.findall(r'^```python\n(.*?)^```', page, re.M | re.S) if base in block))
    cfg, shapes = Config.fromfile(path), Config.fromfile(ROOT / f'configs/{recipe}.py')
    for key in ('train_dataloader', 'val_dataloader', 'test_dataloader'):
        cfg[key].update(dataset=shapes[key].dataset, num_workers=0, persistent_workers=False)
    cfg.val_evaluator = cfg.test_evaluator = shapes.val_evaluator
    cfg.merge_from_dict({**options, 'model.backbone.arch': 'cvt-nano', 'model.backbone.init_cfg': None})
    path.write_text(cfg.pretty_text.replace(f'work_dirs/demo/data/{task}', str(data / task)))


def test_own_tools_and_inferencers(shapes, tmp_path):
    image, steps = tmp_path / 'image.png', []
    Image.fromarray(np.full((50, 70, 3), 90, np.uint8)).save(image)
    (tmp_path / 'infer.py').write_text(INFER)
    for package in PACKAGES:
        mim, config = Path(importlib.util.find_spec(package).origin).parent / '.mim', tmp_path / f'{package}.py'
        write_config(config, package, shapes)
        trained = [tmp_path / f'{package}/{config.name}', tmp_path / package / PACKAGES[package][3]]
        steps += [[mim / 'tools/analysis_tools/browse_dataset.py', config, '--output-dir', tmp_path / f'{package}_data',
                   '--not-show', '--cfg-options', 'train_dataloader.dataset.indices=3'],
                  [mim / 'tools/train.py', config, '--work-dir', tmp_path / package],
                  [mim / 'tools/test.py', *trained, '--work-dir', tmp_path / f'{package}_test'],
                  [tmp_path / 'infer.py', package, *trained, image]]
    env = {**os.environ, 'PYTHONPATH': str(ROOT)}
    if mmengine.__version__ == '0.10.7':  # cannot read its own checkpoints under torch 2.6 and later without this
        env['TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'] = '1'
    out = subprocess.run([sys.executable, '-c', STEPS, json.dumps(steps, default=str)], text=True,
                         stdout=subprocess.PIPE, check=True, env=env).stdout
    assert 'backbone cvt_dense.models.cvt' in out and 'inferencer (50, 70)' in out
    for package, metric in (('mmdet', 'coco/bbox_mAP'), ('mmseg', 'mIoU')):
        assert len(list((tmp_path / f'{package}_data').iterdir())) == 3
        log, = (tmp_path / package).glob('*/*.log')
        assert 'learning rate times' in log.read_text()
        assert package == 'mmseg' or 'Load checkpoint from cvt_dense://' in log.read_text()
        scores, = (tmp_path / f'{package}_test').glob('*/*.json')
        assert metric in json.loads(scores.read_text().splitlines()[-1])
