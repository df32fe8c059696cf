"""The definition of a network's attention, as tests compare it with what is faster."""
import torch
from torch import Tensor, nn


def attention_weights(attn: nn.Module, x: Tensor, hw_shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return the softmax over all keys and the values.

    Scores between windows are minus infinity.

    Args:
        attn: ConvAttention or WindowedAttention.
        x: tokens (B, CLS + H * W, C).
        hw_shape: H and W.
    """
    (h, w), size = hw_shape, getattr(attn, 'window_size', None)
    num_cls = x.shape[1] - h * w
    cls_token, feature_map = x[:, :num_cls], x[:, num_cls:].transpose(1, 2).unflatten(2, hw_shape)

    def project(conv: nn.Module | None, linear: nn.Module) -> tuple[Tensor, tuple[int, int]]:
        y = feature_map if conv is None else conv(feature_map)
        tokens = linear(torch.cat((cls_token, y.flatten(2).transpose(1, 2)), dim=1))
        return tokens.unflatten(2, (attn.num_heads, -1)).transpose(1, 2), tuple(y.shape[2:])

    def window_of_each(height: int, width: int, size: int) -> Tensor:
        return (torch.arange(height)[:, None] // size * 1000 + torch.arange(width) // size).flatten()

    q, _ = project(attn.conv_proj_q, attn.proj_q)
    k, hw_keys = project(attn.conv_proj_k, attn.proj_k)
    v, _ = project(attn.conv_proj_v, attn.proj_v)
    scores = q @ k.transpose(2, 3) * attn.scale
    if size is not None:
        allowed = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
        allowed[num_cls:, num_cls:] = window_of_each(h, w, size)[:, None] == window_of_each(
            *hw_keys, size // attn.stride_kv)
        scores = scores.masked_fill(~allowed, -torch.inf)
    return scores.softmax(dim=-1), v
