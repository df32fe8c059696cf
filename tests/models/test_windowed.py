"""Windowed attention against a masked softmax over the whole map."""
import pytest
import torch
from torch import Tensor

from cvt_dense.models.variants.windowed import WindowedAttention


def masked_attention(attn: WindowedAttention, x: Tensor, hw_shape) -> Tensor:
    """The definition: every score, minus infinity where query and key are in different windows."""
    (h, w), size, stride = hw_shape, attn.window_size, attn.stride_kv
    num_cls = x.shape[1] - h * w
    cls_token, feature_map = x[:, :num_cls], x[:, num_cls:].transpose(1, 2).unflatten(2, hw_shape)

    def project(conv, linear):
        y = feature_map if conv is None else conv(feature_map)
        y = linear(torch.cat((cls_token, y.flatten(2).transpose(1, 2)), dim=1))
        return y.unflatten(2, (attn.num_heads, -1)).transpose(1, 2)

    def window_of_each(height, width, size):
        return (torch.arange(height)[:, None] // size * 1000 + torch.arange(width) // size).flatten()

    q = project(attn.conv_proj_q, attn.proj_q)
    k = project(attn.conv_proj_k, attn.proj_k)
    v = project(attn.conv_proj_v, attn.proj_v)
    allowed = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    allowed[num_cls:, num_cls:] = window_of_each(h, w, size)[:, None] == window_of_each(
        -(-h // stride), -(-w // stride), size // stride)
    scores = (q @ k.transpose(2, 3) * attn.scale).masked_fill(~allowed, -torch.inf)
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
