# UperNet on your own images and label maps: 8-bit PNGs whose pixels are class numbers, named like their images.
# Edit these lines; the rest follows.
classes = ('background', 'road')  # class 0, class 1, ...
ignore_index = 255  # pixels of this value count neither in the loss nor in the scores
data_root = 'data/mine/'
train_ann, train_images = 'labels/train', 'images/train'
val_ann, val_images = 'labels/val', 'images/val'
test_ann, test_images = val_ann, val_images  # or folders of their own
img_suffix, seg_map_suffix = '.jpg', '.png'
arch = 'cvt-13'  # or 'cvt-21', 'cvt-w24', 'timm:NAME'; 'cvt-nano': a small network for a CPU and small data
pretrained = 'published'  # the published weights of this arch, None (random weights), or the path of a weight file
image_size = 224 if arch == 'cvt-nano' else 512  # pixels: short side of images, side of training crops
batch_size = 8 if arch == 'cvt-nano' else 2  # images per GPU
max_iters = 1000 if arch == 'cvt-nano' else 40000  # steps of batch_size images; cvt-nano: 19 minutes on a CPU core
patience = None  # evaluations without improvement that end the training; None: it ends after max_iters
augment = 'standard'  # of the training images; or 'none', 'strong'

# ------------------------------------------------------------------------------------------------------
# The learning rate is 6e-5 for 16 images a step ('cvt-nano': 6e-3 for 8, of Muon), and scales with GPUs * batch_size.
_base_ = [__import__('cvt_dense').recipe(f'_base_/{name}.py') for name in (
    'models/upernet_cvt', 'datasets/folders', 'schedules/seg_160k', 'seg_runtime')]
# below _base_, because upstream's MMEngine takes a file that imports first for a pure-Python config
import cvt_dense.recipes.templates as templates

model = templates.upernet(classes, arch, pretrained, image_size, ignore_index)
dataset = dict(
    data_root=data_root,
    metainfo=dict(classes=classes),
    img_suffix=img_suffix,
    seg_map_suffix=seg_map_suffix,
    ignore_index=ignore_index)
# A crop is drawn again where one class has more than three quarters of the pixels that count.
train_pipeline = templates.augmented(
    templates.resized(_base_.train_pipeline, image_size, 'segmentation', ignore_index=ignore_index),
    augment, seg_pad_val=ignore_index)
test_pipeline = templates.resized(_base_.test_pipeline, image_size, 'segmentation')
tta_pipeline = templates.resized(_base_.tta_pipeline, image_size, 'segmentation')
train_dataloader = dict(
    batch_size=batch_size,
    dataset=dict(
        data_prefix=dict(img_path=train_images, seg_map_path=train_ann), pipeline=train_pipeline, **dataset))
val_dataloader = dict(
    dataset=dict(data_prefix=dict(img_path=val_images, seg_map_path=val_ann), pipeline=test_pipeline, **dataset))
test_dataloader = dict(
    dataset=dict(data_prefix=dict(img_path=test_images, seg_map_path=test_ann), pipeline=test_pipeline, **dataset))
val_evaluator = dict(ignore_index=ignore_index)
test_evaluator = val_evaluator

train_cfg = templates.loop(max_iters)
param_scheduler = templates.schedule(max_iters)
default_hooks = templates.hooks(max_iters, 'mIoU', patience)
log_processor = dict(by_epoch=False)
optim_wrapper = templates.optimizer(arch, lr=6e-5, max_norm=1.)
auto_scale_lr = dict(enable=True, base_batch_size=8 if arch == 'cvt-nano' else 16)
