"""MMDetection's classes."""
from mmdet.datasets import BaseDetDataset, CocoDataset
from mmdet.datasets.transforms import LoadMultiChannelImageFromFiles, PackDetInputs
from mmdet.evaluation import CocoMetric

READERS = (LoadMultiChannelImageFromFiles, )  # beside those derived from mmcv's LoadImageFromFile
PACKING = (PackDetInputs, )
COCO_METRICS = (CocoMetric, )

__all__ = ['COCO_METRICS', 'PACKING', 'READERS', 'BaseDetDataset', 'CocoDataset']
