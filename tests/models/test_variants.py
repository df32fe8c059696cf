"""Windowed attention against its definition."""
import pytest
import torch
from torch import nn

from cvt_dense.models.variants.windowed import WindowedAttention


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


@pytest.mark.parametrize('hw_shape', [(8, 12), (7, 9), (4, 4), (3, 11), (13, 2), (5, 5), (1, 1), (1, 9)], ids=str)
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
