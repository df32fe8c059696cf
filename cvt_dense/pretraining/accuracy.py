"""Top-1, top-5 and cross entropy of a classifier."""
import json
import pkgutil
import re
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log

from ..registry import METRICS

IMAGENET_VAL_NAME = re.compile(r'ILSVRC2012_val_(\d{8})')


def read_valid_classes(name: str) -> list[int]:
    """Return the numbers, among ImageNet's 1000, of the classes of 'imagenet-a' or 'imagenet-r', from timm's lists."""
    text = pkgutil.get_data('timm.data', f'_info/{name.replace("-", "_")}_indices.txt').decode()
    return [int(line) for line in text.split()]


@METRICS.register_module()
class Accuracy(BaseMetric):
    """Computes ``accuracy/top1`` and ``accuracy/top5`` in percent, and ``accuracy/loss``, the mean cross entropy.

    The result does not depend on the number of processes. Images with label -1 (unreadable) are left out. With fewer
    than k classes, top-k is 100. Outputs that are not finite are wrong, whatever the label.

    Args:
        topk: the k's.
        valid_classes: numbers of the only outputs that compete, or 'imagenet-a' or 'imagenet-r' for their 200 of the
            1000 classes.
        real_labels: JSON file of ImageNet ReaL: a list of lists, the classes that each validation image shows, in the
            order of the file names (``ILSVRC2012_val_00000001.JPEG`` first). Adds ``accuracy/real_top1`` (and
            top-k), the fraction of predictions that are among those classes; images without any are left out.
        collect_device, prefix: as in any MMEngine metric.

    Raises:
        FileNotFoundError: timm has no list of that name.
        ValueError: an image's label is not in ``valid_classes``, or its name has no number in ``real_labels``.
    """

    default_prefix = 'accuracy'

    def __init__(self, topk: Sequence[int] = (1, 5), valid_classes: Sequence[int] | str | None = None,
                 real_labels: str | None = None, collect_device: str = 'cpu', prefix: str | None = None):
        super().__init__(collect_device, prefix)
        self.topk = tuple(topk)
        if isinstance(valid_classes, str):
            valid_classes = read_valid_classes(valid_classes)
        self.valid_classes = None if valid_classes is None else torch.tensor(sorted(set(valid_classes)))
        self.real_labels: list[list[int]] | None = None
        if real_labels is not None:
            with open(real_labels, encoding='utf-8') as file:
                self.real_labels = json.load(file)

    def process(self, data_batch: Any, data_samples: Sequence[dict[str, Any]]) -> None:
        """Store one row for each image: whether its label is known, its loss, and which of the top k are right."""
        logits = torch.stack([sample['logits'] for sample in data_samples]).cpu()
        labels = torch.tensor([sample['label'] for sample in data_samples])
        if self.valid_classes is not None:
            logits = logits[:, self.valid_classes]
            labels = self._to_valid(labels, data_samples)
        targets = labels.clamp(min=0)
        losses = F.cross_entropy(logits, targets, reduction='none')
        order = logits.topk(min(max(self.topk), logits.shape[1]), dim=1).indices
        order[~logits.isfinite().all(dim=1)] = -1
        hits = order == targets[:, None]
        for i, sample in enumerate(data_samples):
            real_hits = None if self.real_labels is None else self._real_hits(order[i], sample['path'])
            self.results.append((bool(labels[i] >= 0), losses[i].item(), hits[i].tolist(), real_hits))

    def _to_valid(self, labels: torch.Tensor, data_samples: Sequence[dict[str, Any]]) -> torch.Tensor:
        """Return the labels as positions in ``valid_classes``; -1 stays."""
        positions = torch.searchsorted(self.valid_classes, labels).clamp(max=len(self.valid_classes) - 1)
        wrong = (labels >= 0) & (self.valid_classes[positions] != labels)
        if wrong.any():
            i = int(wrong.nonzero()[0])
            raise ValueError(f"{data_samples[i].get('path', 'an image')!r} has the label {int(labels[i])}, which is "
                             f'not one of the {len(self.valid_classes)} valid_classes.')
        return torch.where(labels < 0, labels, positions)

    def _real_hits(self, order: torch.Tensor, path: str) -> list[bool] | None:
        """Return which of the best outputs are classes that the image shows; None if it shows none."""
        match = IMAGENET_VAL_NAME.search(path)
        number = int(match.group(1)) if match else 0
        if not 1 <= number <= len(self.real_labels):
            raise ValueError(f'{path!r} is not named ILSVRC2012_val_<00000001 to {len(self.real_labels):08d}>, so '
                             'real_labels has no entry for it.')
        real = self.real_labels[number - 1]
        if self.valid_classes is not None:
            order = torch.where(order < 0, -1, self.valid_classes[order])
        return [int(k) in real for k in order] if real else None

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
        if self.real_labels is not None:
            real = [row[3] for row in rows if row[3] is not None]
            for k in self.topk:
                metrics[f'real_top{k}'] = 100. * sum(any(hits[:k]) for hits in real) / max(1, len(real))
        return metrics
