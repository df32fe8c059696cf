"""MMEngine's ``CheckpointLoader`` for CvT's files and models; importing this module changes it.

Whether a file gets our reading (:mod:`.files`: any format, no code) depends on what is loaded into what:

- a model with a module of ours in it loads the file (``load_checkpoint``, ``load_from``, ``resume``,
  ``init_detector``...): ours, whatever the file is;
- names of CvT's tensors stand in the file: ours, too (a model that is not ours gets its names unchanged);
- every other file goes MMEngine's own way, as if this package were not there.

``init_cfg`` of our modules and our tools do not ask: they call :func:`.files.load_weights_file` themselves.
"""
import sys
from collections.abc import Callable, Sequence
from typing import Any

from mmengine.runner import CheckpointLoader
from mmengine.runner import checkpoint as mmengine_checkpoint
from torch import nn

from .files import BUCKETS, holds_cvt, load_weights_file, local_file
from .strict_loading import StrictLoading


def _loads_ours() -> bool | None:
    """Whether MMEngine loads for a model with a module of ours; None if it only reads a file.

    A scheme's loader is told the file alone, so the model is looked up among the callers:
    ``load_checkpoint(model, ...)``, ``Runner.load_checkpoint``, and inferencers, which read before they build.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get('__name__', '').startswith('mmengine.'):
            values = frame.f_locals
            if frame.f_code.co_name == 'load_checkpoint':
                model = values.get('model', getattr(values.get('self'), 'model', None))
                if isinstance(model, nn.Module):
                    return any(isinstance(module, StrictLoading) for module in model.modules())
            if frame.f_code.co_name == '_init_model' and 'cvt_dense.' in str(values.get('cfg')):
                return True
        frame = frame.f_back
    return None


def _register(prefixes: str | Sequence[str], own_way: Callable) -> None:

    def load(filename: str, map_location: Any = None) -> dict[str, Any]:
        ours = _loads_ours()
        if not ours:
            try:
                with local_file(filename) as path:
                    is_cvt = holds_cvt(path)
            except (OSError, ValueError, ImportError):  # MMEngine's own way says it in MMEngine's words
                is_cvt = False
            if not is_cvt:
                return own_way(filename, map_location)
        return load_weights_file(filename, map_location, rename=ours is not False)

    load.__name__ = own_way.__name__  # MMEngine logs its end
    CheckpointLoader.register_scheme(prefixes, load, force=True)


def load_from_hub(filename: str, map_location: Any = None) -> dict[str, Any]:
    """``hf://OWNER/REPOSITORY[/FILE][@REVISION]``, a scheme that MMEngine does not have."""
    return load_weights_file(filename, map_location, rename=_loads_ours() is not False)


_register('', mmengine_checkpoint.load_from_local)
_register(('http://', 'https://'), mmengine_checkpoint.load_from_http)
_register(BUCKETS, mmengine_checkpoint.load_from_ceph)
_register(('modelzoo://', 'torchvision://'), mmengine_checkpoint.load_from_torchvision)
_register(('open-mmlab://', 'openmmlab://'), mmengine_checkpoint.load_from_openmmlab)
_register('mmcls://', mmengine_checkpoint.load_from_mmcls)
_register('pavi://', mmengine_checkpoint.load_from_pavi)
CheckpointLoader.register_scheme('hf://', load_from_hub, force=True)
