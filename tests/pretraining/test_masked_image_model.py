"""Masked pretraining: what is hidden, what counts, statistics and weights."""
from pathlib import Path

import numpy as np
import pytest
import torch
from load_tool import ROOT, flags_of, run_tool
from PIL import Image
from tiny_training import load

from cvt_dense.errors import UserError
from cvt_dense.launch.start import start_training
from cvt_dense.models import CvT
from cvt_dense.pretraining import MaskedImageModel
from cvt_dense.pretraining.masked_image_model import masked_l1

ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6))


def build() -> MaskedImageModel:
    return MaskedImageModel(dict(type='cvt_dense.CvT', arch=ARCH))


# -- one batch -----------------------------------------------------------------------------------------------


def test_loss_is_of_hidden_pixels_and_they_alone_are_unseen():
    model, images = build().eval(), torch.randn(2, 3, 96, 64)
    mask = model.hide(images)
    assert mask.shape == (2, 3, 2) and (mask.sum((1, 2)) == 4).all()  # 0.6 of 6, rounded
    hidden = mask.repeat_interleave(32, 1).repeat_interleave(32, 2)[:, None].expand_as(images)
    reconstruction = model.reconstruct(images, mask)
    assert reconstruction.shape == images.shape
    loss = masked_l1(reconstruction, images, hidden[:, :1])
    torch.testing.assert_close(loss, (reconstruction - images)[hidden].abs().mean())
    # The network does not see what is hidden; the loss does not see the rest.
    again = model.reconstruct(torch.where(hidden, images + 5, images), mask)
    torch.testing.assert_close(again, reconstruction, rtol=0, atol=0)
    assert torch.equal(masked_l1(reconstruction, torch.where(hidden, images, images - 5), hidden[:, :1]), loss)
    other = torch.where(hidden, images, images + 1)
    assert (model.reconstruct(other, mask) - reconstruction).abs().max() > 1e-3
    gradient, = torch.autograd.grad(loss, reconstruction)
    assert not gradient[~hidden].any() and gradient[hidden].all()


def test_images_of_another_grid():
    with pytest.raises(UserError, match='mask_unit'):
        build()(torch.randn(1, 3, 64, 80), mode='loss')


# -- any folder ----------------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def folder(tmp_path_factory) -> Path:
    """Smooth pictures at two depths of a folder."""
    folder, rng = tmp_path_factory.mktemp('masked'), np.random.default_rng(0)
    (folder / 'images/deep/deeper').mkdir(parents=True)
    for i in range(8):
        small = Image.fromarray(rng.integers(0, 256, (4, 4, 3)).astype(np.uint8))
        directory = folder / ('images' if i % 2 else 'images/deep/deeper')
        small.resize((72, 80), Image.Resampling.BICUBIC).save(directory / f'{i}.png')
    return folder


@pytest.fixture(scope='module')
def trained(folder):
    options = {'train_dataloader.dataset.split': 'images', 'train_dataloader.batch_size': 4,
               'train_dataloader.dataset.transform.input_size': 64, 'train_dataloader.num_workers': 0,
               'default_hooks.checkpoint.interval': 1, 'train_cfg.max_epochs': 2, 'param_scheduler': []}
    runner = start_training(flags_of(
        'train', ROOT / 'configs/simmim_cvt_nano.py', work_dir=str(folder / 'run'), cfg_options=options,
        data_root=str(folder)))
    runner.train()
    return runner


def test_a_config_without_test_data(folder, trained):
    assert 'test_dataloader' in run_tool('test', 'configs/simmim_cvt_nano.py', folder / 'run/epoch_1.pth', rc=2)


def test_statistics_are_of_whole_images(folder, trained):
    """The first norm's statistics are those of its input, images without hidden squares; they were others before."""
    model = trained.model
    dataset = trained.train_dataloader.dataset
    name = 'backbone.stage0.blocks.0.attn.conv_proj_q.bn'
    saved = load(folder / 'run/epoch_2.pth')['state_dict']
    seen = []
    norm = model.get_submodule(name)
    handle = norm.register_forward_pre_hook(lambda module, args: seen.append(args[0].mean((0, 2, 3))))
    with torch.no_grad():
        for _ in range(20):  # crops differ
            batch = torch.stack([torch.as_tensor(dataset[i]['inputs']) for i in range(8)])
            model.eval()(model.data_preprocessor(dict(inputs=batch))['inputs'])
    handle.remove()
    means = torch.stack(seen)
    spread = means.std(0).clamp(min=1e-3)
    assert ((saved[f'{name}.running_mean'] - means.mean(0)).abs() < 5 * spread).all()
    before = load(folder / 'run/epoch_1.pth')['state_dict'][f'{name}.running_mean']
    assert ((before - means.mean(0)).abs() > 5 * spread).any()


def test_weights_start_a_dense_network(folder, trained):
    backbone = CvT('cvt-nano',
                   init_cfg=dict(type='Pretrained', checkpoint=str(folder / 'run/epoch_2.pth')))
    backbone.init_weights()
    saved = load(folder / 'run/epoch_2.pth')['state_dict']
    assert torch.equal(backbone.stage2.blocks[0].mlp.fc1.weight, saved['backbone.stage2.blocks.0.mlp.fc1.weight'])
