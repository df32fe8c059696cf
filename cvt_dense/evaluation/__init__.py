from .accuracy import Accuracy
from .robustness import RobustnessTestLoop

__all__ = ['Accuracy', 'RobustnessTestLoop']
