"""Networks, trainings and tools on a simulated accelerator."""
from functools import partial

import mmdet.models  # noqa: F401  each fork would import it again
import mmseg.models  # noqa: F401
import pytest
import torch
from load_tool import run_tool
from simulated_device import on_device

from cvt_dense import recipe
from cvt_dense.cli.demo import CONFIGS
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
    out = network(images)
    sum(value.pow(3).mean() for value in out).backward()
    return [*out, *(parameter.grad for parameter in network.parameters()), *network.buffers()]


@pytest.mark.parametrize('name', NETWORKS)
@on_device
def test_a_step_is_that_of_the_cpu(name):
    expected, got = map(partial(stepped, NETWORKS[name]), ('cpu', 'sim'))
    for value, other in zip(expected, got, strict=True):
        assert (value is None) == (other is None)
        if value is not None:
            assert other.device.type == 'sim'
            # Kernels round otherwise by processor and place in memory: by 1.3e-5 of a tensor's largest value at most. A
            # gradient that cancels out, as that of keys' biases does, consists of rounding.
            atol = max(1e-4 * value.abs().max().item(), 1e-8)
            torch.testing.assert_close(other.cpu(), value, rtol=1e-5, atol=atol)


DENSE = """
train_cfg = dict(max_iters=2, val_interval=2)
custom_hooks = [dict(type='cvt_dense.EMAHook', update_buffers=True)]
"""
TRAINING = dict(detection=DENSE, segmentation=DENSE, classification="""
train_cfg = dict(max_epochs=1)
model = dict(backbone=dict(out_type='cls_token', with_cls_token=True),
             data_preprocessor=dict(random_erasing=dict(probability=1., mode='pixel'),
                                    mixup=dict(mixup_alpha=.8, cutmix_alpha=1., switch_prob=.5)))
default_hooks = dict(progressive=dict(type='cvt_dense.ProgressiveSizeHook', sizes={0: 32, 1: None}))
train_dataloader = dict(dataset=dict(_delete_=True, type='cvt_dense.BalancedDataset',
                                     dataset={{_base_.train_dataloader.dataset}}))
""")


@pytest.mark.parametrize('task', CONFIGS)
@on_device
def test_a_run_and_its_tools(shapes, tmp_path, task):
    """A tensor that is left on the CPU ends a run, as with CUDA."""
    config, run = tmp_path / 'config.py', tmp_path / 'run'
    config.write_text(f'_base_ = {recipe(CONFIGS[task])!r}\n{TRAINING[task]}')
    data, image = ('--data-root', shapes / task), next((shapes / task).rglob('*.png'))
    # Two images a batch, so that an evaluation has several.
    options = '--cfg-options', *(f'{stage}_dataloader.{key}' for stage in ('train', 'val', 'test')
                                 for key in ('batch_size=2', 'num_workers=0'))
    options = *options, 'model.backbone.arch.depths=(1,1,1)', (
        f"train_dataloader.batch_size={16 if task == 'classification' else 2}")
    flags = *data, '--work-dir', run, *options
    run_tool('train', config, '--val-loss', *flags)
    if task == 'classification':
        run_tool('train', config, '--resume', *flags, 'train_cfg.max_epochs=2')
    checkpoint = (run / 'last_checkpoint').read_text()
    run_tool('test', config, checkpoint, *data, '--work-dir', tmp_path / 'test', *options)
    slices = [] if task == 'classification' else ['--slice', 48]
    run_tool('predict', config, checkpoint, image, *slices, '--device', 'sim', '--out-dir', tmp_path / 'out', *options)
    assert any((tmp_path / 'out').iterdir())
