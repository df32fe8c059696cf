"""Adapt weights to images with another number of channels."""
from mmengine.logging import print_log
from torch import Tensor

from ..errors import CheckpointError
from .formats import StateDict, convert, recognise

FIRST = 'stage0.patch_embed.proj.weight'  # (embed_dims, in_channels, kernel, kernel), in the authors' naming
RGB = 3  # channels that the rule starts from


def adapt_channels(state_dict: StateDict, in_channels: int, source: str) -> dict[str, Tensor]:
    """Return a CvT state dict whose first convolution takes ``in_channels``, by timm's ``adapt_input_conv``.

    One channel gets the sum over R, G and B, so that a grey image has the same outputs as in RGB. More than three get
    R, G, B, R, G, ... as often as needed, times 3 / ``in_channels``, so that outputs keep their scale. The log names
    the change. Weights that have ``in_channels`` already are not changed.

    Args:
        state_dict: in any of the formats; one without the first convolution is returned unchanged.
        in_channels: number of channels of the network's images.
        source: where the file comes from, for the log and the error.

    Raises:
        CheckpointError: the file is not for 3 channels, from which the rule starts, and not for ``in_channels``.
    """
    from timm.models import adapt_input_conv
    tensors = dict(state_dict)
    key = next((key for key in tensors if recognise([key]) and FIRST in convert({key: None}, 'microsoft')), None)
    channels = in_channels if key is None else tensors[key].shape[1]
    if channels == in_channels:
        return tensors
    if channels != RGB:
        raise CheckpointError(f"{source} is for {channels} channels: in_channels='adapt' starts from {RGB}.")
    tensors[key] = adapt_input_conv(in_channels, tensors[key])
    how = 'summed over R, G, B' if in_channels == 1 else f'R, G, B in turn, times {RGB}/{in_channels}'
    print_log(f"in_channels='adapt': {FIRST} was made one of {in_channels} channels ({how}); from {source}", 'current')
    return tensors
