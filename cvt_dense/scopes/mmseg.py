"""MMSegmentation's classes."""
from mmseg.datasets.transforms import LoadMultipleRSImageFromFile, LoadSingleRSImageFromFile, PackSegInputs
from mmseg.evaluation import IoUMetric

READERS = (LoadSingleRSImageFromFile, LoadMultipleRSImageFromFile)  # beside those derived from mmcv's LoadImageFromFile
PACKING = (PackSegInputs, )
IOU_METRICS = (IoUMetric, )

__all__ = ['IOU_METRICS', 'PACKING', 'READERS']
