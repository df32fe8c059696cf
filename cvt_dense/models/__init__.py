from .backbones import CvT
from .classifier import ImageClassifier
from .data_preprocessor import ClassificationPreprocessor
from .mask_tta import MaskTTAModel

__all__ = ['ClassificationPreprocessor', 'CvT', 'ImageClassifier', 'MaskTTAModel']
