"""Recorded attention and its measures against plain sums in float64, on odd sizes."""
import math

import pytest
import torch

from cvt_dense.analysis import (
    attention_distance,
    attention_entropy,
    attention_map,
    average_attention,
    effective_rank,
    keys_on_tokens,
    record_attention,
    record_entropy,
    rollout,
)
from cvt_dense.deploy.fuse import fuse
from cvt_dense.models import CvT, ImageClassifier

ARCH = dict(embed_dims=[8, 24], depths=[1, 2], num_heads=[1, 3])
SIZE = (57, 98)  # maps of 14 x 24 and 7 x 12 tokens
WINDOWS = dict(type='cvt_dense.WindowedAttention', window_size=4)
CASES = [dict(attn_cfg=WINDOWS), dict(attn_cfg=[WINDOWS, [dict(WINDOWS, window_size=2), None]], with_cls_token=False),
         dict(stride_kv=1), dict(qkv_proj_method='linear'), dict(qkv_proj_method='avg')]


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
    found = {}
    for i in range(2):
        stage = model.stages[i]
        x, (h, w) = stage.patch_embed(x)
        if stage.cls_token is not None:
            x = torch.cat((stage.cls_token.expand(len(x), -1, -1), x), dim=1)
        for j, block in enumerate(stage.blocks):
            attn, tokens = block.attn, block.norm1(x)
            num_cls = tokens.shape[1] - h * w
            image = tokens[:, num_cls:].transpose(1, 2).unflatten(2, (h, w))
            q_map = image if attn.conv_proj_q is None else attn.conv_proj_q(image)
            k_map = image if attn.conv_proj_k is None else attn.conv_proj_k(image)
            q, k = (torch.cat((tokens[:, :num_cls], y.flatten(2).transpose(1, 2)), dim=1) for y in (q_map, k_map))
            q, k = (y.unflatten(2, (attn.num_heads, -1)) for y in (attn.proj_q(q), attn.proj_k(k)))
            scores = torch.einsum('blhd,bthd->bhlt', q, k) * attn.scale
            stride = 1 if attn.conv_proj_k is None else round(h / k_map.shape[2])
            size = getattr(attn, 'window_size', None)
            # A patch of 7 pixels, padded by 2, every 4: its middle is pixel 4 i + 1. Of stage 1's: 8 i + 1.
            step = (4, 8)[i]
            places = [[(math.nan, math.nan)] * num_cls + [(1 + step * f * c, 1 + step * f * r)
                                                          for r in range(rows) for c in range(columns)]
                      for f, (rows, columns) in ((1, (h, w)), (stride, k_map.shape[2:]))]
            if size is not None and max(h, w) > size:
                for a, (xa, ya) in enumerate(places[0]):
                    for b, (xb, yb) in enumerate(places[1]):
                        if not math.isnan(xa + xb) and (xa // step // size, ya // step // size) != (
                                xb // step // size, yb // step // size):
                            scores[:, :, a, b] = -math.inf
            found[f'stage{i}.blocks.{j}'] = scores.softmax(dim=-1), *map(torch.tensor, places)
            x = block(x, (h, w))
        x = x[:, -h * w:].unflatten(1, (h, w)).permute(0, 3, 1, 2)
    return found


@pytest.fixture(scope='module', params=CASES, ids=str)
def case(request):
    torch.manual_seed(1)
    model, x = build(**request.param), torch.randn(2, 3, *SIZE, dtype=torch.float64)
    with torch.no_grad():
        return model, x, reference(model, x)


def test_weights_places_and_measures(case):
    model, x, expected = case
    with torch.no_grad(), record_attention(model, queries=['cls', 'all', 20]) as records:
        model(x)
    assert list(records) == list(expected)
    for name, (weights, token_places, key_places) in expected.items():
        record = records[name].select('all')
        torch.testing.assert_close(record.weights, weights, rtol=0, atol=1e-9)
        for got, places in ((record.token_places, token_places), (record.key_places, key_places)):
            torch.testing.assert_close(got, places, rtol=0, atol=0, equal_nan=True, check_dtype=False)
        num_cls, rank = record.num_cls, 0.
        distance = torch.zeros(weights.shape[1], dtype=torch.float64)
        entropy = torch.zeros_like(distance)
        for a, row in enumerate(weights.unbind(2)):
            keys = max(2, int((row[0, 0] > 0).sum()))  # one key: 0 over whatever
            entropy -= torch.where(row > 0, row * row.log(), 0.).sum(-1).mean(0) / math.log(keys)
            if a >= num_cls:
                length = (key_places[num_cls:] - token_places[a]).double().norm(dim=1)
                on_map = row[..., num_cls:]
                distance += ((on_map * length).sum(-1) / on_map.sum(-1)).mean(0)
        for matrix in weights:
            sigma = torch.linalg.eigvalsh(matrix @ matrix.mT).clamp(min=0).sqrt()
            p = sigma / sigma.sum(-1, keepdim=True)
            rank += (-(p * p.clamp(min=1e-300).log()).sum(-1)).exp() / len(weights)
        for got, wanted in ((attention_distance(record), distance / (weights.shape[2] - num_cls)),
                            (attention_entropy(record), entropy / weights.shape[2])):
            torch.testing.assert_close(got, wanted, rtol=0, atol=1e-9)
        torch.testing.assert_close(effective_rank(record), rank, rtol=1e-4, atol=0)
        sample = records[name].select(20)
        assert 12 <= len(sample.queries) <= 20 and sample.queries.unique().numel() == len(sample.queries)
        torch.testing.assert_close(sample.weights, weights[:, :, sample.queries], rtol=0, atol=1e-9)
        if num_cls:
            cls_map = attention_map(records[name].select('cls'))
            assert cls_map.shape == (2, weights.shape[1], 1, *record.hw_keys)
            assert torch.equal(cls_map.flatten(3), records[name].select('cls').weights[..., 1:])


def test_entropy_without_weights(case):
    model, x, expected = case
    with torch.no_grad(), record_entropy(model) as entropies:
        model(x)
    for name, (weights, *_) in expected.items():
        keys = (weights > 0).sum(-1)
        wanted = torch.special.entr(weights).sum(-1) / keys.log().clamp(min=1e-9)
        torch.testing.assert_close(entropies[name], wanted, rtol=0, atol=1e-6)


def test_rollout_and_average():
    """Against the product of dense matrices; what is even stays even."""
    model, x = build(), torch.randn(1, 3, *SIZE, dtype=torch.float64)
    with torch.no_grad():
        expected = reference(model, x)
        with record_attention(model, 'stage1', ['all', 20], average_heads=True) as records:
            model(x)
    assert list(records) == ['stage1.blocks.0', 'stage1.blocks.1']
    sampled = records['stage1.blocks.1'].select(20)
    records = [record.select('all') for record in records.values()]
    spread = keys_on_tokens(records[0])
    assert spread.shape == (1 + 4 * 6, 1 + 7 * 12) and (spread.sum(1) - 1).abs().max() < 1e-12
    on_map = spread[1:, 1:].sum(0).view(7, 12)[2:-2, 2:-2]  # what equal attention to all keys gives each token
    torch.testing.assert_close(on_map, torch.full_like(on_map, 0.25), rtol=0, atol=1e-12)
    eye = torch.eye(85, dtype=torch.float64)
    steps = [(expected[r.block][0][0].mean(0) @ spread + eye) / 2 for r in records]
    got = rollout(records)
    torch.testing.assert_close(got[0], steps[1] @ steps[0], rtol=0, atol=1e-9)
    assert (got.sum(-1) - 1).abs().max() < 1e-9
    torch.testing.assert_close(rollout(records, eye[:1]), got[:, :1], rtol=0, atol=1e-12)
    wanted = sum(expected[r.block][0].mean(1) for r in records) / 2 @ spread
    torch.testing.assert_close(average_attention(records), wanted, rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match='stage1.blocks.1'):
        rollout([records[0], sampled])


def test_nothing_changes_and_nothing_stays():
    """In a classifier, fused, in low precision: the same outputs, and no hook left."""
    model = ImageClassifier(dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token', attn_cfg=WINDOWS), 5).eval()
    x = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        expected = model(x)
        with record_attention(model, 'stage1.blocks.1', ['cls', (40.2, 3)]) as records:
            assert torch.equal(model(x), expected)
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
        record = records['stage1.blocks.1']
        assert record.queries.tolist() == [0, 1 + 5]  # row 0, column 5: pixel 41
        fuse(model)
        with record_attention(model, 'stage1.blocks.1', ['cls', (40.2, 3)]) as fused:
            with torch.autocast('cpu', torch.bfloat16):
                model(x)
    assert fused['stage1.blocks.1'].weights.dtype == torch.float32
    torch.testing.assert_close(fused['stage1.blocks.1'].weights, record.weights, rtol=0, atol=.02)


def test_mistakes():
    model, x = build(), torch.rand(1, 3, 48, 64, dtype=torch.float64)
    for options, named in ((dict(blocks=['stage2.blocks.0']), 'stage2.blocks.0'), (dict(queries=['head']), 'head')):
        with pytest.raises(ValueError, match=named):
            record_attention(model, **options).__enter__()
    with pytest.raises(ValueError, match='x=64'):
        with record_attention(model, queries=(64, 3)):
            model(x)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    with pytest.raises(ValueError, match='cvt_dense.CvT'):
        record_attention(torch.nn.Linear(1, 1)).__enter__()
