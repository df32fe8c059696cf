"""Recorded attention against plain sums in float64, on odd sizes."""
import math

import pytest
import torch
from plain_attention import attention_weights

from cvt_dense.deploy.fuse import fuse
from cvt_dense.models import CvT
from cvt_dense.pretraining import ImageClassifier
from cvt_dense.report.attention import attention_map, record_attention

ARCH = dict(embed_dims=[8, 24], depths=[1, 2], num_heads=[1, 3])
SIZE = (57, 98)  # maps of 14 x 24 and 7 x 12 tokens
CASES = [dict(), dict(stride_kv=1, with_cls_token=False), dict(qkv_proj_method='linear'), dict(qkv_proj_method='avg')]


def build(stride_kv=2, qkv_proj_method='dw_bn', **kwargs) -> CvT:
    """With other statistics and sharper attention than at the start."""
    model = CvT(dict(ARCH, stride_kv=stride_kv, qkv_proj_method=qkv_proj_method), **kwargs).double().eval()
    for name, parameter in model.named_parameters():
        if 'attn.proj_' in name:
            torch.nn.init.normal_(parameter, std=0.7)
        elif '.bn.' in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model


def reference(model: CvT, x: torch.Tensor):
    """By block: A (B, heads, tokens, keys) as the authors' code computes it, and each token's and key's place."""
    expected = {}
    for i in range(2):
        stage = model.stages[i]
        x, (h, w) = stage.patch_embed(x)
        if stage.cls_token is not None:
            x = torch.cat((stage.cls_token.expand(len(x), -1, -1), x), dim=1)
        for j, block in enumerate(stage.blocks):
            weights, _, hw_keys = attention_weights(block.attn, block.norm1(x), (h, w))
            num_cls, stride = x.shape[1] - h * w, round(h / hw_keys[0])
            # A patch of 7 pixels, padded by 2, every 4: its middle is pixel 4 i + 1. Of stage 1's: 8 i + 1.
            step = (4, 8)[i]
            places = [[(math.nan, math.nan)] * num_cls + [(1 + step * f * c, 1 + step * f * r)
                                                          for r in range(rows) for c in range(columns)]
                      for f, (rows, columns) in ((1, (h, w)), (stride, hw_keys))]
            expected[f'stage{i}.blocks.{j}'] = weights, *map(torch.tensor, places)
            x = block(x, (h, w))
        x = x[:, -h * w:].unflatten(1, (h, w)).permute(0, 3, 1, 2)
    return expected


@pytest.fixture(scope='module', params=CASES, ids=str)
def case(request):
    torch.manual_seed(1)
    model, x = build(**request.param), torch.randn(2, 3, *SIZE, dtype=torch.float64)
    with torch.no_grad():
        return model, x, reference(model, x)


def test_weights_and_places(case):
    """Every token of each block is asked for by its place."""
    model, x, expected = case
    for name, (weights, token_places, key_places) in expected.items():
        queries = ['cls' if math.isnan(x) else (x, y) for x, y in token_places.tolist()]
        with torch.no_grad(), record_attention(model, queries) as records:
            model(x)
        record = records[name]
        got = torch.stack([record.weights[query] for query in queries], dim=2)
        torch.testing.assert_close(got, weights, rtol=0, atol=1e-9)
        columns, rows = (key_places[record.num_cls:, axis].unique() for axis in (0, 1))
        half = (columns[1] - columns[0]) / 2
        assert record.extent == (columns[0] - half, columns[-1] + half, rows[-1] + half, rows[0] - half)
        if record.num_cls:
            cls_map = attention_map(record, 'cls')
            assert cls_map.shape == (2, weights.shape[1], *record.hw_keys)
            assert torch.equal(cls_map.flatten(2), record.weights['cls'][..., 1:])


def test_nothing_changes_and_nothing_stays():
    """In a classifier, fused, in low precision: the same outputs, and no hook left."""
    model = ImageClassifier(dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token'), 5).eval()
    x = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        expected = model(x)
        with record_attention(model, ['cls', (40.2, 3)]) as records:
            assert torch.equal(model(x), expected)
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
        weights = records['stage1.blocks.1'].weights
        fuse(model)
        with record_attention(model, ['cls', (40.2, 3)]) as fused:
            with torch.autocast('cpu', torch.bfloat16):
                model(x)
    torch.testing.assert_close(fused['stage1.blocks.1'].weights, weights, rtol=0, atol=.02)
