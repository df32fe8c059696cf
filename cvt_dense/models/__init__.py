from . import variants  # noqa: F401  (registers the further types of attn_cfg)
from .autocast import autocast_model
from .classifier import ImageClassifier
from .cvt import CvT
from .data_preprocessor import ClassificationPreprocessor
from .masked_image_model import MaskedImageModel
from .teachers import classifier_teacher, timm_teacher
from .timm_backbone import TimmBackbone

__all__ = [
    'ClassificationPreprocessor', 'CvT', 'ImageClassifier', 'MaskedImageModel',
    'TimmBackbone', 'autocast_model', 'classifier_teacher', 'timm_teacher',
]
