from .accuracy import Accuracy
from .classifier import ImageClassifier
from .image_dataset import ImageDataset
from .preprocessor import ClassificationPreprocessor

__all__ = ['Accuracy', 'ClassificationPreprocessor', 'ImageClassifier', 'ImageDataset']
