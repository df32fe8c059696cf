"""The commands of three pages for newcomers, run in order as they are written there."""
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import supervision as sv
from load_tool import ROOT, run_tool
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import DefaultScope
from PIL import Image

from cvt_dense.cli.random_batch import random_batch
from cvt_dense.launch.checks.config import CONFIG_CHECKS
from cvt_dense.recipes.shapes import CLASSES
from cvt_dense.registry import MODELS


class Checkout:
    """A folder with the project's recipes and tools, in which commands of a page run.

    Args:
        folder: the folder, which is made.
    """

    def __init__(self, folder: Path):
        self.folder, self.best, self.lines = folder, '', {}
        folder.mkdir()
        for name in ('configs', 'tools'):
            (folder / name).symlink_to(ROOT / name)

    def bash(self, line: str) -> str:
        return subprocess.run(['bash', '-c', line], cwd=self.folder, env={'BEST': self.best}, text=True, check=True,
                              stdout=subprocess.PIPE).stdout

    def run(self, page: str, only: str = '') -> list[str]:
        """Run the commands of a page that have the text ``only``; return what each tool printed.

        After a template is copied, ``lines`` are written into its head, as the page says.
        """
        blocks = re.findall(r'^```bash\n(.*?)^```', (ROOT / page).read_text(), re.M | re.S)
        printed = []
        for line in '\n'.join(blocks).replace('\\\n', ' ').splitlines():
            if not line or only not in line:
                continue
            if line.startswith('python '):
                tool, *args = self.bash(f"printf '%s\\n' {line.removeprefix('python ')}").splitlines()
                printed.append(run_tool(Path(tool).stem, *args, cwd=self.folder))
            elif line.startswith('BEST='):
                self.best = self.bash(f'{line}; echo $BEST').strip()
            else:
                self.bash(line)
                copy, = re.findall(r'^cp \S+ (\S+)', line)
                self.edit(self.folder / copy)
        return printed

    def edit(self, config: Path) -> None:
        text = config.read_text()
        for name, value in self.lines.items():
            text, found = re.subn(rf'^{name} = .*$', lambda _: f'{name} = {value}', text, flags=re.M)
            assert found == 1, name
        loaders = ''.join(f"{part}_dataloader['num_workers'] = " for part in ('train', 'val', 'test'))
        config.write_text(f'{text}\n{loaders}0\n')  # starting processes takes most of the time of so short runs


def test_ten_minutes_with_photographs(shapes, tmp_path):
    checkout = Checkout(tmp_path / 'checkout')
    shutil.copytree(shapes / 'classification', checkout.folder / 'photos')
    page = 'docs/get_started/own_photographs.md'
    given = re.findall(r"^(data_root|arch) = ('[\w-]+')", (ROOT / page).read_text(), re.M)
    checkout.lines = dict(given, max_iters=4, batch_size=4)
    train, plot, test, predict, diagnose = checkout.run(page)
    run = checkout.folder / 'work_dirs/mine'
    for command in ('plot.py', 'test.py', 'predict.py', 'diagnose.py'):  # with the path of the checkpoint
        assert f'{command} work_dirs/mine' in train
    assert 'accuracy/top1' in test and checkout.best.startswith('work_dirs/mine/best_')
    assert (run / 'curves.png').exists() and 'curves.png' in plot
    assert min(Image.open(checkout.folder / 'predictions/overview.png').size) > 100
    assert (checkout.folder / 'report/report.html').stat().st_size and 'report.html' in diagnose
    assert predict.count('.png') >= len(CLASSES)


def test_a_detector_from_annotations_in_another_format(shapes, tmp_path):
    checkout = Checkout(tmp_path / 'checkout')
    source = checkout.folder / 'my_yolo'
    sv.DetectionDataset.from_coco(
        str(shapes / 'detection/train'), str(shapes / 'detection/annotations/instances_train.json')).as_yolo(
        str(source / 'images'), str(source / 'labels'), str(source / 'data.yaml'))
    for i in range(8, 12):  # enough for three parts
        for path in (source / f'images/{i % 8:05}.png', source / f'labels/{i % 8:05}.txt'):
            shutil.copy(path, path.with_stem(f'{i:05}'))
    converted, = checkout.run('docs/guides/converting.md', 'my_yolo')
    checkout.lines = dict(re.findall(r'^ *(classes|data_root|train_ann, train_images|val_ann, val_images) = (.*)$',
                                     converted, re.M))
    assert len(checkout.lines) >= 3, 'the lines for the top of the template'
    checkout.lines |= dict(arch="'cvt-nano'", image_size=64, batch_size=2, max_iters=2)
    browse, train, test, predict, diagnose = checkout.run('docs/guides/own_data.md')
    assert 'report.html' in browse and (checkout.folder / 'browse/report.html').stat().st_size
    assert 'coco/bbox_mAP' in test and 'coco/bbox_mAP' in train
    assert list((checkout.folder / 'predictions').glob('*.png')) and predict
    assert (checkout.folder / 'report/report.html').stat().st_size and 'report.html' in diagnose


@pytest.mark.parametrize('document, heading, scope', [
    ('README.md', 'In your own mm-config', 'mmdet'), ('docs/guides/mm_config.md', 'RetinaNet', 'mmdet'),
    ('docs/guides/mm_config.md', 'UperNet', 'mmseg')])
def test_mm_configs_train_all_of_their_parameters(tmp_path, document, heading, scope):
    """A parameter without a gradient would end a training in several processes."""
    section = (ROOT / document).read_text().split(f'## {heading}\n')[1]
    (tmp_path / 'config.py').write_text(re.search(r'```python\n(.*?)```', section, re.S)[1])
    cfg = Config.fromfile(tmp_path / 'config.py')
    assert cfg.param_scheduler[-1].get('eta_min', 0) == 0
    cfg.model.backbone.init_cfg = None
    with DefaultScope.overwrite_default_scope(scope):
        model = revert_sync_batchnorm(MODELS.build(cfg.model))
        losses, _ = model.parse_losses(model(**random_batch(model, 2, (64, 64)), mode='loss'))
    losses.backward()
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert not [name for name, parameter in trained.items() if parameter.grad is None]


def test_an_attention_type_a_hook_and_a_check_of_ones_own(tmp_path, shapes, monkeypatch):
    """The three blocks of the page: the file, the config, and the list of checks."""
    module, config, register = re.findall(
        r'```python\n(.*?)```', (ROOT / 'docs/guides/extending.md').read_text(), re.S)
    (tmp_path / 'my_extensions.py').write_text(module)
    (tmp_path / 'config.py').write_text(config)
    monkeypatch.syspath_prepend(tmp_path)
    kept = [*CONFIG_CHECKS]
    args = ['train', tmp_path / 'config.py', '--data-root', shapes / 'classification', '--work-dir', tmp_path / 'run',
            '--cfg-options', 'train_dataloader.batch_size=8', 'train_cfg.max_epochs=1', 'model.backbone.init_cfg=None',
            'param_scheduler=[]']
    try:
        exec(register)
        run_tool(*args)
        assert '32 images seen' in next((tmp_path / 'run').glob('2*/*.log')).read_text()
        assert 'train_cfg.max_epochs=1001' in run_tool(
            *args, 'train_cfg.max_epochs=1001', '--work-dir', tmp_path / 'other', rc=2)
    finally:
        CONFIG_CHECKS[:] = kept
