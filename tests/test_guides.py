"""The commands of pages for newcomers, run in order, and the Python blocks of all pages, as they are written there."""
import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import supervision as sv
import torch
from load_tool import ROOT, run_tool
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import DefaultScope
from PIL import Image
from random_batch import random_batch
from random_weights import randomise, save_untrained
from skimage import data
from templates_edited import WITHOUT_WORKERS, write_detector, write_template

from cvt_dense.annotations.data_sets import check_annotations
from cvt_dense.launch.checks.built import CHECKS
from cvt_dense.pretraining import ImageClassifier
from cvt_dense.registry import MODELS
from cvt_dense.shapes import CLASSES

pytestmark = pytest.mark.slow


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
                for copy in re.findall(r'^cp ([^-]\S* )(\S+)', line):
                    self.edit(self.folder / copy[1])
        return printed

    def edit(self, config: Path) -> None:
        text = config.read_text()
        for name, value in self.lines.items():
            text, replaced = re.subn(rf'^{name} = .*$', lambda _: f'{name} = {value}', text, flags=re.M)
            assert replaced == 1, name
        config.write_text(text + WITHOUT_WORKERS)  # starting them takes most of the time of so short runs


def test_ten_minutes_with_photographs(shapes, tmp_path):
    checkout = Checkout(tmp_path / 'checkout')
    shutil.copytree(shapes / 'classification', checkout.folder / 'photos')
    page = 'docs/get_started/own_photographs.md'
    lines = re.findall(r"^(data_root|arch) = ('[\w-]+')", (ROOT / page).read_text(), re.M)
    checkout.lines = dict(lines, max_iters=4, batch_size=4)
    train, test, predict, diagnose = checkout.run(page)
    for command in ('test.py', 'predict.py', 'diagnose.py'):  # with the path of the checkpoint
        assert f'{command} work_dirs/mine' in train
    assert 'accuracy/top1' in test and checkout.best.startswith('work_dirs/mine/best_')
    assert (checkout.folder / 'report/report.html').stat().st_size and 'report.html' in diagnose
    assert min(Image.open(checkout.folder / 'predictions/overview.png').size) > 100


def test_a_detector_from_annotations_in_another_format(shapes, tmp_path):
    checkout = Checkout(tmp_path / 'checkout')
    source = checkout.folder / 'my_yolo'
    sv.DetectionDataset.from_coco(
        str(shapes / 'detection/train'), str(shapes / 'detection/annotations/instances_train.json')).as_yolo(
        str(source / 'images'), str(source / 'labels'), str(source / 'data.yaml'))
    names = source / 'data.yaml'  # the published detector knows persons, and without a detection there is no score
    names.write_text(names.read_text().replace(CLASSES[0], 'person'))
    for i in range(8, 12):  # enough for three parts; equal files would be in one
        Image.open(source / f'images/{i % 8:05}.png').rotate(180).save(source / f'images/{i:05}.png')
        shutil.copy(source / f'labels/{i % 8:05}.txt', source / f'labels/{i:05}.txt')
    converted, = checkout.run('docs/guides/converting.md', 'my_yolo')
    checkout.lines = dict(re.findall(r'^ *(classes|data_root) = (.*)$', converted, re.M))
    assert len(checkout.lines) == 2, 'the lines for the top of the template'
    checkout.lines |= dict(arch="'cvt-nano'", image_size=64, batch_size=2, max_iters=2)
    train, test, predict, diagnose = checkout.run('docs/guides/own_data.md', 'mine')
    assert 'coco/bbox_mAP' in test and 'coco/bbox_mAP' in train
    assert list((checkout.folder / 'predictions').glob('*.png')) and predict
    best = max(map(float, re.findall(r'coco/bbox_mAP: ([\d.]+)', train)))  # of the checkpoint that is diagnosed
    assert f'AP is {100 * best:.1f} %' in diagnose and (checkout.folder / 'report/report.html').stat().st_size


def test_coins_of_one_photograph_become_a_data_set(tmp_path, monkeypatch):
    monkeypatch.setattr('sys.argv', ['coins.py', str(tmp_path)])
    runpy.run_path(ROOT / 'docs/examples/coins.py', run_name='__main__')
    content = {name: json.loads((tmp_path / f'annotations/{name}.json').read_text()) for name in ('train', 'val')}
    assert len(content['train']['images']) == 80 and len(content['val']['annotations']) > 10
    assert any(entry['iscrowd'] for entry in content['val']['annotations'])
    check_annotations(Config({'default_scope': 'mmdet'} | {f'{name}_dataloader': dict(dataset=dict(
        type='CocoDataset', data_root=str(tmp_path), ann_file=f'annotations/{name}.json', data_prefix=dict(img=name),
        metainfo=dict(classes=('coin', )))) for name in content}), [*content])


