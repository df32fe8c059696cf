from ..weights import mmengine_loaders  # noqa: F401  (a model of ours loads our files)
from .backbones import CvT
from .classifier import ImageClassifier
from .data_preprocessor import ClassificationPreprocessor
from .mask_tta import MaskTTAModel

__all__ = ['ClassificationPreprocessor', 'CvT', 'ImageClassifier', 'MaskTTAModel']
