"""The recipes of detection and segmentation: optimizer, learning rate over time, sizes, batch, from what they build."""

import mmdet.datasets  # noqa: F401
import mmseg.datasets  # noqa: F401
import mmseg.datasets.transforms.loading
import pytest
from mmengine.dataset import Compose
from mmengine.registry import DefaultScope
from templates_edited import ROOT, learning_rates, parsed

# by batch per GPU, learning rate, weight decay, decay by layer, schedule; baselines as CvT-13
TABLE = {
    (2, 1e-4, 0.05, 1., '1x'): ['maskrcnn_cvt13_coco', 'maskrcnn_cvt13_coco_win', 'maskrcnn_cvt21_coco', *(
        f'maskrcnn_{name}_coco' for name in ('resnet50', 'swint', 'pvtv2b2', 'convnextt'))],
    (2, 1e-4, 0.05, 1., '20k'): ['maskrcnn_cvt13_custom', 'fasterrcnn_cvt13_custom'],
    (2, 1e-4, 0.05, 0.9, '1x'): ['maskrcnn_cvtw24_coco'],
    (2, 1e-4, 0.05, 1., '3x'): ['maskrcnn_cvt13_coco_3x', 'maskrcnn_cvt21_coco_3x'],
    (2, 1e-4, 0.05, 0.9, '3x'): ['maskrcnn_cvtw24_coco_3x'],
    (2, 2e-4, 0.05, 0.98, '3x'): ['cascademaskrcnn_cvt13_coco_3x'],
    (2, 1e-4, 1e-4, 1., '1x'): ['retinanet_cvt13_coco'],
    (2, 1e-4, 1e-4, 1., '20k'): ['retinanet_cvt13_custom'],
    (2, 1e-4, 1e-4, 0.85, 'dino'): ['dino_cvt13_coco'],
    (2, 6e-5, 0.01, 1., '160k'): ['upernet_cvt13_ade20k', 'upernet_cvt13_ade20k_win', 'upernet_cvt21_ade20k', *(
        f'upernet_{name}_ade20k' for name in ('resnet50', 'deits', 'swint', 'pvtv2b2', 'convnextt'))],
    (2, 6e-5, 0.01, 0.95, '160k'): ['upernet_cvtw24_ade20k'],
    (2, 6e-5, 0.01, 1., '80k'): ['upernet_cvt13_cityscapes'],
    (2, 6e-5, 0.01, 1., '40k'): ['upernet_cvt13_custom', 'upernet_cvt13_multichannel'],
    (4, 1e-4, 1e-4, 1., 'semfpn'): ['semfpn_cvt13_ade20k', 'semfpn_cvt21_ade20k'],
    (4, 1e-4, 1e-4, 0.95, 'semfpn'): ['semfpn_cvtw24_ade20k'],
    (2, 1e-4, 0.05, 0.85, 'mask2former'): ['mask2former_cvt13_ade20k'],
}
RECIPES = {name: settings for settings, names in TABLE.items() for name in names}
# by epoch: number of epochs, epochs at which the rate falls to a tenth, warm-up iterations
STEPS = {'1x': (12, (8, 11), 1000), '3x': (36, (27, 33), 1000), 'dino': (12, (11, ), 0)}
# by iteration: number of iterations, power, warm-up iterations
POLY = {'160k': (160_000, 1., 1500), '80k': (80_000, 1., 1500), '40k': (40_000, 1., 1000), '20k': (20_000, 1., 1000),
        'semfpn': (80_000, 0.9, 0), 'mask2former': (160_000, 0.9, 0)}
CLIP = {'dino_cvt13_coco': 0.1, 'mask2former_cvt13_ade20k': 0.01}
DROP_PATH = {'retinanet_cvt13_coco': 0.1, 'retinanet_cvt13_custom': 0.1, 'semfpn_cvt13_ade20k': 0.1,
             'semfpn_cvt21_ade20k': 0.1, 'maskrcnn_resnet50_coco': 0., 'upernet_resnet50_ade20k': 0.}


def test_table_is_complete():
    names = {path.stem for path in ROOT.glob('configs/*.py') if '_cvt_nano' not in path.stem}
    others = 'cvt13', 'cvt21', 'cvtw24', 'cvt_', 'simmim'
    assert set(RECIPES) == {name for name in names if not name.startswith(others) and not name.endswith('_in1k')}


