"""What the recipes build: networks, batches, and learning rates over time, by properties and not by numbers."""
import re
import shlex

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DATA_SAMPLERS, MODELS, DefaultScope
from templates_edited import ROOT, parsed, recipe

from cvt_dense.cli.options import parse_value
from cvt_dense.config import dicts, merge_options
from cvt_dense.engine.schedules import Curve, learning_rates
from cvt_dense.inference.model import check_preprocessing
from cvt_dense.launch.checks.schedule import find_mismatch

# -- every config ----------------------------------------------------------------------------------


CONFIGS = sorted(path.stem for path in (ROOT / 'configs').glob('*.py'))
# A recipe and its options, of the page's table.
VARIANTS = [f'{name} {options}'
            for line in (ROOT / 'configs/README.md').read_text().split('## Variants')[1].splitlines()
            for name in re.findall(r'`(\w+)`', line.rpartition(' | ')[0])
            for options in re.findall(r'`(\w+\.[^`]*)`', line.rpartition(' | ')[2])]


def varied(case: str) -> Config:
    """A recipe, or one with options."""
    name, *options = shlex.split(case)
    cfg = recipe(name)
    if options:
        merge_options(cfg, {key: parse_value(text) for key, _, text in (option.partition('=') for option in options)})
    return cfg


def build(cfg: Config) -> torch.nn.Module:
    """The model without memory for its weights."""
    with DefaultScope.overwrite_default_scope(cfg.get('default_scope', 'cvt_dense')), torch.device('meta'):
        return MODELS.build(cfg.model)


def curve_of(cfg: Config, batches: int) -> Curve:
    """The learning rates of a recipe with so many batches an epoch, which is not scaled."""
    by_epoch = 'max_epochs' in cfg.train_cfg
    return learning_rates(cfg.param_scheduler, cfg.optim_wrapper.optimizer.lr, by_epoch,
                          cfg.train_cfg.max_epochs if by_epoch else cfg.train_cfg.max_iters, batches)


@pytest.mark.slow
@pytest.mark.parametrize('case', CONFIGS + VARIANTS)
def test_schedule_fits_the_length_and_channels_match(case):
    name, cfg = case.split()[0], varied(case)
    assert find_mismatch(curve_of(cfg, 1200)) == ''
    model = build(cfg)
    if cfg.get('default_scope') not in ('mmdet', 'mmseg'):
        return
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model.data_preprocessor = MODELS.build(cfg.model.data_preprocessor)
    check_preprocessing(cfg, model)
    strides = list(model.backbone.out_strides)
    strides += [strides[-1] * 2**i for i in range(1, 4)]
    stated = [list(node[key]) for node in dicts(cfg.model) for key in ('strides', 'featmap_strides', 'feature_strides')
              if node.get(key)]
    assert all(numbers == strides[:len(numbers)] for numbers in stated)
    channels = cfg.model.backbone.get('in_channels', 3)
    maps = model.eval().extract_feat(torch.zeros(1, channels, 128, 128, device='meta'))
    if 'roi_head' in cfg.model:
        assert cfg.model.roi_head.bbox_roi_extractor.out_channels == maps[0].shape[1]
    if cfg.model.type != 'DINO' and 'mask2former' not in name:  # heads that take more; see test_dense.py
        heads = [getattr(model, key) for key in ('decode_head', 'auxiliary_head', 'rpn_head', 'bbox_head')
                 if key in cfg.model]
        assert heads and all(head(maps) is not None for head in heads)


# -- pretraining and fine-tuning -------------------------------------------------------------------


@pytest.mark.parametrize('name', ['cvt13_in1k', 'cvt21_in1k'])
def test_learning_rate_at_the_batch_of_its_comment(name):
    """It rises to the comment's value within the warm-up and falls along a cosine."""
    cfg = recipe(name)
    gpus, images, total, peak = re.search(r'(\d+) GPUs \* (\d+) = (\d+), lr (\de-\d)',
                                          (ROOT / f'configs/{name}.py').read_text()).groups()
    assert int(gpus) * int(images) == int(total) == cfg.auto_scale_lr.base_batch_size and cfg.auto_scale_lr.enable
    assert int(images) == cfg.train_dataloader.batch_size
    (_, first), (top, highest), (_, last) = curve_of(cfg, 20).points
    assert highest == pytest.approx(float(peak)) and 0 < top <= 0.05 * cfg.train_cfg.max_epochs
    assert first < 1e-3 * highest and last < 0.01 * highest and cfg.param_scheduler[-1].type == 'CosineAnnealingLR'


@pytest.mark.parametrize('case, images, steps', [
    ('cvt13_384_in1k', 1_281_167, 20_000), ('cvt13_cifar10', 50_000, 10_000),
    *((case, 2_040, 500) for case in VARIANTS if 'num_classes=102' in case),
    *((case, 3_680, 500) for case in VARIANTS if 'num_classes=37' in case)])
def test_steps_of_fine_tuning(case, images, steps, monkeypatch):
    """What 8 GPUs do, counted on the recipe's own sampler and loader, is what the paper has, within a hundredth."""
    cfg = varied(case)
    loader = cfg.train_dataloader
    assert cfg.auto_scale_lr.base_batch_size == 8 * loader.batch_size
    monkeypatch.setattr('mmengine.dataset.sampler.get_dist_info', lambda: (0, 8))
    sampler = DATA_SAMPLERS.build(dict(loader.sampler, dataset=range(images), seed=0))
    batches = len(torch.utils.data.DataLoader(
        range(images), loader.batch_size, sampler=sampler, drop_last=loader.drop_last))
    assert batches * cfg.train_cfg.max_epochs == pytest.approx(steps, rel=0.01)
    assert cfg.param_scheduler[1].end == cfg.param_scheduler[1].T_max == cfg.train_cfg.max_epochs


# -- detection and segmentation --------------------------------------------------------------------


RECIPES = [name for name in CONFIGS if not name.startswith('cvt') and '_nano_' not in name]


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
    assert 0.8 < cfg.optim_wrapper.paramwise_cfg.decay_rate <= 1


@pytest.mark.slow
@pytest.mark.parametrize('name', RECIPES)
def test_learning_rate_rises_to_its_peak_and_falls_until_the_end(name):
    cfg, peak = parsed(name), parsed(name).optim_wrapper.optimizer.lr
    points = curve_of(cfg, 1200).points
    (_, first), (top, highest), (settled, last) = points if len(points) == 3 else [points[0], *points]  # no warm-up
    assert highest == pytest.approx(peak) and (first < 2e-3 * peak or top == 0)
    if 'max_epochs' in cfg.train_cfg:  # the last step is one epoch in twelve before the end
        assert top * 1200 <= 1500 and last <= 0.101 * peak and settled == round(cfg.train_cfg.max_epochs * 11 / 12)
    else:
        assert top <= 1500 and last < 1e-4 * peak and settled == cfg.train_cfg.max_iters - 1
