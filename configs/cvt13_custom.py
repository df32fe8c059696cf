# A classifier on your own photos in class folders, <data_root>/train/<class>/*.jpg. The classes and their number are
# read from the folders' names. Edit these lines; the rest follows.
data_root = 'data/mine/'
train_images = 'train'
val_images = 'val'
test_images = val_images  # or a folder of its own
arch = 'cvt-13'  # or 'cvt-21', 'cvt-w24', 'timm:NAME'; 'cvt-nano': a small network for a CPU and small data
pretrained = 'published'  # the published weights of this arch, None (random weights), or the path of a weight file
image_size = 64 if arch == 'cvt-nano' else 224  # side in pixels
batch_size = 32 if arch == 'cvt-nano' else 64  # images per GPU
max_iters = 800 if arch == 'cvt-nano' else 5000  # steps of batch_size images; cvt-nano: 3 minutes on a CPU core
patience = None  # evaluations without improvement that end the training; None: it ends after max_iters
balance = None  # or 'images': images of rare classes are drawn more often
augment = 'standard'  # of the training images; or 'none', 'strong'

# ------------------------------------------------------------------------------------------------------
# The learning rate is 1e-4 for 64 images a step ('cvt-nano': 1e-3 for 32), and scales with GPUs * batch_size.
_base_ = [__import__('cvt_dense').recipe(f'_base_/{name}.py') for name in (
    'datasets/imagenet_224', 'schedules/adamw_300e', 'cls_runtime')]
# below _base_, because upstream's MMEngine takes a file that imports first for a pure-Python config
import cvt_dense.recipes.templates as templates

model = dict(  # num_classes: as many as there are class folders
    type='cvt_dense.ImageClassifier',
    data_preprocessor=dict(type='cvt_dense.ClassificationPreprocessor', label_smoothing=0.1),
    backbone=dict(type='cvt_dense.CvT') | templates.classifier(arch, pretrained))
num_workers = 2
test_transform = dict(input_size=image_size, crop_pct=1.0)
train_dataloader = dict(
    batch_size=batch_size,
    num_workers=num_workers,
    sampler=dict(_delete_=True, type='cvt_dense.SeededInfiniteSampler'),
    dataset=templates.balanced(
        _base_.train_dataloader.dataset, balance, data_root=data_root, split=train_images,
        transform=templates.train_transform(image_size, augment)))
val_dataloader = dict(
    batch_size=batch_size,
    num_workers=num_workers,
    dataset=dict(data_root=data_root, split=val_images, transform=test_transform))
test_dataloader = dict(
    batch_size=batch_size,
    num_workers=num_workers,
    dataset=dict(data_root=data_root, split=test_images, transform=test_transform))

train_cfg = templates.loop(max_iters)
param_scheduler = templates.schedule(max_iters)
default_hooks = templates.hooks(max_iters, 'accuracy/top1', patience)
log_processor = dict(by_epoch=False)
optim_wrapper = dict(optimizer=dict(lr=1e-3 if arch == 'cvt-nano' else 1e-4), clip_grad=dict(max_norm=1.))
auto_scale_lr = dict(enable=True, base_batch_size=32 if arch == 'cvt-nano' else 64)
custom_hooks = []  # without the averaged weights of _base_
