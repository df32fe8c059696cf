"""Networks, trainings, tools on a simulated accelerator: what the CPU computes, and where the host waits for it."""
from collections import Counter
from functools import partial
from pathlib import Path

import mmdet.models  # noqa: F401  each fork would import it again
import mmseg.models  # noqa: F401
import pytest
import torch
from load_tool import ROOT, run_tool
from simulated_device import on_device, waits
from tiny_training import load

from cvt_dense.models import CvT

ARCH = dict(embed_dims=[8, 24, 48], depths=[1, 2, 1], num_heads=[1, 3, 6])
WINDOWS = dict(type='cvt_dense.WindowedAttention', window_size=4)
NETWORKS = dict(
    plain=lambda: CvT(ARCH, drop_path_rate=.2),
    recomputed=lambda: CvT(ARCH, drop_rate=.1, attn_drop_rate=.1, drop_path_rate=.2, with_cp=True),
    variants=lambda: CvT(ARCH, attn_cfg=[WINDOWS, WINDOWS, None], layer_scale_init_value=1., pos_embed=[4, None, 3]),
    tokens=lambda: CvT(ARCH, out_type='cls_token'))


def stepped(build, device: str) -> list[torch.Tensor]:
    """Return the outputs, gradients and statistics of one training step."""
    torch.manual_seed(0)
    network, images = build().train(), torch.rand(2, 3, 64, 96)
    network, images = network.to(device), images.to(device)
    waits.clear()
    out = network(images)
    sum(value.pow(3).mean() for value in out).backward()
    return [*out, *(parameter.grad for parameter in network.parameters()), *network.buffers()]


@pytest.mark.parametrize('name', NETWORKS)
@on_device
def test_a_step_is_that_of_the_cpu(name):
    expected, got = map(partial(stepped, NETWORKS[name]), ('cpu', 'sim'))
    assert not waits
    for value, other in zip(expected, got, strict=True):
        assert (value is None) == (other is None)
        if value is not None:
            assert other.device.type == 'sim'
            # Kernels round otherwise by processor and place in memory: by 1.3e-5 of a tensor's largest value at most. A
            # gradient that cancels out, as that of keys' biases does, consists of rounding.
            atol = max(1e-4 * value.abs().max().item(), 1e-8)
            torch.testing.assert_close(other.cpu(), value, rtol=1e-5, atol=atol)


CONFIGS = dict(classification='cvt_nano_shapes', detection='maskrcnn_cvt_nano_shapes',
               segmentation='upernet_cvt_nano_shapes')
# Two images a batch, so that an evaluation has several.
TRAINING = dict(classification="""
train_cfg = dict(max_epochs=1)
model = dict(backbone=dict(out_type='cls_token', with_cls_token=True),
             data_preprocessor=dict(random_erasing=dict(probability=1., mode='pixel'),
                                    mixup=dict(mixup_alpha=.8, cutmix_alpha=1., switch_prob=.5)))
default_hooks = dict(progressive=dict(type='cvt_dense.ProgressiveSizeHook', sizes={0: 32, 1: None}))
train_dataloader = dict(dataset=dict(_delete_=True, type='cvt_dense.BalancedDataset',
                                     dataset={{_base_.train_dataloader.dataset}}))
""", detection="""
train_cfg = dict(max_iters=2, val_interval=2)
custom_hooks = [dict(type='cvt_dense.EMAHook', update_buffers=True)]
""", segmentation="""
train_cfg = dict(max_iters=2, val_interval=2)
custom_hooks = [dict(type='cvt_dense.EMAHook', update_buffers=True)]
""")


def waits_of_project() -> dict[str, int]:
    """Return by file how often a run has waited in this project, without NMS and RoIAlign, which torchvision has."""
    files = Counter()
    for line, number in waits.items():
        file = Path(line.rpartition(':')[0])
        if 'cvt_dense' in file.parts and file.parts[-2:] != ('ops', 'boxes.py'):
            files[file.stem] += number
    waits.clear()
    return files


@pytest.mark.parametrize('task', CONFIGS)
@on_device
def test_a_run_and_its_tools(shapes, tmp_path, task):
    """In a step this project waits once for the device, in an evaluation's loss once, and in a prediction once."""
    config, run = tmp_path / 'config.py', tmp_path / 'run'
    config.write_text(f"_base_ = {str(ROOT / 'configs' / CONFIGS[task])!r} + '.py'\n"
                      + TRAINING[task])
    data, image = ('--data-root', shapes / task), next((shapes / task).rglob('*.png'))
    options = '--cfg-options', *(f'{stage}_dataloader.{key}' for stage in ('train', 'val', 'test')
                                 for key in ('batch_size=2', 'num_workers=0'))
    options = *options, 'model.backbone.arch.depths=(1,1,1)', (
        f"train_dataloader.batch_size={16 if task == 'classification' else 2}")
    flags = *data, '--work-dir', run, *options
    run_tool('train', config, '--val-loss', *flags)
    saved = load(run / (run / 'last_checkpoint').read_text())
    steps = saved['meta']['iter']
    # Of 8 images, with the averaged weights and, by RawWeightsHook, with the others.
    in_evaluation = Counter(classifier=8, accuracy=8) if task == 'classification' else Counter()
    # In a test of the raw weights each tensor is copied.
    raw = Counter(raw_weights=len(saved['state_dict'])) if task == 'classification' else Counter()
    assert task == 'segmentation' or not any(line.endswith(' cast_data') for line in waits)  # MMSegmentation waits
    assert waits_of_project() == Counter(non_finite=steps, val_loss=1) + in_evaluation
    if task == 'classification':
        run_tool('train', config, '--resume', *flags, 'train_cfg.max_epochs=2')
    checkpoint = (run / 'last_checkpoint').read_text()
    waits.clear()
    run_tool('test', config, checkpoint, *data, '--work-dir', tmp_path / 'test', *options)
    assert waits_of_project() == in_evaluation + raw
    slices = [] if task == 'classification' else ['--slice', 48]
    run_tool('predict', config, checkpoint, image, *slices, '--device', 'sim', '--out-dir', tmp_path / 'out')
    assert any((tmp_path / 'out').iterdir())
