"""Windowed attention against a masked softmax over the whole map, and its options."""
import pytest
import torch
from torch import Tensor

from cvt_dense.models import CvT
from cvt_dense.models.layers import ConvAttention

ARCH = dict(embed_dims=[8, 24, 48], depths=[1, 2, 2], num_heads=[1, 3, 6])


def masked_attention(attn: ConvAttention, x: Tensor, hw_shape) -> Tensor:
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
    attn = ConvAttention(12, 3, method=method, window_size=4).eval()
    x = torch.randn(2, cls_tokens + hw_shape[0] * hw_shape[1], 12, requires_grad=True)
    got, expected = attn(x, hw_shape), masked_attention(attn, x, hw_shape)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)
    weights = torch.randn_like(got)
    got, expected = (torch.autograd.grad((y * weights).sum(), x)[0] for y in (got, expected))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)


def test_neighbouring_windows_see_each_others_borders_only():
    attn = ConvAttention(12, 3, window_size=4).eval()
    feature_map = torch.randn(1, 4, 12, 12)

    def changes(columns):  # per column, when these columns of the map are another
        other = feature_map.clone()
        other[:, :, columns] += 1
        a, b = (attn(y.flatten(1, 2), (4, 12)) for y in (feature_map, other))
        return ((a - b).view(4, 12, 12).abs().amax((0, 2)) > 1e-4).tolist()

    assert changes([0, 1, 2]) == [True] * 4 + [False] * 8
    # The next window's first keys are convolved of column 3, too.
    assert changes([0, 1, 2, 3]) == [True] * 8 + [False] * 4


@pytest.mark.parametrize('size', [(64, 64), (65, 97)], ids=str)
def test_one_window_over_the_map_is_global_attention(size):
    x = torch.rand(2, 3, *size)
    plain = CvT(ARCH).eval()
    windowed = CvT(ARCH, window_size=24).eval()
    windowed.load_state_dict(plain.state_dict())
    for got, expected in zip(windowed(x), plain(x)):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)
    # the windows' own code, in the same case
    attn = ConvAttention(12, 3, window_size=8).eval()
    q, k, v = (torch.rand(2, n, 12) for n in (1 + 7 * 8, 1 + 4 * 4, 1 + 4 * 4))
    got, expected = attn._attend_in_windows(q, k, v, (7, 8)), attn._attend(q, k, v)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)


def test_windows_change_the_output_where_the_map_is_larger():
    x, plain = torch.rand(1, 3, 128, 160), CvT(ARCH).eval()
    windowed = CvT(ARCH, window_size=[4, None, None]).eval()
    windowed.load_state_dict(plain.state_dict())
    assert all((a - b).abs().max() > 1e-3 for a, b in zip(windowed(x), plain(x)))


def windows_of(model):
    return [[block.attn.window_size for block in model._stage(i).blocks] for i in range(3)]


def test_window_size_per_stage_and_block():
    assert windows_of(CvT(ARCH)) == [[None], [None, None], [None, None]]
    assert windows_of(CvT(ARCH, window_size=14)) == [[14], [14, 14], [14, 14]]
    assert windows_of(CvT(ARCH, window_size=(28, 14, None))) == [[28], [14, 14], [None, None]]
    assert windows_of(CvT(ARCH, window_size=[28, [14, None], None])) == [[28], [14, None], [None, None]]
    odd = dict(ARCH, qkv_proj_method='linear')
    assert windows_of(CvT(odd, window_size=7)) == [[7], [7, 7], [7, 7]]


@pytest.mark.parametrize('window_size, arch, message', [
    (7, {}, 'window_size=7 in stage 0: must be a positive multiple of stride_kv=2, or None for global '
            'attention.'),
    ([None, 0, None], {}, 'window_size=0 in stage 1: must be a positive multiple of stride_kv=2, or None for '
                          'global attention.'),
    ([28, 28], {}, 'window_size=[28, 28] has 2 values, but arch has 3 stages: give one value per stage.'),
    ([28, [28], 28], {}, 'window_size[1]=[28] has 1 values, but stage 1 has 2 blocks: give one value, or one '
                         'per block.'),
    (8, dict(qkv_proj_method='avg'),
     "window_size[0]=8 with qkv_proj_method='avg', kernel_qkv=3, padding_kv=1: windows need a k/v map that is "
     "exactly stride_kv times smaller: 'linear', or 'dw_bn' with padding_kv (kernel_qkv - 1) / 2; or set "
     'window_size to None.'),
], ids=str)
def test_wrong_window_size(window_size, arch, message):
    with pytest.raises(ValueError) as error:
        CvT({**ARCH, **arch}, window_size=window_size)
    assert str(error.value) == message
