"""The recipes of detection and segmentation: batch, learning rate over time, and image sizes, from what they build."""
import re

import pytest
from templates_edited import ROOT, learning_rates, parsed

from cvt_dense.config.settings import dicts

RECIPES = sorted(path.stem for path in (ROOT / 'configs').glob('*.py') if parsed(path.stem).get('default_scope') in (
    'mmdet', 'mmseg') and '_nano_' not in path.stem)
BASELINES = [name for name in RECIPES if name.split('_')[1] in ('swint', 'convnextt')]


@pytest.mark.parametrize('name', RECIPES)
def test_optimizer_and_batch_are_those_of_its_comment(name):
    cfg, text = parsed(name), (ROOT / f'configs/{name}.py').read_text()
    optimizer, batch = cfg.optim_wrapper.optimizer, cfg.auto_scale_lr.base_batch_size
    assert optimizer.type == 'AdamW' and 0 < optimizer.weight_decay < 0.1
    assert cfg.optim_wrapper.constructor == 'cvt_dense.LayerDecayOptimWrapperConstructor'
    assert cfg.optim_wrapper.dtype == ('bfloat16' if name.startswith(('upernet', 'semfpn')) else 'float16')
    assert batch % cfg.train_dataloader.batch_size == 0
    for gpus, images, total in re.findall(r'(\d+) GPUs \* (\d+) = (\d+)', text):
        assert int(images) == cfg.train_dataloader.batch_size and int(gpus) * int(images) == int(total) == batch
        assert float(re.search(r'lr (\de-\d)', text)[1]) == optimizer.lr
    decays = cfg.optim_wrapper.paramwise_cfg.decay_rate
    assert 0.8 < decays < 1 if 'w24' in name else 0.8 < decays <= 1  # the largest network has layer-wise decay


@pytest.mark.parametrize('name', RECIPES)
def test_learning_rate_rises_to_its_peak_and_falls_until_the_end(name):
    cfg, length = parsed(name), 1200
    epochs, iterations = (cfg.train_cfg.get(key) for key in ('max_epochs', 'max_iters'))
    peak = cfg.optim_wrapper.optimizer.lr
    rates = learning_rates(peak, cfg.param_scheduler, epochs or 1, length if epochs else iterations)
    top = rates.index(max(rates))
    assert rates[top] == pytest.approx(peak) and top <= 1500
    assert rates[:top + 1] == sorted(rates[:top + 1]) and rates[top:] == sorted(rates[top:], reverse=True)
    assert rates[0] < 2e-3 * peak or top == 0  # a warm-up, unless the schedule has none
    if epochs:  # the last step is one epoch in twelve before the end
        assert rates[-1] <= 0.101 * peak and rates[-1] < rates[-length * epochs // 12 - 1]
    else:
        assert rates[-1] < 1e-4 * peak and rates[len(rates) // 2] > 0.4 * peak


@pytest.mark.parametrize('name', BASELINES)
def test_baselines_differ_from_cvt_in_the_model_alone(name):
    method, backbone, data = name.split('_')
    ours, theirs = parsed(f'{method}_cvt13_{data}'), parsed(name)
    settings = {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}
    assert settings <= {'model', 'backbone', 'channels', 'pretrained'}  # the last three: variables of the files


@pytest.mark.parametrize('name', RECIPES)
def test_training_and_test_images_have_one_size(name):
    cfg = parsed(name)
    train, test = ({step['type']: step for step in dicts(cfg[f'{stage}_dataloader'].dataset.pipeline)
                    if 'type' in step} for stage in ('train', 'test'))
    assert 'RandomFlip' not in test and 'RandomCrop' not in test
    if cfg.default_scope == 'mmseg':
        crop = train['RandomCrop']
        assert tuple(crop.crop_size) == tuple(cfg.model.data_preprocessor.size) and crop.cat_max_ratio < 1
        if name.endswith('_multichannel'):  # crops, without resizing
            return
        assert train['RandomResize'].scale == test['Resize'].scale and min(test['Resize'].scale) >= min(crop.crop_size)
    else:
        size = train['Resize'].scale if 'Resize' in train else max(
            train['RandomChoice'].transforms[0][0].scales)
        assert test['Resize'].scale == size and test['Resize'].keep_ratio
