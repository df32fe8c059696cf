from .accuracy import Accuracy

__all__ = ['Accuracy']
