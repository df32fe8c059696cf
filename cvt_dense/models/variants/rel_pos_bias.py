"""Relative positions as a bias of the attention scores."""
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...registry import MODELS
from ..attention import RelativePositions, Shape


@MODELS.register_module()
class RelPosBias(RelativePositions):
    """Continuous relative position bias in log coordinates (Swin V2, arXiv 2111.09883, section 3.3).

    ``softmax(scale * q k^T + B)``, where B is an MLP of ``sign(d) * log(1 + |d|)`` of the distances d = (dy, dx), as in
    timm's ``RelPosMlp``; its last layer starts at 0, so that published weights keep their function. The MLP sees each
    distance once.

    The bias of all queries and keys is one tensor, and on the CPU it prevents the flash kernel in training, which takes
    no bias with a gradient: meant for windows and the small maps of late stages.

    Args:
        hidden_dims: hidden channels of the MLP.
        kwargs: arguments of :class:`RelativePositions`.
    """

    def __init__(self, hidden_dims: int = 128, **kwargs: Any):
        super().__init__(**kwargs)
        self.fc = nn.Linear(2, hidden_dims)
        self.weight = nn.Parameter(torch.zeros(self.num_heads, hidden_dims))

    def bias(self, hw_shape: Shape) -> Tensor:
        """Return the bias of each query and key on a map or window: (heads, H * W, H' * W')."""
        (h, w), (hk, wk) = hw_shape, ((side + self.stride - 1) // self.stride for side in hw_shape)
        like = dict(device=self.weight.device, dtype=torch.promote_types(self.weight.dtype, torch.float32))
        dy = torch.arange(-self.stride * (hk - 1), h, **like)
        dx = torch.arange(-self.stride * (wk - 1), w, **like)
        distances = torch.stack(torch.meshgrid(dy, dx, indexing='ij'), dim=-1)
        distances = (distances.sign() * distances.abs().log1p()).to(self.weight.dtype)
        table = F.linear(F.relu(self.fc(distances)), self.weight).permute(2, 0, 1)  # heads, all dy, all dx

        def index(queries: int, keys: int) -> Tensor:
            places = torch.arange(queries, device=table.device)[:, None]
            return places + self.stride * (keys - 1 - torch.arange(keys, device=table.device))

        bias = table[:, index(h, hk)][..., index(w, wk)]  # heads, h, hk, w, wk
        return bias.transpose(2, 3).flatten(3).flatten(1, 2)
