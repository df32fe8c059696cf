"""What attention takes in a runtime that keeps all its scores."""
from torch import nn

from ..errors import UserError

LIMIT = 2 * 2**30  # bytes of one score matrix; a runtime holds one or two


def largest_scores(backbone: nn.Module, size: tuple[int, int]) -> tuple[int, int]:
    """Bytes in float32 of the largest attention scores of one image, and their stage.

    Args:
        backbone: a CvT; of another one nothing is known: 0 bytes.
        size: height and width of the image.
    """
    worst, place = 0, 0
    for stage in range(len(backbone.depths) if hasattr(backbone, 'stage0') else 0):
        embedding = getattr(backbone, f'stage{stage}').patch_embed.proj
        size = tuple((side + 2 * padding - kernel) // stride + 1 for side, padding, kernel, stride in zip(
            size, embedding.padding, embedding.kernel_size, embedding.stride))
        for block in getattr(backbone, f'stage{stage}').blocks:
            attention = block.attn
            if attention.linear_attention is not None:
                continue  # it has no scores
            window = attention.window_size
            sides = size if window is None or max(size) <= window else (window, window)
            keys = (-(-sides[0] // attention.stride_kv)) * (-(-sides[1] // attention.stride_kv))
            worst, place = max((worst, place), (4 * attention.num_heads * size[0] * size[1] * keys, stage))
    return worst, place


def check_attention(backbone: nn.Module, size: tuple[int, int], suffix: str) -> None:
    """Raises a UserError if ONNX Runtime would keep gigabytes of scores; OpenVINO and PyTorch compute in blocks."""
    scores, stage = largest_scores(backbone, size)
    if suffix == '.onnx' and scores > LIMIT:
        raise UserError(
            f'at {size[0]}x{size[1]} the attention of stage {stage} has {scores / 2**30:.1f} GiB of scores an image, '
            'which ONNX Runtime keeps all at once. Write .xml or .pt2 instead, whose runtimes compute in blocks; or '
            'train with windows (model.backbone.window_size=[28,28,None]); or give a smaller --size.')
