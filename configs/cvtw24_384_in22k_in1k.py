# CvT-W24, pretrained on ImageNet-22k, fine-tuned on ImageNet-1k at 384x384 (authors: 87.7 top-1).
# 8 GPUs * 64 = 512, lr 0.01; an estimated 56 GiB a GPU, 15 with model.backbone.with_cp=True.
#
# The head's 1000 rows are taken from the 21,841 classes of the pretraining (a file per data set with its
# class folders' names, sorted, one a line):
#   python tools/convert_checkpoint.py work_dirs/cvtw24_in22k/epoch_90.pth checkpoints/cvtw24_in22k_mapped.pth \
#       --to cvt_dense --map-head in22k_classes.txt in1k_classes.txt
_base_ = 'cvt13_384_in1k.py'
load_from = 'checkpoints/cvtw24_in22k_mapped.pth'
model = dict(backbone=dict(arch='cvt-w24'))
