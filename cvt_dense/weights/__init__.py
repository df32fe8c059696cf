"""Weight files: their names and formats, reading them safely, and loading them strictly."""
from ..errors import CheckpointError
from .class_names import dataset_meta
from .compare import Comparison, compare, compare_cvt
from .files import HUB_FILES, load_weights_file, read_checkpoint, register_safe_loading, select_weights
from .formats import FORMATS, StateDict, convert, recognise
from .preprocessing import Normalisation
from .strict_loading import StrictLoading, check_model

__all__ = [
    'FORMATS', 'HUB_FILES', 'CheckpointError', 'Comparison', 'Normalisation', 'StateDict', 'StrictLoading',
    'check_model', 'compare', 'compare_cvt', 'convert', 'dataset_meta', 'load_weights_file',
    'read_checkpoint', 'recognise', 'register_safe_loading', 'select_weights'
]
