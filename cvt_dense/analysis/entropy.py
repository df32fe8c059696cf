"""The entropy of attention without its weights."""
import torch
import torch.nn.functional as F
from torch import Tensor

EXTRA = 8  # channels; attention kernels of GPUs take multiples of 8


def query_entropy(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Compute each query's entropy of ``softmax(scale * q k^T)`` in nats, exactly, in memory linear in the tokens.

    ``H_i = log Z_i - scale * q_i . sum_j A_ij k_j`` with ``Z_i = sum_j exp(scale * q_i . k_j)``: the sum is attention
    with the keys in the place of the values. ``Z`` follows from the same call, to which a key with the score 0 is
    added, so that its weight is ``1 / (1 + Z)``. Adding one vector to all keys changes no weight, so their mean is
    taken off before; then ``Z >= number of keys`` (Jensen), which keeps all of it accurate. In float32 that holds for
    scores up to 80 above their mean. The function calls public functions only, so it compiles and exports with correct
    values. The log-sum-exp of an attention kernel does not, because PyTorch replaces such kernels.

    Args:
        q: (B, heads, queries, head_dims).
        k: (B, heads, keys, head_dims).
        scale: factor of the scores.

    Returns:
        (B, heads, queries), 0 to log(keys).
    """
    if q.dtype == torch.float16:  # 1 / (1 + Z) may underflow
        q, k = q.float(), k.float()
    k = F.pad(k - k.mean(dim=2, keepdim=True), (0, EXTRA, 1, 0))
    marked = torch.cat((F.pad(k[:, :, :1, :-EXTRA], (0, EXTRA), value=1.), k[:, :, 1:]), dim=2)
    sums, rest = F.scaled_dot_product_attention(F.pad(q, (0, EXTRA)), k, marked, scale=scale).split(
        [q.shape[3], EXTRA], dim=3)
    rest = rest[..., 0].clamp(min=torch.finfo(rest.dtype).tiny)
    real = 1 - rest  # weight of the real keys
    return (real.log() - rest.log() - scale * (q * sums).sum(dim=3) / real).clamp(min=0)
