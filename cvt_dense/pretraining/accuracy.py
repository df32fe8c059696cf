"""Top-1, top-5 and cross entropy of a classifier."""
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log

from ..registry import METRICS


@METRICS.register_module()
class Accuracy(BaseMetric):
    """Computes ``accuracy/top1`` and ``accuracy/top5`` in percent, and ``accuracy/loss``, the mean cross entropy.

    The result does not depend on the number of processes. Images with label -1 (unreadable) are left out. With fewer
    than k classes, top-k is 100. Outputs that are not finite are wrong, whatever the label.

    Args:
        topk: the k's.
        collect_device, prefix: as in any MMEngine metric.

    Raises:
        ValueError: no image can be read.
    """

    default_prefix = 'accuracy'

    def __init__(self, topk: Sequence[int] = (1, 5), collect_device: str = 'cpu', prefix: str | None = None):
        super().__init__(collect_device, prefix)
        self.topk = tuple(topk)

    def process(self, data_batch: Any, data_samples: Sequence[dict[str, Any]]) -> None:
        """Store one row for each image: whether its label is known, its loss, and which of the top k are right."""
        logits = torch.stack([sample['logits'] for sample in data_samples]).cpu()
        labels = torch.tensor([sample['label'] for sample in data_samples])
        targets = labels.clamp(min=0)
        losses = F.cross_entropy(logits, targets, reduction='none')
        order = logits.topk(min(max(self.topk), logits.shape[1]), dim=1).indices
        order[~logits.isfinite().all(dim=1)] = -1
        hits = order == targets[:, None]
        self.results += zip((labels >= 0).tolist(), losses.tolist(), hits.tolist())

    def compute_metrics(self, results: list[tuple]) -> dict[str, float]:
        """Return the means over the rows of all processes."""
        rows = [row for row in results if row[0]]
        if len(rows) < len(results):
            print_log(f'{len(results) - len(rows)} of {len(results)} images could not be read and are not in the '
                      'result.', logger='current', level=30)
        if not rows:
            raise ValueError('none of the images to evaluate could be read. The log names them; correct the data root.')
        metrics = {f'top{k}': 100. * sum(any(row[2][:k]) for row in rows) / len(rows) for k in self.topk}
        metrics['loss'] = sum(row[1] for row in rows) / len(rows)
        return metrics
