"""Layer-wise learning rate decay for any model whose backbone has ``get_layer_depth``."""
from typing import Any

from mmengine.logging import MMLogger
from mmengine.optim import DefaultOptimWrapperConstructor
from torch import nn

from ..console import FILE_ONLY
from ..registry import OPTIM_WRAPPER_CONSTRUCTORS


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class LayerDecayOptimWrapperConstructor(DefaultOptimWrapperConstructor):
    """Give layer ``i`` of ``n`` the learning rate ``lr * decay_rate ** (n - 1 - i)``.

    The model's ``backbone`` determines the layer of a parameter (``get_layer_depth(param_name,
    prefix)``, see :meth:`cvt_dense.models.CvT.get_layer_depth`); necks and heads are the last layer
    and keep ``lr``. One-dimensional parameters (BatchNorm, LayerNorm, biases), CLS tokens and what the
    backbone names (``no_weight_decay()``, as in timm: position embeddings) get no weight decay. Frozen
    parameters are left out. The groups are printed to the log.

    It works for classifiers, detectors and segmentors alike, in anyone's config::

        optim_wrapper = dict(
            type='OptimWrapper',
            optimizer=dict(type='AdamW', lr=1e-4, weight_decay=0.05),
            constructor='cvt_dense.LayerDecayOptimWrapperConstructor',
            paramwise_cfg=dict(decay_rate=0.9))

    Args:
        optim_wrapper_cfg: the optimizer wrapper, its optimizer with ``lr`` and ``weight_decay``.
        paramwise_cfg: ``decay_rate`` (above 0, at most 1; 1 leaves only the weight decay rule) and
            optionally ``no_decay_keys``: a parameter with one of these texts in its name gets no
            weight decay either, for example a head's ``['query_embed']``.

    Raises:
        ValueError: ``paramwise_cfg`` has no allowed ``decay_rate``, or other keys; or the optimizer has no ``lr``.
        AttributeError: the model has no ``backbone`` with ``get_layer_depth``.
    """

    def __init__(self, optim_wrapper_cfg: dict[str, Any], paramwise_cfg: dict[str, Any] | None = None):
        super().__init__(optim_wrapper_cfg, paramwise_cfg)
        settings = dict(self.paramwise_cfg)
        self.decay_rate, self.no_decay_keys = settings.pop('decay_rate', None), settings.pop('no_decay_keys', ())
        if settings or not 0 < (self.decay_rate or 0) <= 1:
            raise ValueError(f'paramwise_cfg={self.paramwise_cfg!r}: allowed are decay_rate, above 0 and at most 1, '
                             'and no_decay_keys.')
        if self.base_lr is None:
            raise ValueError('The optimizer has no lr, from which the learning rates of the layers follow: set it.')

    def add_params(self, params: list[dict[str, Any]], module: nn.Module, **kwargs) -> None:
        """Append a model's parameter groups: lowest learning rate first, without weight decay before with."""
        backbone = module.backbone
        free = {f'backbone.{name}' for name in getattr(backbone, 'no_weight_decay', set)()}
        groups: dict[tuple[float, float], dict[str, Any]] = {}
        for name, param in module.named_parameters():
            if not param.requires_grad:
                continue
            layer, num_layers = backbone.get_layer_depth(name, 'backbone.')
            lr = self.base_lr * self.decay_rate**(num_layers - 1 - layer)
            free_name = name.endswith('cls_token') or name in free
            decays = param.ndim > 1 and not free_name and not any(key in name for key in self.no_decay_keys)
            weight_decay = (self.base_wd or 0.) if decays else 0.
            group = groups.setdefault((lr, weight_decay), dict(params=[], lr=lr, weight_decay=weight_decay))
            group['params'].append(param)
        params += [groups[key] for key in sorted(groups)]
        lines = [f'\n  lr {group["lr"]:.3e}, weight decay {group["weight_decay"]:g}: {len(group["params"])} tensors'
                 for group in params]
        MMLogger.get_current_instance().info(
            f'learning rate times {self.decay_rate:g} a layer:{"".join(lines)}', extra=FILE_ONLY)
