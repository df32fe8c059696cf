"""Read the COCO files of a config before its data sets are built, and let data sets and evaluators use that content."""
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from mmengine.config import Config
from mmengine.logging import print_log

from ..annotations.coco import CROWD, Annotations, read
from ..config.data_sets import metainfo
from ..errors import UserError
from ..fileio import write_atomically
from ..nodes import dicts, type_name, walk


def nodes_of(cfg: Config, setting: str, types: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the config of each part of a setting that reads a local file and has one of ``types``."""
    for path, node in walk(cfg.get(setting), setting):
        if type_name(node) in types and node.get('ann_file') and not node.get('backend_args'):
            yield path, node


def read_annotations(cfg: Config, stage: str) -> dict[str, Annotations]:
    """Read the COCO files of a stage: each once, as its classes and its pipeline need it.

    Args:
        cfg: whole config.
        stage: 'train', 'val' or 'test'.

    Returns:
        The content by the path of the data set or the evaluator that reads it, as ``--cfg-options`` writes it.

    Raises:
        UserError: a file cannot be read, or has other categories than the data set's classes.
    """
    found: dict[str, Annotations] = {}
    cache: dict[tuple, Annotations] = {}
    evaluators = dict(nodes_of(cfg, f'{stage}_evaluator', ('CocoMetric', 'FasterCocoMetric')))
    scores_masks = any('segm' in node.get('metric', ()) for node in evaluators.values())

    def open_once(path: str, file: str, *settings: Any) -> None:
        key = os.path.realpath(file), *settings
        try:
            if key not in cache:
                cache[key] = read(file, settings[0])
                cache[key].use_classes(*settings[1:])
        except (OSError, ValueError) as error:
            raise UserError(f'{path}.ann_file: {error}') from error
        found[path] = cache[key]

    settings: dict[str, tuple] = {}
    for path, node in nodes_of(cfg, f'{stage}_dataloader', ('CocoDataset', )):
        root, prefix = node.get('data_root') or '', (node.get('data_prefix') or {}).get('img', '')
        masks = scores_masks or any(step.get('with_mask') for step in dicts(node.get('pipeline')))
        file = os.path.join(root, node['ann_file'])
        settings[os.path.realpath(file)] = last = (
            os.path.join(root, prefix), tuple(metainfo(node, cfg, 'classes')), masks)
        open_once(path, file, *last)
    for path, node in evaluators.items() if settings else ():
        open_once(path, node['ann_file'], *settings.get(os.path.realpath(node['ann_file']), last))
    return found
