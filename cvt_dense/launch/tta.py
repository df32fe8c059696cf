"""Test-time augmentation of a config, ``tta_model`` and ``tta_pipeline``."""
from typing import Any

from mmengine.config import Config
from mmengine.logging import print_log

from ..errors import UserError
from ..nodes import dicts


def use_tta(cfg: Config) -> None:
    """Let the test data set load every view of the config's ``tta_pipeline``.

    Raises:
        UserError: the config has no test-time augmentation.
    """
    if not cfg.get('tta_model') or not cfg.get('tta_pipeline'):
        raise UserError(f'--tta: {cfg.filename!r} sets no tta_model and tta_pipeline, which define how the '
                        'predictions for several sizes and mirror images are put together.')
    dataset = cfg.test_dataloader.dataset
    while 'dataset' in dataset:
        dataset = dataset.dataset
    follow_test_size(cfg.tta_pipeline, dataset.pipeline)
    dataset.pipeline = cfg.tta_pipeline


def follow_test_size(tta_pipeline: list[dict[str, Any]], test_pipeline: list[dict[str, Any]]) -> None:
    """Scale the sizes of a test-time augmentation so that the middle one is the test's size.

    A ``tta_pipeline`` with the test's size among its sizes stays as it is. Otherwise it was written for another test
    size: the lower middle one of its sizes, which our recipes, MMDetection's and MMSegmentation's have there. The
    log names the sizes.
    """
    size = next((_scale(node) for node in dicts(test_pipeline) if _scale(node)), None)
    views = [node for node in dicts(tta_pipeline) if _scale(node)]
    if size is None or not views:
        print_log('--tta: the sizes of tta_pipeline stay as they are, because it or the test pipeline has no fixed '
                  'size.', logger='current')
        return
    sizes = sorted((_scale(node) for node in views), key=min)
    if size not in sizes:
        base = min(sizes[(len(sizes) - 1) // 2])
        for node in views:
            ratio = min(_scale(node)) / base
            node['scale'] = tuple(round(side * ratio) for side in size)
    print_log(f'--tta: images are tested at {[_scale(node) for node in views]}; the test pipeline has {size}.',
              logger='current')


def _scale(transform: dict[str, Any]) -> tuple[int, int] | None:
    """Return the one size that a transform resizes to; None if it has none or several."""
    scale = transform.get('scale')
    if isinstance(scale, int):
        return scale, scale
    fixed = isinstance(scale, (list, tuple)) and len(scale) == 2 and all(isinstance(side, int) for side in scale)
    return tuple(scale) if fixed else None
