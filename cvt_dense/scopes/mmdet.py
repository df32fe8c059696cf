"""MMDetection's classes."""
from mmdet.datasets import BaseDetDataset, CocoDataset
from mmdet.datasets.transforms import LoadMultiChannelImageFromFiles, PackDetInputs
from mmdet.evaluation import CocoMetric

READERS = (LoadMultiChannelImageFromFiles, )  # beside those derived from mmcv's LoadImageFromFile
PACKING = (PackDetInputs, )

__all__ = ['PACKING', 'READERS', 'BaseDetDataset', 'CocoDataset', 'CocoMetric']
