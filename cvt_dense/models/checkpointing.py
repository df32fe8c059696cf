"""Activation checkpointing of a block, which keeps the output of its attention kernel."""
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from .attention import Shape, has_statistics

# Kernels whose output activation checkpointing keeps: on large maps attention is most of a block's time, while its
# output is about a twentieth of the block's activations.
ATTENTION_KERNELS = [
    getattr(torch.ops.aten, name).default
    for name in ('_scaled_dot_product_flash_attention', '_scaled_dot_product_flash_attention_for_cpu',
                 '_scaled_dot_product_efficient_attention', '_scaled_dot_product_cudnn_attention')
    if hasattr(torch.ops.aten, name)
]


def checkpoint_block(block: nn.Module, x: Tensor, hw_shape: Shape) -> Tensor:
    """Run a block whose activations, except its attention kernel's output, the backward pass computes again.

    BatchNorm's running statistics move once, as without recomputation.

    Args:
        block: a :class:`~.attention.Block`.
        x, hw_shape: its arguments.
    """
    return checkpoint(block, x, hw_shape, use_reentrant=False, context_fn=partial(_checkpoint_contexts, block))


def _checkpoint_contexts(block: nn.Module) -> tuple[AbstractContextManager, AbstractContextManager]:
    """Return the contexts of a block's first and second pass: the first keeps what attention kernels return."""
    # CUDA's kernels draw dropout themselves: one that is not repeated would shift the numbers of all further dropout.
    keep, reuse = create_selective_checkpoint_contexts([] if block.attn.attn_drop_rate else ATTENTION_KERNELS)
    # torch.compile accepts these two alone; in its graph the update of statistics happens once.
    return keep, reuse if torch.compiler.is_compiling() else _second_pass(block, reuse)


@contextmanager
def _second_pass(block: nn.Module, reuse: AbstractContextManager) -> Iterator[None]:
    """Reuse what was kept, and leave the running statistics of BatchNorm where the first pass put them."""
    norms = [module for module in block.modules() if has_statistics(module)]
    saved = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        # The second pass counts batches on a copy, since SyncBatchNorm does not accept None.
        norm.momentum, norm.num_batches_tracked = 0., norm.num_batches_tracked.clone()
    try:
        with reuse:
            yield
    finally:
        for norm, (momentum, count) in zip(norms, saved):
            norm.momentum, norm.num_batches_tracked = momentum, count
