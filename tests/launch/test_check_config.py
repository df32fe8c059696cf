"""The length of a training, edited in a config file, moves its schedule."""
import re
import shutil

from mmengine.config import Config
from templates_edited import ROOT, recipe

RECIPES = sorted(path.stem for path in (ROOT / 'configs').glob('*.py'))
TEMPLATES = [name for name in RECIPES if name.endswith(('_custom', '_multichannel'))]


def test_a_length_edited_in_the_file_moves_the_schedule(tmp_path):
    """Only the lines that set a length are edited, in the recipes and the files that they inherit from."""
    configs = shutil.copytree(ROOT / 'configs', tmp_path / 'configs')
    for path in configs.rglob('*.py'):
        path.write_text(re.sub(r'^(max_epochs|max_iters) = (\d+)\b', lambda found: f'{found[1]} = {2 * int(found[2])}',
                               path.read_text(), flags=re.M))
    for name in set(RECIPES) - set(TEMPLATES):
        before, cfg = recipe(name), Config.fromfile(configs / f'{name}.py')
        key = 'max_epochs' if 'max_epochs' in cfg.train_cfg else 'max_iters'
        assert cfg.train_cfg[key] == 2 * before.train_cfg[key] == cfg.param_scheduler[-1].end, name
