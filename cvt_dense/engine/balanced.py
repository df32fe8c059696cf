"""Draw images of rare classes more often."""
from typing import Any

from mmengine.dataset import BaseDataset, ClassBalancedDataset

from ..registry import DATASETS


@DATASETS.register_module()
class BalancedDataset(ClassBalancedDataset):
    """Repeat images of rare classes by MMEngine's ``ClassBalancedDataset``; the threshold is 1 / number of classes.

    A class is rare if less than 1 / C of the images contain it, where C is the number of classes. An image is repeated
    ``ceil(sqrt(1 / (C f)))`` times, where f is the fraction of the images that contain its rarest class. All other
    images occur once.

    Args:
        dataset: data set with ``get_cat_ids``, such as MMDetection's and :class:`cvt_dense.ImageDataset`, or its
            config. Without ``metainfo['classes']`` the classes are those that occur.
    """

    def __init__(self, dataset: BaseDataset | dict[str, Any]):
        super().__init__(dataset, oversample_thr=1., lazy_init=True)
        classes = self.metainfo.get('classes') or set().union(*map(self.dataset.get_cat_ids, range(len(self.dataset))))
        self.oversample_thr = 1 / max(len(classes), 1)
        self.full_init()
