"""MMEngine and MMDetection without transformers, where nothing needs it."""
import sys
from typing import Any

from mmengine.config import Config

from ..nodes import dicts, type_name

# What needs the package; MMEngine and MMDetection import it for these alone, at once.
TYPES = {'ATSSVLFusionHead', 'Adafactor', 'BertModel', 'RandomSamplingNegPos'}


def leave_out_transformers(cfg: Config) -> None:
    """Makes MMEngine and MMDetection do without transformers, as where it is not installed, if ``cfg`` can.

    They import it, which takes longer than PyTorch, for one optimizer and for language models. Others that import it
    get it as always.
    """
    needed = any(type_name(node) in TYPES for node in dicts(cfg.to_dict()))
    if needed == (_NoTransformers in sys.meta_path):
        sys.meta_path.remove(_NoTransformers) if needed else sys.meta_path.insert(0, _NoTransformers)


class _NoTransformers:

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name != 'transformers':
            return
        frame = sys._getframe(1)
        while frame.f_globals['__name__'].startswith('importlib.'):
            frame = frame.f_back
        if frame.f_globals['__name__'].partition('.')[0] in ('mmengine', 'mmdet'):
            raise ModuleNotFoundError('left out: this config names nothing that needs it', name=name)
