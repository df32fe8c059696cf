"""MMDetection's and MMSegmentation's own configs pass the checks that need no data.

The test checks one in fifteen.
"""
import importlib.util
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.registry import init_default_scope

from cvt_dense.errors import UserError
from cvt_dense.launch.checks.config import check_heads, data_sets_of
from cvt_dense.nodes import type_name

# The data sets whose classes are those of their heads in every stock config.
DATA_SETS = ('CocoDataset', 'CocoPanopticDataset', 'ADE20KDataset', 'ADE20KPanopticDataset', 'CityscapesDataset')


@pytest.mark.parametrize('package', ['mmdet', 'mmseg'])
def test_stock_configs_pass(package):
    refused, checked = [], 0
    folder = Path(importlib.util.find_spec(package).origin).parent / '.mim/configs'
    for path in [path for path in sorted(folder.rglob('*.py')) if '_base_' not in path.parts][::15]:
        try:
            cfg = Config.fromfile(path, import_custom_modules=False)
        except Exception:  # some inherit files that are not there
            continue
        if not cfg.get('model') or not cfg.get('train_dataloader'):
            continue
        init_default_scope(cfg.get('default_scope') or package)
        checked += 1
        stages = [stage for stage in ('train', 'val') if all(
            type_name(leaf) in DATA_SETS for _, leaf in data_sets_of(cfg, [stage]))]
        try:
            check_heads(cfg, stages)
        except UserError as error:
            refused.append(f'{path}: {error}')
    assert checked > 40 and not refused, '\n'.join(refused)
