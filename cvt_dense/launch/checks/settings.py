"""Check a config before anything is built.

This module imports no PyTorch, so that a missing folder is reported at once.
"""
import os
import re
from collections.abc import Sequence
from pathlib import Path

from mmengine.config import Config

from ...config.read import VARIABLE, read_names
from ...config.walk import datasets_of, dicts, is_remote
from ...errors import UserError

ASSIGNED = re.compile(r'^(\w+(?:, *\w+)*) = ', re.M)  # the names of a line of a config file


def check_paths(cfg: Config, stages: Sequence[str]) -> None:
    """Check that the folders and files of the data sets exist, unless they are not on the file system.

    Args:
        cfg: the whole config, with all settings of the run.
        stages: the data loaders that the run uses, of 'train', 'val' and 'test'.

    Raises:
        UserError: a file or folder is missing, or ``ann_file`` is a list.
    """
    for stage in stages:
        for dataset in datasets_of(cfg, stage):
            if not isinstance(dataset.get('ann_file') or '', str):
                raise UserError(f'{stage}_dataloader: ann_file={dataset["ann_file"]!r} is no path; join several files '
                                "with dataset=dict(type='ConcatDataset', datasets=[...]).")
            root, prefixes = dataset.get('data_root') or '', (dataset.get('data_prefix') or {}).values()
            paths = [os.path.join(root, path) for path in ('', *prefixes, dataset.get('ann_file'))
                     if isinstance(path, str) and os.path.join(root, path)]
            missing = [path for path in paths if not os.path.exists(path)]
            if missing and not any(map(is_remote, dicts(dataset))):
                raise UserError(f'{stage}_dataloader: {missing[0]!r} does not exist. Correct data_root, data_prefix or '
                                'ann_file, or give --data-root DIR.')


def check_variables(cfg: Config) -> None:
    """Check that a file sets no variable from which the one that it inherits has computed other settings already.

    Raises:
        UserError: it assigns such a variable, and does not use it itself.
    """
    own = Path(cfg.filename).read_text('utf-8') if str(cfg.filename).endswith('.py') else ''
    others = cfg.text.removesuffix(own)
    assigned, inherited = ({name for names in ASSIGNED.findall(text) for name in re.split(', *', names)}
                           for text in (own, others))
    for name in sorted(assigned & inherited - {'_base_', *read_names()}):
        line = re.search(rf'^{name} = .*(?<![\[({{,])$', own, re.M)
        repeated = line and line[0] in others.splitlines()
        if not repeated and len(re.findall(rf'\b{name}\b', own)) == 1:
            raise UserError(f'{cfg.filename}: the line {name!r} changes nothing, since it is {VARIABLE}.')
