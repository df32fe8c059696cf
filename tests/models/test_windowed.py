"""Windowed attention against a masked softmax over the whole map."""
import pytest
import torch
from plain_attention import attention_weights

from cvt_dense.models.variants.windowed import WindowedAttention


@pytest.mark.parametrize('hw_shape', [
    (8, 12), (7, 9), (4, 4), (3, 11), (13, 2), (5, 5), (1, 1), (1, 9)], ids=str)
@pytest.mark.parametrize('cls_tokens', [0, 1])
@pytest.mark.parametrize('method', ['dw_bn', 'linear'])
def test_windows_are_masked_attention(method, cls_tokens, hw_shape):
    attn = WindowedAttention(window_size=4, embed_dims=12, num_heads=3, qkv_proj_method=method).eval()
    x = torch.randn(2, cls_tokens + hw_shape[0] * hw_shape[1], 12, requires_grad=True)
    weights, values, _ = attention_weights(attn, x, hw_shape)
    got, expected = attn(x, hw_shape), attn.proj((weights @ values).transpose(1, 2).flatten(2))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)
    weights = torch.randn_like(got)
    got, expected = (torch.autograd.grad((y * weights).sum(), x)[0] for y in (got, expected))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)
