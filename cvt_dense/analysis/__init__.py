"""Record and measure a CvT's attention inside any model.

For example::

    with torch.no_grad(), record_attention(model, queries=['cls', 256]) as records:
        model.test_step(data)
    attention_distance(records['stage1.blocks.0'].select(256))  # pixels, one value per head

The hooks are removed at the end of the ``with`` block, and the model is unchanged outside of it.
"""
from .cam import cam_layer, cam_reshape, class_activation
from .heads import choose_heads, head_importance, prune_heads
from .measures import (
    attention_distance,
    attention_entropy,
    attention_map,
    average_attention,
    effective_rank,
    keys_on_tokens,
    rollout,
)
from .observe import find_cvt, recordable_blocks
from .record import AttentionRecord, record_attention, record_entropy

__all__ = [
    'AttentionRecord', 'attention_distance', 'attention_entropy', 'attention_map', 'average_attention', 'cam_layer',
    'cam_reshape', 'choose_heads', 'class_activation', 'effective_rank', 'find_cvt', 'head_importance',
    'keys_on_tokens', 'prune_heads', 'record_attention', 'record_entropy', 'recordable_blocks', 'rollout',
]