def test_the_page_of_a_program(shapes, tmp_path, monkeypatch):
    """Its blocks run in one process."""
    monkeypatch.chdir(tmp_path)
    # Images of the file's size: the boxes in the padding of smaller ones have equal scores, which no runtime orders.
    config = write_detector(tmp_path, shapes, 'gfl_cvt13_custom', pretrained=None, image_size=320).rename('mine.py')
    config.write_text(config.read_text() + (
        'load_from = "random.pth"\nmodel["neck"]["in_channels"] = [16, 16]\nmodel["bbox_head"]["stacked_convs"] = 1\n'
        'model["test_cfg"] = dict(nms_pre=40)\nmodel["backbone"].update(attn_cfg=None, '
        'arch=dict(embed_dims=(8, 16, 16), depths=(1, 1, 1), num_heads=(1, 2, 2)))\n'))
    with DefaultScope.overwrite_default_scope('mmdet'):  # with weights that detect something
        torch.save(randomise(MODELS.build(Config.fromfile('mine.py').model)).state_dict(), 'random.pth')
    for name in ('photo.jpg', 'a.jpg', 'b.jpg', 'large.tif'):
        Image.fromarray(data.astronaut()[:96, :128]).save(name)
    exec(compile(''.join(blocks('docs/guides/python.md')), 'python.md', 'exec'), names := {})
    assert names['scores']['coco/bbox_mAP'] >= 0 and names['picture'].shape == (96, 128, 3)


MM_CONFIGS = 'docs/guides/mm_config.md'


def blocks(page: str) -> list[str]:
    return re.findall(r'^```python\n(.*?)^```', (ROOT / page).read_text(), re.M | re.S)


@pytest.mark.parametrize('number', range(len(blocks(MM_CONFIGS))))
def test_mm_configs_train_all_of_their_parameters(tmp_path, number):
    """A parameter without a gradient would end a training in several processes."""
    block = blocks(MM_CONFIGS)[number]
    scope = re.search('mmseg|$', block)[0] or 'mmdet'
    (tmp_path / 'config.py').write_text(block)
    cfg = Config.fromfile(tmp_path / 'config.py')
    cfg.model.backbone.init_cfg = None
    with DefaultScope.overwrite_default_scope(scope):
        model = revert_sync_batchnorm(MODELS.build(cfg.model))
        batch = random_batch(model, 2, (64, 64))
        if type(model).__name__ == 'RTMDet':
            for sample in batch['data_samples']:
                del sample.gt_instances.masks  # its assigner would take them as tensors
        losses, _ = model.parse_losses(model(**batch, mode='loss'))
    losses.backward()
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert not [name for name, parameter in trained.items() if parameter.grad is None]


def test_own_classes_train_predict_and_publish(tmp_path, shapes, monkeypatch):
    """The files of the page lie in a folder of the user: the classes, the config, and the program."""
    shutil.copytree(ROOT / 'docs/examples/extending', tmp_path, dirs_exist_ok=True)
    for path in (shapes / 'classification').glob('*/*/*.png'):
        split = tmp_path / 'data' / path.parts[-3]
        split.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, split / f'{path.parent.name}_{path.name}')
    monkeypatch.syspath_prepend(tmp_path)  # as PYTHONPATH=. does, and Python for the folder of a program
    args = ['my_config.py', '--data-root', 'data', '--work-dir', 'run', '--cfg-options',
            'train_dataloader.batch_size=8', 'model.backbone.init_cfg=None', 'param_scheduler=[]',
            'train_dataloader.num_workers=0', 'val_dataloader.num_workers=0']
    run_tool('train', *args, 'train_cfg.max_epochs=1', cwd=tmp_path)
    checkpoint = torch.load(tmp_path / 'run/epoch_1.pth', weights_only=False)
    assert '32 images seen' in next((tmp_path / 'run').glob('2*/*.log')).read_text()
    assert {'head.0.weight', 'head.2.weight'} <= set(checkpoint['state_dict']) and 'ema_state_dict' in checkpoint
    assert set(checkpoint['meta']['dataset_meta']['classes']) == set(CLASSES)
    trained = 'my_config.py', 'run/epoch_1.pth'  # a subclass of ImageClassifier
    image = next((tmp_path / 'data/val').glob('*.png'))
    run_tool('publish', *trained, 'published', '--license', 'mit', '--no-test', '--data-root', 'data', cwd=tmp_path)
    for model in (trained, ['published']):
        output = run_tool('predict', *model, image, '--out-dir', f'predicted_by_{len(model)}', cwd=tmp_path)
        assert any(name in output for name in CLASSES) and list((tmp_path / f'predicted_by_{len(model)}').glob('*.png'))
    kept = [*CHECKS]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr('sys.argv', ['my_train.py', *args, 'train_cfg.max_epochs=1001'])
    with pytest.raises(SystemExit) as end:
        runpy.run_path('my_train.py', run_name='__main__')
    CHECKS[:] = kept
    assert end.value.code == 2


