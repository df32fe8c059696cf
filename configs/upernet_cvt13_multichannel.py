# UperNet on images of any number of channels (near infrared, radar, slices of a volume), from published weights for
# RGB. Label maps as in upernet_cvt13_custom.py. Edit these lines; the rest follows.
mean = (123.675, 116.28, 103.53, 110.)  # of each channel, in the values that the files hold: as many as there are
std = (58.395, 57.12, 57.375, 60.)
classes = ('background', 'road')  # class 0, class 1, ...
ignore_index = 255  # pixels of this value count neither in the loss nor in the scores
data_root = 'data/mine/'
train_ann, train_images = 'labels/train', 'images/train'
val_ann, val_images = 'labels/val', 'images/val'
img_suffix, seg_map_suffix = '.tif', '.png'  # '.npy': NumPy arrays; both (height, width, channels), of any type
arch = 'cvt-13'  # or 'cvt-21', 'cvt-w24', 'timm:NAME'; 'cvt-nano': a small network for a CPU and small data
pretrained = 'published'  # the published weights of this arch, None (random weights), or the path of a weight file
image_size = 224 if arch == 'cvt-nano' else 512  # side of the square crops trained on; images keep their size
batch_size = 8 if arch == 'cvt-nano' else 2  # images per GPU
max_iters = 1000 if arch == 'cvt-nano' else 40000  # steps of batch_size images; cvt-nano: minutes
patience = None  # evaluations without improvement that end the training; None: it ends after max_iters

# ------------------------------------------------------------------------------------------------------
# The learning rate is 6e-5 for 16 images a step ('cvt-nano': 6e-3 for 8, of Muon), and scales with GPUs * batch_size.
_base_ = [__import__('cvt_dense').recipe(f'_base_/{name}.py') for name in (
    'models/upernet_cvt', 'datasets/folders', 'schedules/seg_160k', 'seg_runtime')]
# below _base_, because upstream's MMEngine takes a file that imports first for a pure-Python config
import cvt_dense.recipes.templates as templates

# MMSegmentation's transforms. MMEngine's data preprocessor normalises 1 or 3 channels only, so the pipeline does it.
load = dict(  # NumPy arrays, and TIFF by tifffile
    type='LoadImageFromNpyFile', color_type='unchanged', imdecode_backend='tifffile', to_float32=True)
normalize = dict(type='Normalize', mean=mean, std=std, to_rgb=False)
train_pipeline = [
    load,
    dict(type='LoadAnnotations'),
    dict(type='RandomCrop', crop_size=(image_size, image_size), cat_max_ratio=0.75, ignore_index=ignore_index),
    dict(type='RandomFlip', prob=0.5),
    normalize,
    dict(type='PackSegInputs')
]
test_pipeline = [load, normalize, dict(type='LoadAnnotations'), dict(type='PackSegInputs')]

model = templates.upernet(classes, arch, pretrained, image_size, ignore_index)
model['data_preprocessor'].update(mean=None, std=None, bgr_to_rgb=False)
model['backbone']['in_channels'] = len(mean)
if model['backbone']['init_cfg']:
    model['backbone']['init_cfg']['in_channels'] = 'adapt'  # R, G, B in turn, times 3 / channels; the log reports it
dataset = dict(
    data_root=data_root,
    metainfo=dict(classes=classes),
    img_suffix=img_suffix,
    seg_map_suffix=seg_map_suffix,
    ignore_index=ignore_index)
train_dataloader = dict(
    batch_size=batch_size,
    dataset=dict(data_prefix=dict(img_path=train_images, seg_map_path=train_ann), pipeline=train_pipeline, **dataset))
val_dataloader = dict(
    dataset=dict(data_prefix=dict(img_path=val_images, seg_map_path=val_ann), pipeline=test_pipeline, **dataset))
test_dataloader = val_dataloader
val_evaluator = dict(ignore_index=ignore_index)
test_evaluator = val_evaluator
tta_model = tta_pipeline = None  # its images would be 3 channels

train_cfg = templates.loop(max_iters)
param_scheduler = templates.schedule(max_iters)
default_hooks = templates.hooks(max_iters, 'mIoU', patience)
log_processor = dict(by_epoch=False)
optim_wrapper = templates.optimizer(arch, lr=6e-5, max_norm=1.)
auto_scale_lr = dict(enable=True, base_batch_size=8 if arch == 'cvt-nano' else 16)
