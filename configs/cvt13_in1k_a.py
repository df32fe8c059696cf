# Tests a classifier of ImageNet-1k on ImageNet-A (natural adversarial examples, 200 classes): <data_root>/<synset>/*
#
#   python tools/test.py configs/cvt13_in1k_a.py CHECKPOINT --data-root DIR
_base_ = 'cvt13_in1k.py'

test_dataloader = dict(dataset=dict(data_root='data/imagenet-a', split='', metainfo=dict(classes='imagenet-1k')))
test_evaluator = dict(valid_classes='imagenet-a')
