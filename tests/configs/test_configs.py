"""Every config builds, normalises as its weights need, and has necks and heads for its backbone's maps."""
import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, DefaultScope
from templates_edited import ROOT, by_name, recipe

from cvt_dense.config.settings import dicts
from cvt_dense.launch.checks.weights import check_preprocessing

CONFIGS = sorted(path.stem for path in (ROOT / 'configs').glob('*.py'))
DENSE = [name for name in CONFIGS if name.split('_')[0] != 'cvt13' and not name.endswith('_in1k')
         and not name.startswith(('cvt21', 'cvtw24', 'cvt_', 'simmim'))]


def build(cfg: Config) -> torch.nn.Module:
    """The model without memory for its weights."""
    with DefaultScope.overwrite_default_scope(cfg.get('default_scope', 'cvt_dense')), torch.device('meta'):
        return MODELS.build(cfg.model)


@pytest.mark.parametrize('name', CONFIGS)
def test_builds_and_channels_match(name):
    cfg = recipe(name)
    model = build(cfg)
    assert sum(param.numel() for param in model.parameters()) > 10_000
    if name not in DENSE:
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


def test_parameter_groups_of_mask2former():
    """No decay on BN, LN, biases, CLS token and queries; tests/engine/test_layer_decay.py tests other networks."""
    cfg = recipe('mask2former_cvt13_ade20k')
    model, wrapper = build(cfg), dict(cfg.optim_wrapper, type='OptimWrapper')
    for key in ('dtype', 'loss_scale'):
        wrapper.pop(key)
    values = by_name(model, build_optim_wrapper(model, wrapper))
    for key, param in model.named_parameters():
        free = param.ndim < 2 or any(text in key for text in ('cls_token', 'query_embed', 'query_feat', 'level_embed'))
        assert values[key][1] == (0. if free else wrapper['optimizer']['weight_decay']), key
