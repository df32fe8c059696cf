"""Relative positions, linear and windowed attention against their definitions."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cvt_dense.models.attention import SoftmaxAttention
from cvt_dense.models.variants.linear import FocusedLinearAttention
from cvt_dense.models.variants.rel_pos_bias import RelPosBias
from cvt_dense.models.variants.rotary import RotaryPositions
from cvt_dense.models.variants.windowed import WindowedAttention


def test_bias_is_a_function_of_distances():
    """For strided keys, with CLS."""
    bias = RelPosBias(num_heads=3, head_dims=4, stride=2)
    nn.init.normal_(bias.weight)
    h, w, hk, wk = 5, 7, 3, 4
    places = torch.cartesian_prod(torch.arange(h), torch.arange(w))
    keys = 2 * torch.cartesian_prod(torch.arange(hk), torch.arange(wk))
    distances = (places[:, None] - keys).float()
    scores = F.relu(bias.fc(distances.sign() * (1 + distances.abs()).log())) @ bias.weight.T
    scores = F.pad(scores.permute(2, 0, 1), (1, 0, 1, 0))  # CLS: no bias
    q, k, v = torch.randn(2, 1 + h * w, 12), torch.randn(2, 1 + hk * wk, 12), torch.randn(2, 1 + hk * wk, 12)
    heads = [y.unflatten(2, (3, 4)).transpose(1, 2) for y in (q, k, v)]
    expected = ((heads[0] @ heads[1].mT * 0.3 + scores).softmax(-1) @ heads[2]).transpose(1, 2).flatten(2)
    gradient, = torch.autograd.grad(expected.square().sum(), bias.weight, retain_graph=True)
    got = SoftmaxAttention(3, 0.3)(q, k, v, bias.bias((h, w)))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)
    again, = torch.autograd.grad(got.square().sum(), bias.weight)
    torch.testing.assert_close(again, gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('stride', [1, 2])
def test_rotated_scores_depend_on_distances_only(stride):
    """The scores of a map are those of a larger one's lower right part, whatever is to its left."""
    rope = RotaryPositions(num_heads=2, head_dims=6, stride=stride)
    nn.init.normal_(rope.freqs)
    q, k = torch.randn(1, 12), torch.randn(1, 12)

    def score(hw_shape, query, key):  # of the same vectors at two places, in tokens of the map and of the keys
        hw_kv = tuple(-(-side // stride) for side in hw_shape)
        queries, keys = rope.rotate(
            q.expand(1, hw_shape[0] * hw_shape[1], 12), k.expand(1, hw_kv[0] * hw_kv[1], 12), hw_shape)
        return queries[0, query[0] * hw_shape[1] + query[1]] @ keys[0, key[0] * hw_kv[1] + key[1]]

    near = score((6, 8), (0, 1), (1, 2))
    torch.testing.assert_close(score((12, 20), (4, 9), (1 + 4 // stride, 2 + 8 // stride)), near)
    assert not torch.allclose(score((6, 8), (0, 1), (0, 2)), near)


def test_linear_attention_is_its_sum_over_keys():
    attn = FocusedLinearAttention(12, 3)
    nn.init.zeros_(attn.dwc.weight), nn.init.zeros_(attn.dwc.bias)
    q, k, v = torch.randn(2, 1 + 20, 12), torch.randn(2, 1 + 6, 12), torch.randn(2, 1 + 6, 12)
    focused = [(F.relu(x / F.softplus(attn.temperature)) + 1e-6) for x in (q, k)]
    focused = [(x**3 / (x**3).norm(dim=-1, keepdim=True) * x.norm(dim=-1, keepdim=True)).unflatten(2, (3, 4))
               for x in focused]
    weights = torch.einsum('bqhc,bkhc->bhqk', *focused)
    weights = weights / (weights.sum(-1, keepdim=True) + 1e-6)
    expected = torch.einsum('bhqk,bkhc->bqhc', weights, v.unflatten(2, (3, 4))).flatten(2)
    torch.testing.assert_close(attn(q, k, v, (4, 5), (2, 3)), expected, rtol=0, atol=1e-5)
    nn.init.ones_(attn.dwc.weight)
    local = attn(q, k, v, (4, 5), (2, 3)) - expected  # of the corner: nine neighbours of v at the queries' resolution
    large = F.interpolate(v[:, 1:].unflatten(1, (2, 3)).permute(0, 3, 1, 2), (4, 5))
    torch.testing.assert_close(local[:, 1], large[:, :, :3, :3].sum((2, 3)), rtol=0, atol=1e-4)
    torch.testing.assert_close(local[:, 0], torch.zeros(2, 12), rtol=0, atol=1e-5)


def masked_attention(attn: WindowedAttention, x: torch.Tensor, hw_shape: tuple[int, int]) -> torch.Tensor:
    """Return the definition of windows: attention over all keys, in which scores between windows are minus infinity."""
    num_cls = x.shape[1] - hw_shape[0] * hw_shape[1]
    feature_map = x[:, num_cls:].transpose(1, 2).unflatten(2, hw_shape)
    projected, windows = [], []
    for name, size in zip('qkv', (attn.window_size, *[attn.window_size // attn.stride_kv] * 2)):
        conv = getattr(attn, f'conv_proj_{name}') or nn.Identity()
        y = conv(feature_map)
        rows, columns = (torch.arange(side) // size for side in y.shape[2:])
        windows.append((rows[:, None] * 1000 + columns).flatten())
        tokens = getattr(attn, f'proj_{name}')(torch.cat((x[:, :num_cls], y.flatten(2).transpose(1, 2)), dim=1))
        projected.append(tokens.unflatten(2, (attn.num_heads, -1)).transpose(1, 2))
    q, k, v = projected
    scores = q @ k.transpose(2, 3) * attn.scale
    scores[..., num_cls:, num_cls:].masked_fill_(windows[0][:, None] != windows[1], -torch.inf)
    return attn.proj((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize('hw_shape', [
    (8, 12), (7, 9), (4, 4), (3, 11), (13, 2), (5, 5), (1, 1), (1, 9)], ids=str)
@pytest.mark.parametrize('cls_tokens', [0, 1])
@pytest.mark.parametrize('method', ['dw_bn', 'linear'])
def test_windows_are_masked_attention(method, cls_tokens, hw_shape):
    attn = WindowedAttention(window_size=4, embed_dims=12, num_heads=3, qkv_proj_method=method).eval()
    x = torch.randn(2, cls_tokens + hw_shape[0] * hw_shape[1], 12, requires_grad=True)
    got, expected = attn(x, hw_shape), masked_attention(attn, x, hw_shape)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)
    weights = torch.randn_like(got)
    got, expected = (torch.autograd.grad((y * weights).sum(), x)[0] for y in (got, expected))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)
