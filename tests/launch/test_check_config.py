"""Checks of a config, and the length of a training, which moves its schedule where a file is edited."""
import re
import shutil

import pytest
from mmengine.config import Config
from templates_edited import ROOT, recipe

from cvt_dense.errors import UserError
from cvt_dense.launch.checks.config import check_heads

RECIPES = sorted(path.stem for path in (ROOT / 'configs').glob('*.py'))
TEMPLATES = [name for name in RECIPES if name.endswith(('_custom', '_multichannel'))]


def test_a_length_edited_in_the_file_moves_the_schedule(tmp_path):
    """Only the lines that set a length are edited, in the recipes and the files that they inherit from."""
    configs = shutil.copytree(ROOT / 'configs', tmp_path / 'configs')
    for path in configs.rglob('*.py'):
        path.write_text(re.sub(r'^(max_epochs|max_iters) = (\d+)\b', lambda match: f'{match[1]} = {2 * int(match[2])}',
                               path.read_text(), flags=re.M))
    for name in set(RECIPES) - set(TEMPLATES):
        before, cfg = recipe(name), Config.fromfile(configs / f'{name}.py')
        key = 'max_epochs' if 'max_epochs' in cfg.train_cfg else 'max_iters'
        assert cfg.train_cfg[key] == 2 * before.train_cfg[key] == cfg.param_scheduler[-1].end, name


def test_the_last_of_several_decode_heads_predicts_the_classes_of_the_data():
    dataset = dict(type='BaseSegDataset', metainfo=dict(classes=('background', 'road')))
    heads = [dict(num_classes=9), dict(num_classes=2)]
    cfg = Config(dict(default_scope='mmseg', model=dict(decode_head=heads), train_dataloader=dict(dataset=dataset)))
    check_heads(cfg, ['train'])
    cfg.model.decode_head[1].num_classes = 9
    with pytest.raises(UserError, match='decode_head.1'):
        check_heads(cfg, ['train'])
