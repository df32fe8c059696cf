"""Every config builds, normalises as its weights need, and has necks and heads for its backbone's maps."""
import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, DefaultScope
from templates_edited import ROOT, by_name, recipe

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
    channels, strides = list(model.backbone.out_channels), list(model.backbone.out_strides)
    neck = cfg.model.get('neck')
    if neck is not None:
        assert neck.in_channels == channels
        num_outs = neck.get('num_outs') or len(neck.scales)
        channels = [neck.out_channels] * num_outs
        strides += [strides[-1] * 2**i for i in range(1, num_outs - len(strides) + 1)]
    checked = 0
    for head in (cfg.model.get('decode_head'), cfg.model.get('auxiliary_head')):
        if head is None:
            continue
        checked += 1
        index = head.get('in_index', range(len(channels)))
        wanted = [channels[i] for i in index] if not isinstance(index, int) else channels[index]
        assert head.in_channels == wanted
        given = head.get('strides') or head.get('feature_strides')
        assert given in (None, strides)
    for head in (cfg.model.get('rpn_head'), cfg.model.get('bbox_head')):
        if head is None or 'anchor_generator' not in head:
            continue
        checked += 1
        assert head.in_channels == channels[0]
        assert list(head.anchor_generator.strides) == strides
    if 'roi_head' in cfg.model:
        extractor = cfg.model.roi_head.bbox_roi_extractor
        assert extractor.out_channels == channels[0]
        assert list(extractor.featmap_strides) == strides[:len(extractor.featmap_strides)]
    if cfg.model.type == 'DINO':
        checked += 1
        assert cfg.model.encoder.layer_cfg.self_attn_cfg.num_levels == neck.num_outs
    assert checked


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
