"""The configs of pretraining are the authors' recipe: read from what they build, not from their text."""
import math

import pytest
import torch
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DATA_SAMPLERS, MODELS
from templates_edited import by_name, learning_rates, recipe

from cvt_dense.launch.machine import adapt_to_machine
from cvt_dense.pretraining import ImageDataset

from timm.data.transforms import RandomResizedCropAndInterpolation  # isort: skip  after cvt_dense

EPOCH = 1281167 // 2048  # iterations of an epoch of ImageNet at a total batch of 2048


def load(name):
    cfg = recipe(name)
    adapt_to_machine(cfg, 'none')  # as tools/train.py does
    return cfg


@pytest.fixture(scope='module', params=[('cvt13_in1k', 0.05, 256), ('cvt21_in1k', 0.1, 256)], ids=['cvt13', 'cvt21'])
def built(request):
    name, weight_decay, batch_size = request.param
    cfg = load(name)
    model = MODELS.build(cfg.model)
    return cfg, model, build_optim_wrapper(model, cfg.optim_wrapper), weight_decay, batch_size


def test_drop_path_batch_and_average_are_the_authors(built):
    cfg, model, *_, batch_size = built
    stages = (model.backbone.stage0, model.backbone.stage1, model.backbone.stage2)
    rates = [getattr(block.drop_path, 'drop_prob', 0.) for stage in stages for block in stage.blocks]
    depth = len(model.backbone.stage2.blocks)
    assert rates[-depth:] == pytest.approx([0.1 * i / (depth - 1) for i in range(depth)])
    assert not any(rates[:-depth])
    assert cfg.train_dataloader.batch_size == batch_size and cfg.train_cfg.max_epochs == 300
    assert cfg.custom_hooks[0] == dict(
        type='cvt_dense.EMAHook', ema_type='MomentumAnnealingEMA', momentum=1e-4, gamma=10, update_buffers=True)


def test_which_parameters_decay(built):
    _, model, optim_wrapper, weight_decay, *_ = built
    assert type(optim_wrapper.optimizer) is torch.optim.AdamW
    decay = {name: decays for name, (_, decays) in by_name(model, optim_wrapper).items()}
    norms = {f'{name}.{kind}' for name, m in model.named_modules() for kind in ('weight', 'bias')
             if isinstance(m, (torch.nn.BatchNorm2d, torch.nn.LayerNorm))}
    free = {name for name in decay if name in norms or name.endswith(('.bias', 'cls_token'))}
    assert {name for name in decay if decay[name] == 0.} == free and 'backbone.stage2.cls_token' in free
    assert {decay[name] for name in set(decay) - free} == {weight_decay}
    assert decay['backbone.stage0.blocks.0.attn.conv_proj_q.conv.weight'] == weight_decay  # depth-wise
    for group in optim_wrapper.optimizer.param_groups:
        assert group['lr'] == 2e-3 and group['betas'] == (0.9, 0.999) and group['eps'] == 1e-8


