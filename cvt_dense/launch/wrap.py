"""Wrap the model of a test, and its data and metrics, as the settings of the test ask for."""
import os
from pathlib import Path
from typing import Any

from mmcv.transforms import LoadAnnotations
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from mmengine.runner import Runner
from torch.utils.data import DataLoader

from ..engine import SaveLabelMapsHook
from ..engine.samplers import leaves, transforms_of
from ..errors import UserError
from ..inference.slices import SlicedModel
from ..models.autocast import AutocastModel
from ..models.task import task_of
from ..scopes import is_coco_metric, is_iou_metric, kinds
from .runs import TestRun


def wrap(model: BaseModel, cfg: Config, run: TestRun, loader: DataLoader) -> BaseModel:
    """Return the model of a test inside its wrappers: slices or views, then mixed precision.

    Args:
        model: the model with its weights.
        cfg: the config as it runs here.
        run: settings of the test.
        loader: reads whole images from then on, if they are sliced. Of several test data sets that are joined, the
            first one's pipeline prepares the slices.

    Raises:
        UserError: the model cannot be wrapped so.
    """
    if run.tta:
        if getattr(getattr(model, 'decode_head', None), 'out_channels', None) == 1:
            raise UserError('--tta: MMSegmentation would apply the sigmoid of decode_head.out_channels=1 twice. Test '
                            'without --tta, or train two classes with softmax (without out_channels).')
        model = MODELS.build(dict(cfg.tta_model, module=model))
    if run.slice is not None:
        if task_of(model) not in ('detection', 'segmentation'):
            raise UserError(f'--slice {run.slice}: slices are for detectors and segmentors; {cfg.filename} has a '
                            f'{type(model).__name__}.')
        model = SlicedModel(model, run.slice, run.overlap, slice_pipelines(loader.dataset))
    return AutocastModel(model, run.amp) if run.amp else model


def slice_pipelines(dataset: Any) -> list[Any]:
    """Let a data set load whole images, and return the transforms of a slice."""
    steps = [step for step in transforms_of(leaves(dataset)[0])[1:] if not isinstance(step, LoadAnnotations)]
    for leaf in leaves(dataset):
        first, *others = transforms_of(leaf)
        leaf.pipeline.transforms = [
            first, *(step for step in others if isinstance(step, (LoadAnnotations, *kinds('PACKING'))))]
    return steps


def save_predictions(runner: Runner, folder: str | Path) -> None:
    """Let the metrics of a test save predictions in ``folder``: COCO JSON (detection), label maps (segmentation).

    Raises:
        UserError: none of the metrics can.
    """
    metrics = runner.test_loop.evaluator.metrics
    for metric in metrics:
        if is_coco_metric(type(metric)):
            metric.outfile_prefix = os.path.join(folder, 'predictions')
        elif is_iou_metric(type(metric)):  # whose own files have no folders
            runner.register_hook(SaveLabelMapsHook(str(folder)))
    if not any(is_coco_metric(type(metric)) or is_iou_metric(type(metric)) for metric in metrics):
        names = [type(metric).__name__ for metric in metrics]
        raise UserError(f'--out {str(folder)!r}: none of the metrics {names} can save predictions; CocoMetric and '
                        'IoUMetric can.')
