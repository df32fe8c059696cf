# CvT-13, fine-tuned on ImageNet-1k at 384x384 from its weights at 224 (authors: 83.0 top-1).
#
#   tools/dist_train.sh configs/cvt13_384_in1k.py 8 --data-root DIR        8 GPUs * 64 = 512, lr 0.01
_base_ = [
    '_base_/models/cvt_classifier.py', '_base_/datasets/imagenet_384.py', '_base_/schedules/sgd_finetune.py',
    'default_runtime.py'
]
default_scope = 'cvt_dense'
load_from = 'hf://microsoft/cvt-13'  # the authors' weights; or a file of cvt13_in1k.py's
batch_size = 64  # per GPU

model = dict(data_preprocessor=dict(random_erasing=None, mixup=None))
train_dataloader = dict(batch_size=batch_size, dataset=dict(transform=dict(auto_augment=None, color_jitter=None)))
val_dataloader = dict(batch_size=batch_size)
test_dataloader = dict(batch_size=batch_size)
default_hooks = dict(checkpoint=dict(save_best='accuracy/top1', rule='greater'))
