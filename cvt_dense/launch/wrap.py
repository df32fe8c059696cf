"""Wrap the model of a test, and its data, as the settings of the test ask for."""
from mmengine.registry import MODELS

from ..engine.data_sets import load_whole_images
from ..errors import UserError
from ..inference.slices import SlicedModel
from ..models.autocast import AutocastModel
from .built import Built


def wrap(built: Built) -> None:
    """Put the model of a test into its wrappers: slices or views, then mixed precision.

    Args:
        built: what the run consists of. Its data set reads whole images from then on, if they are sliced; of several
            that are joined, the first one's pipeline prepares the slices.

    Raises:
        UserError: the model cannot be wrapped so.
    """
    model, run = built.model, built.run
    if run.tta:
        if getattr(getattr(model, 'decode_head', None), 'out_channels', None) == 1:
            raise UserError('--tta: MMSegmentation would apply the sigmoid of decode_head.out_channels=1 twice. Test '
                            'without --tta, or train two classes with softmax (without out_channels).')
        model = MODELS.build(dict(built.cfg.tta_model, module=model))
    if run.slice is not None:
        if getattr(model, 'task', None) == 'classification':
            raise UserError(f'--slice {run.slice}: slices are for detectors and segmentors; {run.config} has a '
                            f'{type(model).__name__}.')
        steps = load_whole_images(built.loaders['test'].dataset)
        model = SlicedModel(model, run.slice, run.overlap, steps)
    built.model = AutocastModel(model, run.amp) if run.amp else model
