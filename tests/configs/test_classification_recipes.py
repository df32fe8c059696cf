"""The recipes of pretraining and fine-tuning: properties of what they build."""
import re

import pytest
import torch
from mmengine.registry import DATA_SAMPLERS, MODELS
from templates_edited import ROOT, learning_rates, recipe

import cvt_dense  # noqa: F401

IN1K = ['cvt13_in1k', 'cvt21_in1k']


@pytest.mark.parametrize('name', IN1K)
def test_drop_path_and_decay_are_of_the_last_stage_and_of_all_layers(name):
    """tests/engine/test_layer_decay.py tests the parameters that do not decay."""
    cfg = recipe(name)
    with torch.device('meta'):
        stages = MODELS.build(cfg.model).backbone.stages
    rates = [[getattr(block.drop_path, 'drop_prob', 0.) for block in stage.blocks] for stage in stages]
    assert not any(rates[0] + rates[1]) and rates[2] == sorted(rates[2]) and rates[2][-1] > 0
    assert cfg.optim_wrapper.constructor == 'cvt_dense.LayerDecayOptimWrapperConstructor'
    assert cfg.optim_wrapper.paramwise_cfg == dict(decay_rate=1.) and cfg.optim_wrapper.optimizer.weight_decay > 0


@pytest.mark.parametrize('name', IN1K)
def test_learning_rate_at_the_batch_of_its_comment(name):
    """It rises to the comment's value within the warm-up and falls along half a cosine."""
    cfg, epoch = recipe(name), 20
    gpus, images, total, peak = re.search(r'(\d+) GPUs \* (\d+) = (\d+), lr (\de-\d)',
                                          (ROOT / f'configs/{name}.py').read_text()).groups()
    assert int(gpus) * int(images) == int(total) == cfg.auto_scale_lr.base_batch_size and cfg.auto_scale_lr.enable
    assert int(images) == cfg.train_dataloader.batch_size
    rates = learning_rates(cfg.optim_wrapper.optimizer.lr, cfg.param_scheduler, cfg.train_cfg.max_epochs, epoch)
    top = rates.index(max(rates))
    assert rates[top] == pytest.approx(float(peak)) and 0 < top <= 0.05 * len(rates)
    assert rates[:top + 1] == sorted(rates[:top + 1]) and rates[0] < 1e-3 * rates[top]
    assert rates[top:] == sorted(rates[top:], reverse=True) and rates[-1] < 0.01 * rates[top]
    assert rates[(top + len(rates)) // 2] == pytest.approx((rates[top] + rates[-1]) / 2, rel=0.02)


@pytest.mark.parametrize('name, images, steps', [
    ('cvt13_384_in1k', 1_281_167, 20_000), ('cvt13_cifar10', 50_000, 10_000), ('cvt13_cifar100', 50_000, 10_000),
    ('cvt13_flowers', 2_040, 500), ('cvt13_pets', 3_680, 500)])
def test_steps_of_fine_tuning(name, images, steps, monkeypatch):
    """What 8 GPUs do, counted on the recipe's own sampler and loader, is what the paper has, within a hundredth."""
    cfg = recipe(name)
    loader = cfg.train_dataloader
    assert cfg.auto_scale_lr.base_batch_size == 8 * loader.batch_size
    monkeypatch.setattr('mmengine.dataset.sampler.get_dist_info', lambda: (0, 8))
    sampler = DATA_SAMPLERS.build(dict(loader.sampler, dataset=range(images), seed=0))
    batches = len(torch.utils.data.DataLoader(
        range(images), loader.batch_size, sampler=sampler, drop_last=loader.drop_last))
    assert batches * cfg.train_cfg.max_epochs == pytest.approx(steps, rel=0.01)
    assert cfg.param_scheduler[1].end == cfg.param_scheduler[1].T_max == cfg.train_cfg.max_epochs
