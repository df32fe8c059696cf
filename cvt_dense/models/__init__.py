from ..weights import mmengine_loaders  # noqa: F401  (a model of ours loads our files)
from .autocast import autocast_model
from .backbones import CvT, TimmBackbone
from .classifier import ImageClassifier
from .data_preprocessor import ClassificationPreprocessor
from .exported import ExportedBackbone, exported_model
from .mask_tta import MaskTTAModel
from .masked_image_model import MaskedImageModel
from .teachers import classifier_teacher, timm_teacher

__all__ = [
    'ClassificationPreprocessor', 'CvT', 'ExportedBackbone', 'ImageClassifier', 'MaskTTAModel', 'MaskedImageModel',
    'TimmBackbone', 'autocast_model', 'classifier_teacher', 'exported_model', 'timm_teacher',
]
