"""The memory of attention in a runtime that keeps all its scores."""
from torch import nn

from ..errors import UserError

LIMIT = 2 * 2**30  # bytes of one score matrix; a runtime holds one or two


def largest_scores(backbone: nn.Module, size: tuple[int, int]) -> tuple[int, int]:
    """Return the bytes in float32 of the largest attention scores of one image, and their stage.

    Args:
        backbone: a CvT; 0 bytes of any other, whose attention is not known.
        size: height and width of the image.
    """
    worst, place = 0, 0
    for number, stage in enumerate(getattr(backbone, 'stages', [])):
        embedding = stage.patch_embed.proj
        size = tuple((side + 2 * padding - kernel) // stride + 1 for side, padding, kernel, stride in zip(
            size, embedding.padding, embedding.kernel_size, embedding.stride))
        for block in stage.blocks:
            worst, place = max((worst, place), (4 * block.attn.count_scores(size), number))
    return worst, place


def check_attention(backbone: nn.Module, size: tuple[int, int], suffix: str) -> None:
    """Check that a runtime does not need gigabytes of memory for attention scores.

    Args:
        backbone: a CvT or any other network.
        size: (H, W) of the image in pixels.
        suffix: suffix of the exported file. Only ONNX Runtime keeps all scores; OpenVINO and PyTorch compute in blocks.

    Raises:
        UserError: ONNX Runtime would keep more than :data:`LIMIT` bytes.
    """
    scores, stage = largest_scores(backbone, size)
    if suffix == '.onnx' and scores > LIMIT:
        raise UserError(
            f'at {size[0]}x{size[1]} the attention of stage {stage} has {scores / 2**30:.1f} GiB of scores an image, '
            'which ONNX Runtime keeps all at once. Write .xml or .pt2 instead, whose runtimes compute in blocks; or '
            "train with windows (model.backbone.attn_cfg of type 'cvt_dense.WindowedAttention'); or give a smaller "
            '--size.')
