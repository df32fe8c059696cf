"""Attention is a plain, slow reading of the paper's equations (sections 3.1 and 3.2), in float64."""
import math

import pytest
import torch
import torch.nn.functional as F
from random_weights import randomise

from cvt_dense.models.attention import ConvAttention


def batch_norm(x, bn):
    statistics = (None, None) if bn.training else (bn.running_mean, bn.running_var)
    return F.batch_norm(x, *statistics, bn.weight, bn.bias, training=bn.training, eps=bn.eps)


def attention(attn, x, height, width, method, stride_kv):
    """Concat_h(softmax(q_h k_h' / sqrt(C)) v_h), after the projections of equation 2."""
    batch, count, channels = x.shape
    num_cls = count - height * width
    cls_token, tokens = x[:, :num_cls], x[:, num_cls:]
    image = tokens.transpose(1, 2).reshape(batch, channels, height, width)
    projected = []
    for name, stride in (('q', 1), ('k', stride_kv), ('v', stride_kv)):
        conv = getattr(attn, f'conv_proj_{name}')
        if method == 'dw_bn':
            y = batch_norm(F.conv2d(image, conv.conv.weight, stride=stride, padding=1, groups=channels), conv.bn)
        elif method == 'avg' and name != 'q':
            y = F.avg_pool2d(image, 3, stride, padding=1, ceil_mode=True)
        else:
            y = image
        y = torch.cat([cls_token, y.flatten(2).transpose(1, 2)], dim=1)
        linear = getattr(attn, f'proj_{name}')
        projected.append(y @ linear.weight.T + (0 if linear.bias is None else linear.bias))
    q, k, v = (y.unflatten(2, (attn.num_heads, -1)).transpose(1, 2) for y in projected)
    heads = (q @ k.transpose(2, 3) / math.sqrt(channels)).softmax(dim=-1) @ v
    return heads.transpose(1, 2).flatten(2) @ attn.proj.weight.T + attn.proj.bias


@pytest.mark.parametrize('training', [False, True], ids=['eval', 'train'])
@pytest.mark.parametrize('num_cls', [0, 1])
@pytest.mark.parametrize('method, stride_kv', [('dw_bn', 1), ('dw_bn', 2), ('dw_bn', 3), ('avg', 1), ('avg', 2),
                                               ('avg', 3), ('linear', 1)])
def test_attention(method, stride_kv, num_cls, training):
    module = ConvAttention(12, 3, qkv_proj_method=method, stride_kv=stride_kv, qkv_bias=num_cls == 0)
    module = randomise(module.double()).train(training)
    for height, width in ((5, 8), (6, 7)):
        x = torch.randn(2, num_cls + height * width, 12, dtype=torch.float64)
        expected = attention(module, x, height, width, method, stride_kv)
        torch.testing.assert_close(module(x, (height, width)), expected, rtol=0, atol=1e-12)
