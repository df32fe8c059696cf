"""Test-time augmentation with masks."""
from typing import Any

from mmengine.model import BaseTTAModel
from mmengine.registry import MODELS as ROOT_MODELS

from ..registry import MODELS


@MODELS.register_module()
class MaskTTAModel(BaseTTAModel):
    """Tests MMDetection's Mask R-CNN or Cascade Mask R-CNN on several views of each image.

    MMDetection's own ``DetTTAModel`` merges the boxes of all views, but refuses masks. Here the masks of
    the merged boxes are then predicted from the first view of the ``tta_pipeline``.

    Args:
        module: the detector or its config.
        tta_cfg: settings of ``DetTTAModel``: ``nms`` and ``max_per_img`` of the merged boxes.
    """

    def __init__(self, module: Any, tta_cfg: dict[str, Any]):
        super().__init__(module)
        merger = ROOT_MODELS.build(dict(type='DetTTAModel', module=self.module, tta_cfg=tta_cfg))
        self._merge_boxes = merger.merge_preds  # not the merger: the detector would be a part of this twice

    def merge_preds(self, data_samples_list: list[Any]) -> list[Any]:
        """Merge the boxes of each image's views."""
        return self._merge_boxes(data_samples_list)

    def test_step(self, data: dict[str, list[Any]]) -> list[Any]:
        """Return one ``DetDataSample`` with boxes and masks for each image.

        Args:
            data: ``inputs`` and ``data_samples``, each a list of views of lists of images.
        """
        detector, views = self.module, []
        roi_head, first = detector.roi_head, None
        for inputs, data_samples in zip(data['inputs'], data['data_samples']):
            batch = detector.data_preprocessor(dict(inputs=inputs, data_samples=data_samples))
            samples, features = batch['data_samples'], detector.extract_feat(batch['inputs'])
            metas = [sample.metainfo for sample in samples]
            proposals = detector.rpn_head.predict(features, samples, rescale=False)
            boxes = roi_head.predict_bbox(features, metas, proposals, roi_head.test_cfg, rescale=True)
            views.append(detector.add_pred_to_datasample(samples, boxes))
            first = first or (features, metas)
        merged = self.merge_preds(list(zip(*views)))
        features, metas = first
        found = [sample.pred_instances for sample in merged]
        for boxes, meta in zip(found, metas):  # the mask head scales them back to the original image
            boxes.bboxes = boxes.bboxes * boxes.bboxes.new_tensor(meta['scale_factor']).repeat(2)
        masks = roi_head.predict_mask(features, metas, found, rescale=True)
        return detector.add_pred_to_datasample(merged, masks)
