from .accuracy import Accuracy
from .classifier import ImageClassifier
from .image_dataset import ImageDataset
from .preprocessor import ClassificationPreprocessor
from .teachers import classifier_teacher, timm_teacher

__all__ = [
    'Accuracy', 'ClassificationPreprocessor', 'ImageClassifier', 'ImageDataset', 'classifier_teacher', 'timm_teacher',
]
