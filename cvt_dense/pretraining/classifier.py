"""Image classification on MMEngine's BaseModel."""
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.model import BaseModel
from torch import Tensor, nn

from ..config import type_name
from ..models.cvt import init_linear
from ..registry import MODELS
from ..weights import StrictLoading


@MODELS.register_module()
class ImageClassifier(StrictLoading, BaseModel):
    """A backbone that returns one vector per image, and one Linear on it.

    Args:
        backbone: config (or module) whose forward returns ``((B, C), )``, and whose ``out_channels`` is ``(C, )``:
            :class:`CvT` with ``out_type`` 'cls_token' or 'avg_featmap', :class:`TimmBackbone` with 'pooled'.
        num_classes: outputs of the head.
        data_preprocessor: config; a ``ClassificationPreprocessor`` without ``num_classes`` gets this
            classifier's.
        init_cfg: as in any MMEngine module.

    Raises:
        ValueError: the backbone returns maps.
    """

    task = 'classification'

    def __init__(self, backbone: dict[str, Any] | nn.Module, num_classes: int = 1000,
                 data_preprocessor: dict[str, Any] | None = None,
                 init_cfg: dict[str, Any] | list[dict[str, Any]] | None = None):
        data_preprocessor = dict(data_preprocessor or dict(type='cvt_dense.ClassificationPreprocessor'))
        if type_name(data_preprocessor) == 'ClassificationPreprocessor':
            data_preprocessor.setdefault('num_classes', num_classes)
        super().__init__(data_preprocessor, init_cfg)
        self.backbone = backbone if isinstance(backbone, nn.Module) else MODELS.build(backbone)
        if getattr(self.backbone, 'out_type', None) == 'featmap':
            raise ValueError("model.backbone.out_type='featmap' returns maps; a classifier needs one vector "
                             "per image: use 'cls_token' or 'avg_featmap', or 'pooled' of a TimmBackbone.")
        self.num_classes = num_classes
        self.head = init_linear(nn.Linear(self.backbone.out_channels[-1], num_classes))

    def forward(self, inputs: Tensor, labels: Tensor | None = None, paths: Sequence[str] | None = None,
                mode: str = 'tensor') -> Tensor | dict[str, Tensor] | list[dict[str, Any]]:
        """Run one batch.

        Args:
            inputs: (B, 3, H, W), preprocessed.
            labels: int64 (B, ), or soft, float (B, num_classes); needed by ``'loss'``.
            paths: file of each image; passed on by ``'predict'``.
            mode: what to return.

        Returns:
            ``'tensor'``: logits (B, num_classes). ``'loss'``: dict with ``loss``, the mean cross
            entropy. ``'predict'``: one dict per image with
            ``logits`` (num_classes, ), ``pred_label`` and, where given, ``label`` (-1: unknown) and ``path``.
        """
        logits = self.head(self.backbone(inputs)[0])
        if mode == 'tensor':
            return logits
        logits = logits.float()
        if mode == 'loss':
            return dict(loss=F.cross_entropy(logits, labels))
        columns = dict(pred_label=logits.argmax(dim=1))
        if labels is not None:
            columns['label'] = labels
        columns = dict(zip(columns, torch.stack(list(columns.values())).tolist()), logits=logits)  # one wait
        if paths is not None:
            columns['path'] = paths
        return [dict(zip(columns, row)) for row in zip(*columns.values())]
