# GFL, on your own data in COCO format: boxes, in one stage. Edit these lines; the rest follows.
classes = ('cat', 'dog')  # names of the annotation files' "categories"; one class: ('cat', )
data_root = 'data/mine/'
train_ann, train_images = 'annotations/train.json', 'train/'
val_ann, val_images = 'annotations/val.json', 'val/'
test_ann, test_images = val_ann, val_images  # or files of their own
arch = 'cvt-13'  # or 'cvt-21', 'cvt-w24', 'timm:NAME'; 'cvt-nano': a small network for a CPU and small data
# The published weights of this arch, None (random weights), or the path of a weight file. For 'cvt-nano' they are those
# of a whole detector, cvt_dense://cvt-nano-coco; 'cvt_dense://cvt-nano' has the weights of the backbone alone.
pretrained = 'published'
image_size = 224 if arch == 'cvt-nano' else 800  # short side in pixels; the long one may be 5/3 of it
batch_size = 8 if arch == 'cvt-nano' else 2  # images per GPU
max_iters = 1000 if arch == 'cvt-nano' else 20000  # steps of batch_size images; cvt-nano: 25 minutes on a CPU core
patience = None  # evaluations without improvement that end the training; None: it ends after max_iters
balance = None  # or 'images': images of rare classes are drawn more often
augment = 'standard'  # of the training images; or 'none', 'strong'

# ------------------------------------------------------------------------------------------------------
# The learning rate is 1e-4 for 16 images a step ('cvt-nano': 6e-3 for 8, of Muon, or a tenth of it if the published
# detector knows all classes), and scales with GPUs * batch_size.
_base_ = [__import__('cvt_dense').recipe(f'_base_/{name}.py') for name in (
    'models/gfl_cvt', 'datasets/coco_detection', 'schedules/det_1x', 'det_runtime')]
# below _base_, because upstream's MMEngine takes a file that imports first for a pure-Python config
import os

import cvt_dense.recipes.templates as templates

model = templates.one_stage(classes, arch, pretrained)
load_from = templates.published_detector(arch, pretrained)
test_pipeline = templates.resized(_base_.test_pipeline, image_size, 'detection')
tta_pipeline = templates.resized(_base_.tta_pipeline, image_size, 'detection')
train_dataloader = dict(
    batch_size=batch_size,
    sampler=dict(_delete_=True, type='InfiniteSampler'),
    batch_sampler=None,
    dataset=templates.balanced(_base_.train_dataloader.dataset, balance, **templates.coco(
        classes, data_root, train_ann, train_images,
        templates.augmented(templates.resized(_base_.train_pipeline, image_size, 'detection'), augment))))
val_dataloader = dict(dataset=templates.coco(classes, data_root, val_ann, val_images, test_pipeline))
test_dataloader = dict(dataset=templates.coco(classes, data_root, test_ann, test_images, test_pipeline))
val_evaluator = dict(ann_file=os.path.join(data_root, val_ann))
test_evaluator = dict(ann_file=os.path.join(data_root, test_ann))

train_cfg = templates.loop(max_iters)
param_scheduler = templates.schedule(max_iters)
default_hooks = templates.hooks(max_iters, 'coco/bbox_mAP', patience)
log_processor = dict(by_epoch=False)
optim_wrapper = templates.optimizer(
    arch, lr=1e-4, max_norm=10., factor=templates.rate_factor(classes, arch, pretrained), weight_decay=1e-4)
auto_scale_lr = dict(enable=True, base_batch_size=8 if arch == 'cvt-nano' else 16)
