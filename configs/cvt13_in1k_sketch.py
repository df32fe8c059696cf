# Tests a classifier of ImageNet-1k on ImageNet-Sketch (1000 classes): <data_root>/<synset>/*
#
#   python tools/test.py configs/cvt13_in1k_sketch.py CHECKPOINT --data-root DIR
_base_ = 'cvt13_in1k.py'

test_dataloader = dict(dataset=dict(data_root='data/sketch', split=''))
