from .accuracy import Accuracy
from .classifier import ImageClassifier
from .image_dataset import ImageDataset
from .masked_image_model import MaskedImageModel
from .preprocessor import ClassificationPreprocessor
from .teachers import classifier_teacher, timm_teacher
from .transforms import open_image

__all__ = [
    'Accuracy', 'ClassificationPreprocessor', 'ImageClassifier', 'ImageDataset', 'MaskedImageModel',
    'classifier_teacher', 'open_image', 'timm_teacher',
]
