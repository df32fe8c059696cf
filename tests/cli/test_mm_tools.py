"""mmdet's and mmseg's own tools and inferencers with configs outside this project, no import of ours.

``type='cvt_dense.CvT'`` is all that names the project; it need only be installed (here: on the path).
"""
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import mmengine
import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]

BACKBONE = """dict(
        _delete_=True, type='cvt_dense.CvT',
        arch=dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6)){options})"""

DETECTOR = """
_base_ = 'mmdet::retinanet/retinanet_r50_fpn_1x_coco.py'
model = dict(
    data_preprocessor=dict(mean=[120.] * 3, std=[60.] * 3),
    backbone={backbone},
    neck=dict(_delete_=True, type='FPN', in_channels=[24, 48], out_channels=16, num_outs=2),
    bbox_head=dict(
        num_classes=8, in_channels=16, feat_channels=16, stacked_convs=1,
        anchor_generator=dict(_delete_=True, type='AnchorGenerator', scales=[4.], ratios=[1.], strides=[8, 16])),
    test_cfg=dict(nms_pre=50, score_thr=0., max_per_img=9))
data = dict(data_root={data!r}, metainfo=dict(
    classes=('arrow', 'circle', 'crescent', 'cross', 'ring', 'square', 'star', 'triangle')))
workers = dict(num_workers=0, persistent_workers=False)
train_dataloader = dict(
    dataset=dict(ann_file='annotations/instances_train.json', data_prefix=dict(img='train/'), **data), **workers)
val_dataloader = dict(
    dataset=dict(ann_file='annotations/instances_val.json', data_prefix=dict(img='val/'), **data), **workers)
test_dataloader = val_dataloader
val_evaluator = dict(ann_file={data!r} + '/annotations/instances_val.json')
test_evaluator = val_evaluator
train_cfg = dict(max_epochs=1)
optim_wrapper = dict(
    _delete_=True, type='OptimWrapper', optimizer=dict(type='AdamW', lr=1e-4, weight_decay=0.05),
    constructor='cvt_dense.LayerDecayOptimWrapperConstructor', paramwise_cfg=dict(decay_rate=0.9))
"""
# In the place of 1333 x 800 pixels; the config that the training has written has it, too.
SMALL = ['--cfg-options', *(f'{stage}_dataloader.dataset.pipeline.{step}.scale=(128,128)'
                            for stage, step in (('train', 2), ('val', 1), ('test', 1)))]

SEGMENTOR = """
_base_ = '{mim}/configs/fcn/fcn_r50-d8_4xb2-40k_cityscapes-512x1024.py'
model = dict(
    data_preprocessor=dict(size=(64, 64)), pretrained=None, backbone={backbone}, auxiliary_head=None,
    decode_head=dict(in_channels=48, in_index=2, channels=8, num_convs=1, num_classes=9, norm_cfg=dict(type='BN')))
classes = ('background', 'arrow', 'circle', 'crescent', 'cross', 'ring', 'square', 'star', 'triangle')
palette = [[20 * i, 10, 10] for i in range(9)]
pipeline = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'), dict(type='PackSegInputs')]
data = dict(_delete_=True, type='BaseSegDataset', data_root={data!r}, img_suffix='.png', pipeline=pipeline,
            metainfo=dict(classes=classes, palette=palette))
workers = dict(num_workers=0, persistent_workers=False)
train_dataloader = dict(
    dataset=dict(data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'), **data), **workers)
val_dataloader = dict(
    dataset=dict(data_prefix=dict(img_path='images/validation', seg_map_path='annotations/validation'), **data),
    **workers)
test_dataloader = val_dataloader
train_cfg = dict(max_iters=2, val_interval=2)
"""

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
import importlib, json, os, runpy, sys
package, steps = sys.argv[1], json.loads(sys.argv[2])
importlib.import_module(f'{package}.apis')
assert 'cvt_dense.models' not in sys.modules
for sys.argv in steps:
    if not os.fork():
        sys.path[0] = os.path.dirname(sys.argv[0])
        runpy.run_path(sys.argv[0], run_name='__main__')
        sys.exit()
    if code := os.waitstatus_to_exitcode(os.wait()[1]):
        sys.exit(code)
"""


@pytest.mark.parametrize('package', ['mmdet', 'mmseg'])
def test_own_tools_and_inferencers(shapes, tmp_path, package):
    options = ', out_indices=(1, 2)' if package == 'mmdet' else ''
    text, part = (DETECTOR, 'detection') if package == 'mmdet' else (SEGMENTOR, 'segmentation')
    mim = Path(importlib.util.find_spec(package).origin).parent / '.mim'
    config = tmp_path / 'config.py'
    config.write_text(text.format(backbone=BACKBONE.format(options=options), data=str(shapes / part), mim=mim))
    image = tmp_path / 'image.png'
    Image.fromarray(np.full((50, 70, 3), 90, np.uint8)).save(image)
    for name, text in (('infer.py', INFER), ('steps.py', STEPS)):
        (tmp_path / name).write_text(text)
    checkpoint = tmp_path / 'work' / ('epoch_1.pth' if package == 'mmdet' else 'iter_2.pth')
    steps = [[mim / 'tools/train.py', config, '--work-dir', tmp_path / 'work', *(SMALL if package == 'mmdet' else [])],
             [mim / 'tools/test.py', tmp_path / 'work/config.py', checkpoint, '--work-dir', tmp_path / 'test'],
             [tmp_path / 'infer.py', package, tmp_path / 'work/config.py', checkpoint, image]]
    env = {**os.environ, 'PYTHONPATH': str(ROOT)}
    if mmengine.__version__ == '0.10.7':  # cannot read its own checkpoints under torch 2.6 and later without this
        env['TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'] = '1'
    out = subprocess.run([sys.executable, tmp_path / 'steps.py', package, json.dumps(steps, default=str)], text=True,
                         stdout=subprocess.PIPE, check=True, env=env).stdout
    assert ('learning rate times' in out) == (package == 'mmdet')
    scores, = (tmp_path / 'test').glob('*/*.json')
    assert ('coco/bbox_mAP' if package == 'mmdet' else 'mIoU') in json.loads(scores.read_text().splitlines()[-1])
    assert ('backbone cvt_dense.models.cvt' if package == 'mmdet' else 'inferencer (50, 70)') in out
