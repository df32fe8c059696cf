# CvT-13, ImageNet-1k at 224x224, 300 epochs (authors: 81.6 top-1).
#
#   python tools/train.py configs/cvt13_in1k.py --data-root DIR        one GPU
#   tools/dist_train.sh configs/cvt13_in1k.py 8 --data-root DIR        8 GPUs * 256 = 2048, lr 2e-3
_base_ = [
    '_base_/models/cvt_classifier.py', '_base_/datasets/imagenet_224.py', '_base_/schedules/adamw_300e.py',
    '_base_/cls_runtime.py'
]