def small_detector(shapes: Path) -> None:
    """Write the config, checkpoint and images that the page names."""
    write_detector(Path(), shapes, 'fasterrcnn_cvt13_custom', pretrained=None).rename('mine.py')
    for name in ('photo.jpg', 'a.jpg', 'b.jpg', 'large.tif'):
        Image.new('RGB', (1100, 60) if name == 'large.tif' else (80, 60)).save(name)


def trained_detector(shapes: Path) -> None:
    small_detector(shapes)
    Path('work_dirs/mine').mkdir(parents=True)
    save_untrained(Path('mine.py'), Path('work_dirs/mine/iter_1000.pth'), CLASSES)


def detector_and_video(shapes: Path) -> None:
    trained_detector(shapes)
    with sv.VideoSink('clip.mp4', sv.VideoInfo(100, 80, 10.)) as video:
        for shade in (0, 100, 200):
            video.write_frame(torch.full((80, 100, 3), shade, dtype=torch.uint8).numpy())


def classifier(_: Path) -> dict:
    model = ImageClassifier(dict(type='cvt_dense.CvT', arch='cvt-13', out_type='cls_token'))
    return dict(network=model.eval(), data=dict(inputs=torch.zeros(1, 3, 224, 336, dtype=torch.uint8)))


def answers(_: Path) -> dict:
    Path('photos').mkdir()
    Image.fromarray(data.astronaut()).save('photos/a.jpg')
    return dict(detect=lambda path: (torch.tensor([[10, 20, 99, 99.]]).numpy(), torch.ones(1, dtype=int).numpy()))


def class_folders(shapes: Path) -> None:
    write_template(Path(), 'cvt13_custom', data_root=str(shapes / 'classification')).rename('mine.py')


BLOCKS = {'README.md': lambda _: Image.fromarray(data.astronaut()).save('photo.jpg'),
          'docs/guides/own_data.md': answers, 'docs/guides/finding_mistakes.md': class_folders,
          'docs/guides/large_images_and_video.md': detector_and_video, 'docs/guides/exporting.md': classifier,
          **dict.fromkeys(('docs/guides/choosing.md', 'docs/model_card_cvt_nano.md'), lambda _: None)}
# Pages whose blocks other tests run, or that need files which no test has.
ELSEWHERE = {MM_CONFIGS, 'docs/guides/python.md', 'docs/guides/publishing.md', 'docs/guides/converting.md',
             'docs/guides/other_libraries.md', 'docs/get_started/own_photographs.md'}


def test_blocks_of_every_page_are_run():
    pages = {str(page.relative_to(ROOT)) for page in [ROOT / 'README.md', *(ROOT / 'docs').rglob('*.md')]
             if page.parent.name not in ('_build', 'generated')}
    assert {page for page in pages if blocks(page)} == {*BLOCKS, *ELSEWHERE}


@pytest.mark.parametrize('page', BLOCKS)
def test_blocks_run(page, shapes, tmp_path, monkeypatch):
    """A block may need what the page says before it, such as a trained model; a backbone is built."""
    monkeypatch.chdir(tmp_path)
    names = BLOCKS[page](shapes) or {}
    for block in blocks(page):
        exec(compile(block, page, 'exec'), names)
        model = names.get('model')
        backbone = model.pop('backbone', None) if isinstance(model, dict) else names.pop('backbone', None)
        if backbone:
            backbone.pop('_delete_', None)
            pretrained = backbone.get('init_cfg', {}).get('checkpoint', '').startswith('cvt_dense://')
            MODELS.build(backbone if pretrained else dict(backbone, init_cfg=None)).init_weights()
    assert page != 'README.md' or Path('boxes.jpg').exists()


def test_a_search_trains_in_one_process(shapes, tmp_path, monkeypatch):
    """Of Optuna, which is not a dependency, only what the example calls."""
    study = mock.Mock()
    optuna = SimpleNamespace(create_study=lambda **_: study, TrialPruned=InterruptedError)
    monkeypatch.setitem(sys.modules, 'optuna', optuna)
    monkeypatch.chdir(tmp_path)
    template = write_template(tmp_path, 'cvt13_custom', arch='cvt-nano', image_size=32, batch_size=4, max_iters=4)
    template.rename('mine.py')
    for fold in ('fold0', 'fold1'):
        shutil.copytree(shapes / 'classification', f'data/{fold}')
    runpy.run_path(ROOT / 'docs/examples/search.py')
    objective = study.optimize.call_args.args[0]
    whole, bad = (mock.Mock(number=i, **{'suggest_float.return_value': 0.1, 'should_prune.return_value': bool(i)})
                  for i in range(2))
    assert 0 <= objective(whole) <= 100 and whole.report.call_count >= 2
    with pytest.raises(InterruptedError):
        objective(bad)
    assert bad.report.call_count == 1
