# CvT-13, fine-tuned on ImageNet-1k at 384x384 from its weights at 224 (authors: 83.0 top-1).
#
#   tools/dist_train.sh configs/cvt13_384_in1k.py 8 --data-root DIR        8 GPUs * 64 = 512, lr 0.01
_base_ = [
    '_base_/models/cvt_classifier_plain.py', '_base_/datasets/imagenet_384.py',
    '_base_/schedules/sgd_finetune.py', '_base_/cls_runtime.py'
]
load_from = 'hf://microsoft/cvt-13'  # the authors' weights; or a file of cvt13_in1k.py's
