"""Record and measure a CvT's attention inside any model.

For example::

    with torch.no_grad(), record_attention(model, ['stage1.blocks.0'], ['cls', 256]) as records:
        model.test_step(data)
    attention_distance(records['stage1.blocks.0'].select(256))  # pixels, one value per head

The hooks are removed at the end of the ``with`` block, and the model is unchanged outside of it.
"""
from .attention import AttentionRecord, attention_distance, attention_map, find_cvt, record_attention, recordable_blocks
from .cam import cam_layer, class_activation

__all__ = [
    'AttentionRecord', 'attention_distance', 'attention_map', 'cam_layer', 'class_activation', 'find_cvt',
    'record_attention', 'recordable_blocks',
]