@pytest.mark.parametrize('name', RECIPES)
def test_optimizer_and_batch(name):
    cfg, (batch, lr, weight_decay, decay_rate, schedule) = parsed(name), RECIPES[name]
    wrapper = cfg.optim_wrapper
    assert (wrapper.optimizer.lr, wrapper.optimizer.weight_decay) == (lr, weight_decay)
    assert wrapper.optimizer.get('optimizer_type', wrapper.optimizer.type) == 'AdamW'
    assert wrapper.optimizer.betas == (0.9, 0.999) and wrapper.paramwise_cfg.decay_rate == decay_rate
    assert wrapper.constructor == 'cvt_dense.LayerDecayOptimWrapperConstructor'
    assert wrapper.dtype == ('bfloat16' if name.startswith(('upernet', 'semfpn')) else 'float16')
    assert (wrapper.get('clip_grad') or {}).get('max_norm') == CLIP.get(name)
    assert cfg.train_dataloader.batch_size == batch
    assert cfg.model.backbone.get('drop_path_rate', 0.) == DROP_PATH.get(name, 0.4 if 'w24' in name else 0.2)
    length = cfg.train_cfg.get('max_epochs', cfg.train_cfg.get('max_iters'))
    assert length == (STEPS.get(schedule) or POLY[schedule])[0]


@pytest.mark.parametrize('schedule', STEPS)
def test_learning_rate_by_epoch(schedule):
    epochs, falls, warmup = STEPS[schedule]
    names = [name for name in RECIPES if RECIPES[name][-1] == schedule]
    cfg, length = parsed(names[0]), 1200
    assert all(parsed(name).param_scheduler == cfg.param_scheduler for name in names)
    lr = cfg.optim_wrapper.optimizer.lr
    found = learning_rates(lr, cfg.param_scheduler, epochs, length)
    for i in [i for i in (0, 1, 100, 500, 999) if i < warmup]:
        assert found[i] == pytest.approx(lr * (0.001 + 0.999 * i / (warmup - 1)))
    for epoch in range(epochs):
        expected = lr * 0.1**sum(epoch >= fall for fall in falls)
        assert found[(epoch + 1) * length - 1] == pytest.approx(expected), epoch


@pytest.mark.parametrize('schedule', POLY)
def test_learning_rate_by_iteration(schedule):
    iterations, power, warmup = POLY[schedule]
    names = [name for name in RECIPES if RECIPES[name][-1] == schedule]
    cfg = parsed(names[0])
    assert all(parsed(name).param_scheduler == cfg.param_scheduler for name in names)
    lr = cfg.optim_wrapper.optimizer.lr
    found = learning_rates(lr, cfg.param_scheduler, 1, iterations)
    for i in [i for i in (0, 1, 100, 399) if i < warmup]:
        assert found[i] == pytest.approx(lr * (1e-6 + (1 - 1e-6) * i / (warmup - 1)))
    for i in (warmup, iterations // 4, iterations // 2, iterations - 1000, iterations - 1):
        expected = lr * (1 - (i - warmup) / (iterations - warmup - 1))**power  # 0 at the last one
        assert found[i] == pytest.approx(expected, rel=1e-3, abs=1e-12), i


@pytest.mark.parametrize('name', RECIPES)
def test_sizes(name):
    """The image sizes and crops of training and testing."""
    cfg = parsed(name)
    detection = cfg.default_scope == 'mmdet'
    if name == 'upernet_cvt13_multichannel' and not hasattr(mmseg.datasets.transforms.loading, 'LoadImageFromNpyFile'):
        pytest.skip("upstream's MMSegmentation 1.2.2 reads no NumPy files")
    with DefaultScope.overwrite_default_scope('mmdet' if detection else 'mmseg'):
        train, test = ({type(step).__name__: step
                        for step in Compose(cfg[f'{stage}_dataloader'].dataset.pipeline).transforms}
                       for stage in ('train', 'test'))
    wide = 'cityscapes' in name
    if name.endswith('_multichannel'):  # crops, without resizing
        assert tuple(train['RandomCrop'].crop_size) == tuple(cfg.model.data_preprocessor.size) == (512, 512)
        return
    if not detection:
        size = (2048, 1024) if wide else (2048, 512)
        assert (train['RandomResize'].scale, train['RandomResize'].ratio_range) == (size, (0.5, 2.))
        assert train['RandomCrop'].crop_size == ((512, 1024) if wide else (512, 512))
        assert train['RandomCrop'].cat_max_ratio == 0.75 and train['RandomFlip'].prob == 0.5
        assert 'PhotoMetricDistortion' in train and cfg.model.data_preprocessor.size == train['RandomCrop'].crop_size
        assert test['Resize'].scale == size and test['Resize'].keep_ratio
        return
    assert test['Resize'].scale == (1333, 800) and test['Resize'].keep_ratio and train['RandomFlip'].prob == 0.5
    if RECIPES[name][-1] in ('1x', '20k'):
        assert train['Resize'].scale == (1333, 800) and train['Resize'].keep_ratio
        return
    (whole, ), (smaller, crop, again) = [branch.transforms for branch in train['RandomChoice'].transforms]
    assert whole.scales == again.scales == [(1333, side) for side in range(480, 801, 32)]
    assert smaller.scales == [(1333, side) for side in (400, 500, 600)]
    assert (crop.crop_size, crop.crop_type, crop.allow_negative_crop) == ((384, 600), 'absolute_range', True)
