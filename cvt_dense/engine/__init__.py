from .errors import UserError
from .hooks import NonFiniteLossHook, RawWeightsHook, SeedHook, UnreadableImagesHook
from .layer_decay import LayerDecayOptimWrapperConstructor

__all__ = [
    'LayerDecayOptimWrapperConstructor', 'NonFiniteLossHook', 'RawWeightsHook', 'SeedHook', 'UnreadableImagesHook',
    'UserError'
]
