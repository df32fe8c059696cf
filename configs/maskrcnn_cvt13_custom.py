# Mask R-CNN, CvT-13, on your own data in COCO format. Edit these lines; the rest follows from them.
classes = ('cat', 'dog')  # as in the annotation files' "categories", in their order
data_root = 'data/mine/'
train_ann, train_images = 'annotations/train.json', 'train/'
val_ann, val_images = 'annotations/val.json', 'val/'
pretrained = 'hf://microsoft/cvt-13'

# ------------------------------------------------------------------------------------------------------
# 12 epochs; 8 GPUs * 2 = 16 images a step: lr 1e-4. One GPU: add --auto-scale-lr.
_base_ = [
    '_base_/models/maskrcnn_cvt.py', '_base_/backbones/cvt13.py', '_base_/datasets/coco_instance.py',
    '_base_/schedules/det_1x.py', '_base_/det_runtime.py'
]
import os.path  # below _base_: upstream's MMEngine takes a config that imports first for a pure-Python one

model = dict(
    backbone=dict(_base_.backbone, init_cfg=dict(type='Pretrained', checkpoint=pretrained)),
    roi_head=dict(
        bbox_head=dict(num_classes=len(classes)), mask_head=dict(num_classes=len(classes))))
train_dataloader = dict(
    dataset=dict(
        data_root=data_root,
        metainfo=dict(classes=classes),
        ann_file=train_ann,
        data_prefix=dict(img=train_images)))
val_dataloader = dict(
    dataset=dict(
        data_root=data_root,
        metainfo=dict(classes=classes),
        ann_file=val_ann,
        data_prefix=dict(img=val_images)))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=os.path.join(data_root, val_ann))
test_evaluator = val_evaluator
