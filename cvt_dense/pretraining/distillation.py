"""Train a classifier on a teacher's outputs beside the labels."""
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import UserError
from ..registry import MODELS
from .teachers import Teacher


def hard_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Compute the mean cross entropy of logits (B, classes) with the teacher's most probable class (DeiT)."""
    return F.cross_entropy(student, teacher.argmax(dim=1))


def soft_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Compute T^2 KL(teacher / T || student / T), the mean over images (Hinton et al. 2015).

    DeiT's code divides by images x classes, which makes the term 1000 times smaller on ImageNet and changes its weight
    with the number of classes. Divided by images, it has the scale of the cross entropy, and T^2 keeps the
    scale of its gradients for every T. So ``alpha`` is the fraction of the loss for any number of classes.

    Args:
        student, teacher: logits (B, classes).
        temperature: T.
    """
    divergence = F.kl_div(F.log_softmax(student / temperature, dim=1), F.log_softmax(teacher / temperature, dim=1),
                          reduction='batchmean', log_target=True)
    return divergence * temperature**2


class Distillation:
    """A teacher and its loss. This is not a module, so that no state dict, average or DDP includes the teacher.

    Args:
        teacher: ``dict(type='cvt_dense.TimmTeacher', ...)``, or ``dict(config=..., checkpoint=...)`` for
            :func:`~cvt_dense.pretraining.teachers.classifier_teacher`.
        mode: 'hard', :func:`hard_loss`, or 'soft', :func:`soft_loss`.
        alpha: fraction of the teacher's loss, 0 to 1: (1 - alpha) cross entropy with the labels + alpha the teacher's.
        temperature: temperature of 'soft', above 0.
        token: gives the backbone a distillation token, and the classifier a head on it that learns from the teacher
            alone (DeiT). Without, one head learns both.

    Raises:
        UserError: a value is not allowed.
    """

    def __init__(self, teacher: dict[str, Any], mode: str = 'hard', alpha: float = 0.5, temperature: float = 3.,
                 token: bool = False):
        if mode not in ('hard', 'soft') or not 0 <= alpha <= 1 or temperature <= 0:
            raise UserError(f"model.distillation has mode={mode!r}, alpha={alpha!r} and temperature={temperature!r}: "
                            "allowed are 'hard' or 'soft', 0 (labels only) to 1 (the teacher only), and above 0.")
        self.teacher_cfg = {'type': 'cvt_dense.ClassifierTeacher', **teacher}
        self.mode = mode
        self.alpha = alpha
        self.temperature = temperature
        self.token = token

    def __deepcopy__(self, memo: dict) -> 'Distillation':
        return self  # an averaged copy of the model needs no teacher of its own

    @cached_property
    def _teacher(self) -> Teacher:
        with torch.random.fork_rng(devices=[]):  # loading must not change a run's random numbers
            return MODELS.build(self.teacher_cfg)

    def teacher(self, num_classes: int) -> Teacher:
        """Return the teacher, which is built and loaded at the first access.

        Args:
            num_classes: outputs of the student.

        Raises:
            CheckpointError: its weights cannot be read or do not fit.
            UserError: it has another number of classes.
        """
        if self._teacher.num_classes != num_classes:
            raise UserError(f'the teacher ({self._teacher.classes.source}) has {self._teacher.num_classes} classes, '
                            f'the classifier has model.num_classes={num_classes}: take one of the same classes.')
        return self._teacher

    def losses(self, outputs: tuple[Tensor, Tensor], labels: Tensor, inputs: Tensor,
               normalisation: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        """Compute the loss of the labels and the loss of the teacher.

        Args:
            outputs: logits (B, classes) that learn from the labels, and those that learn from the teacher.
            labels: int64 (B, ), or soft, float (B, classes).
            inputs: images as the student gets them, (B, C, H, W).
            normalisation: mean and standard deviation of ``inputs``, (C, 1, 1) each.

        Returns:
            ``loss_cls`` and ``loss_distill``, each with its weight, and ``teacher_top1``: the percentage of images for
            which the teacher predicts the label (for mixed images the label with the larger fraction).
        """
        targets = self.teacher(outputs[0].shape[1]).to(inputs.device)(inputs, *normalisation)
        soft = self.mode == 'soft'
        learned = soft_loss(outputs[1], targets, self.temperature) if soft else hard_loss(outputs[1], targets)
        hard_labels = labels if labels.ndim == 1 else labels.argmax(dim=1)
        return dict(
            loss_cls=(1 - self.alpha) * F.cross_entropy(outputs[0], labels),
            loss_distill=self.alpha * learned,
            teacher_top1=100. * (targets.argmax(dim=1) == hard_labels).float().mean())