def test_learning_rate_at_total_batch_2048():
    cfg, other = load('cvt13_in1k'), load('cvt21_in1k')
    assert cfg.auto_scale_lr == other.auto_scale_lr == dict(base_batch_size=2048, enable=True)
    assert cfg.param_scheduler == other.param_scheduler
    rates = learning_rates(cfg.optim_wrapper.optimizer.lr, cfg.param_scheduler, 300, EPOCH)
    warmup = 5 * EPOCH
    assert rates[0] == pytest.approx(1e-6)
    # mmengine reaches the full rate at the last iteration of the warm-up.
    for i in (1, 100, warmup // 2, warmup - 1):
        assert rates[i] == pytest.approx(1e-6 + (2e-3 - 1e-6) * i / (warmup - 1))
    for epoch in (5, 20, 100, 200, 299):
        expected = 1e-5 + (2e-3 - 1e-5) * (1 + math.cos(math.pi * (epoch - 5) / 295)) / 2
        assert rates[epoch * EPOCH] == pytest.approx(expected, rel=2e-3, abs=1e-8)
    assert rates[-1] == pytest.approx(1e-5, rel=1e-3)


def test_batch_augmentation_is_the_authors(built):
    preprocessor = built[1].data_preprocessor
    mixup, erasing = preprocessor.mixup, preprocessor.random_erasing
    assert (mixup.mixup_alpha, mixup.cutmix_alpha, mixup.mix_prob, mixup.switch_prob, mixup.mode) == (
        0.8, 1., 1., 0.5, 'batch')
    assert mixup.label_smoothing == preprocessor.label_smoothing == 0.1
    assert mixup.num_classes == preprocessor.num_classes == 1000
    assert (erasing.probability, erasing.per_pixel) == (0.25, True)
    assert (erasing.min_count, erasing.max_count) == (1, 1)
    assert (preprocessor.mean.flatten() / 255).tolist() == pytest.approx([0.485, 0.456, 0.406])
    assert (preprocessor.std.flatten() / 255).tolist() == pytest.approx([0.229, 0.224, 0.225])


def test_transforms_are_the_authors(built, tmp_path):
    cfg = built[0]
    (tmp_path / 'a').mkdir()
    (tmp_path / 'a' / 'b.png').write_bytes(b'')

    def steps(loader):
        dataset = ImageDataset(str(tmp_path), transform=loader.dataset.transform)
        return [*filter(None, [dataset.crop]), *dataset.pipeline.transforms]

    crop, flip, randaugment, to_tensor = steps(cfg.train_dataloader)
    assert isinstance(crop, RandomResizedCropAndInterpolation) and tuple(crop.size) == (224, 224)
    assert tuple(crop.scale) == (0.08, 1.) and tuple(crop.ratio) == pytest.approx((3 / 4, 4 / 3))
    assert crop.interpolation.value == 'bicubic'
    assert type(flip).__name__ == 'RandomHorizontalFlip' and flip.p == 0.5
    assert type(randaugment).__name__ == 'RandAugment' and randaugment.num_layers == 2  # and no colour jitter
    settings = {(op.prob, op.magnitude, op.hparams['magnitude_std']) for op in randaugment.ops}
    assert settings == {(0.5, 9, 0.5)} and 'PosterizeIncreasing' in {op.name for op in randaugment.ops}
    resize, crop, to_tensor = steps(cfg.val_dataloader)
    assert resize.size == 256 and resize.interpolation.value == 'bicubic'
    assert tuple(crop.size) == (224, 224) and type(crop).__name__ == 'CenterCrop'


@pytest.mark.parametrize('name, images, steps', [
    ('cvt13_384_in1k', 1_281_167, 20_016), ('cvt13_cifar10', 50_000, 9_991), ('cvt13_cifar100', 50_000, 9_991),
    ('cvt13_flowers', 2_040, 500), ('cvt13_pets', 3_680, 497)])
def test_steps_of_fine_tuning(name, images, steps, monkeypatch):
    """What 8 GPUs do, counted on the recipe's own sampler and loader; the paper's numbers are 20,000, 10,000, 500."""
    cfg = recipe(name)
    loader = cfg.train_dataloader
    assert cfg.auto_scale_lr.base_batch_size == 8 * loader.batch_size == 512
    monkeypatch.setattr('mmengine.dataset.sampler.get_dist_info', lambda: (0, 8))
    sampler = DATA_SAMPLERS.build(dict(loader.sampler, dataset=range(images), seed=0))
    batches = len(torch.utils.data.DataLoader(
        range(images), loader.batch_size, sampler=sampler, drop_last=loader.drop_last))
    assert batches * cfg.train_cfg.max_epochs == steps
    assert cfg.param_scheduler[1].end == cfg.param_scheduler[1].T_max == cfg.train_cfg.max_epochs
