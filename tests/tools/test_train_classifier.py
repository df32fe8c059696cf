"""tools/train.py and tools/test.py on classification, as users call them."""
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from load_tool import run_tool
from PIL import Image
from tiny_training import load

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
_base_ = {base!r}
tiny = dict(
    _delete_=True, embed_dims=(8, 24, 48), depths=(1, 1, 2), num_heads=(1, 3, 6),
    drop_path_rates=(0., 0., 0.3))
model = dict(backbone=dict(arch=tiny), num_classes=4)
loader = dict(batch_size=4, num_workers=0, dataset=dict(transform=dict(input_size=32)))
train_dataloader = loader
val_dataloader = loader
test_dataloader = loader
train_cfg = dict(max_epochs=3)
optim_wrapper = dict(optimizer=dict(lr=0.1))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-2, begin=0, end=1, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=1, end=3, T_max=2, convert_to_iter_based=True)]
default_hooks = dict(logger=dict(interval=1))
randomness = dict(seed=7)
"""


def write_images(root: Path, classes=4, train=6, val=3) -> Path:
    rng = np.random.default_rng(0)
    for split, count in (('train', train), ('val', val)):
        for label in range(classes):
            folder = root / split / f'n{label:02}'
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 120, (40, 50, 3)) + 40 * np.eye(4, 3)[label]
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f'{i}.JPEG')
    return root


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('classifier')
    write_images(folder / 'data')
    (folder / 'tiny.py').write_text(CONFIG.format(base=str(ROOT / 'configs/cvt13_in1k.py')))
    return folder


def train(folder, work_dir, *flags):
    return ('train', folder / 'tiny.py', '--data-root', folder / 'data', '--work-dir', work_dir,
            *flags)


@pytest.fixture(scope='module')
def run(folder):
    """An undisturbed run of the full recipe on a tiny network: (work dir, output)."""
    return folder / 'run', run_tool(*train(folder, folder / 'run'))


def test_trains_evaluates_and_saves(run):
    work_dir, output = run
    assert 'No GPU' in output and 'LR is set based on batch size of 2048 and the current batch size is 4' in output
    results = re.findall(r'Epoch\(val\) \[\d\]\[3/3\] +accuracy/top1: ([\d.]+) .*accuracy/top5: 100.0000 '
                         r'+accuracy/loss: '
                         r'([\d.]+) .*raw/top1: ([\d.]+) .*raw/loss: ([\d.]+)', output)
    assert len(results) == 3
    assert results[-1][1] != results[-1][3], 'averaged and raw weights give the same loss'
    saved = load(work_dir / 'epoch_3.pth')
    assert {'state_dict', 'ema_state_dict', 'optimizer', 'param_schedulers'} <= set(saved)
    name = 'backbone.stage0.blocks.0.attn.conv_proj_q.bn.running_mean'
    assert not torch.equal(saved['state_dict'][name], saved['ema_state_dict'][f'module.{name}'])
    assert len(list(work_dir.glob('best_accuracy_top1_epoch_*.pth'))) == 1


def test_testing_gives_what_training_gave(folder, run):
    work_dir, output = run
    metrics = r'accuracy/top1: .*raw/loss: [\d.]+'
    in_training = re.findall(metrics, output)[-1]
    tested = run_tool('test', folder / 'tiny.py', work_dir / 'epoch_3.pth', '--data-root',
                      folder / 'data', '--work-dir', folder / 'test', '--cfg-options',
                      'test_dataloader.batch_size=5')
    assert re.findall(metrics, tested) == [in_training]


# -- during training -------------------------------------------------------------------------------


def test_unreadable_images_are_skipped_named_and_counted(tmp_path, folder):
    data = write_images(tmp_path / 'data')
    for path in (data / 'train' / 'n01' / '2.JPEG', data / 'val' / 'n02' / '1.JPEG'):
        path.write_bytes(path.read_bytes()[:300])
    flags = ('--data-root', data, '--cfg-options', 'train_cfg.max_epochs=2', 'custom_hooks.2.max_share=0.1')
    output = run_tool(*train(folder, tmp_path / 'work')[:2], '--work-dir', tmp_path / 'work', *flags)
    assert output.count('train/n01/2.JPEG (OSError') == output.count('val/n02/1.JPEG (OSError') == 1
    assert '1 of 12 images' in output and (tmp_path / 'work' / 'epoch_2.pth').exists()
    output = run_tool(*train(folder, tmp_path / 'work')[:2], '--work-dir', tmp_path / 'stopped', *flags[:-1],
                      'custom_hooks.2.max_share=0.01', rc=2)
    assert '1 of the 24 images' in output and 'Traceback' not in output


def test_nonfinite_loss_stops_and_keeps_the_last_checkpoint(folder, tmp_path, run):
    work_dir = tmp_path / 'work'
    flags = ('--cfg-options', 'auto_scale_lr.enable=False', 'param_scheduler=[]',
             'optim_wrapper.optimizer.lr=0.001')
    run_tool(*train(folder, work_dir, *flags, 'train_cfg.max_epochs=1'))
    before = (work_dir / 'epoch_1.pth').read_bytes()
    state = load(work_dir / 'epoch_1.pth')
    state['ema_state_dict']['module.head.bias'][0] = float('inf')  # raw weights: training goes on with them
    torch.save(state, tmp_path / 'broken.pth')
    output = run_tool(*train(folder, work_dir, '--resume', tmp_path / 'broken.pth', *flags), rc=2)
    assert 'iteration 7' in output and 'Traceback' not in output
    assert (work_dir / 'epoch_1.pth').read_bytes() == before and not (work_dir / 'epoch_2.pth').exists()
    saved = load(work_dir / 'nonfinite_iter7_rank0.pth')
    assert saved['iter'] == 6 and saved['data_batch']['inputs'].shape == (4, 3, 32, 32)
