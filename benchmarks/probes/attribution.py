"""Locate the evidence for the annotated class in an image by occlusion and integrated gradients of captum.

Zeiler and Fergus 2014 (arXiv 1311.2901): how much the class's logit falls while a patch is hidden. Sundararajan et al.
2017 (arXiv 1703.01365): gradients along the way from the mean colour to the image; their sum should be the difference
of the logits at both ends.
"""
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from .subject import Finding, Subject

IMAGES = 4
STEPS = 50  # of the integral
GRID = 8  # patches of a side


def probe(subject: Subject, others: Sequence[Subject]) -> Finding:
    """Draw both maps of a few images, and measure how far they agree."""
    from captum.attr import IntegratedGradients, Occlusion
    subject.classifier_only()
    chosen = torch.linspace(0, len(subject.images) - 1, min(IMAGES, len(subject.images))).long()
    side = max(1, min(subject.images.shape[2:]) // GRID)
    pictures, gaps, agreements = {}, [], []
    for number, i in enumerate(chosen.tolist()):
        image, label = subject.images[i:i + 1].float(), int(subject.labels[i])
        base = subject.network.data_preprocessor.mean.cpu().expand_as(image)
        occlusion = Occlusion(subject.forward).attribute(
            image, (3, side, side), (3, max(1, side // 2), max(1, side // 2)), base, label,
            perturbations_per_eval=64)[0].mean(0)
        integrated = IntegratedGradients(subject.forward).attribute(
            image, base, label, n_steps=STEPS, internal_batch_size=STEPS)[0].sum(0).float()
        with torch.no_grad():
            ends = subject.forward(torch.cat((base, image)))[:, label]
        gaps.append(abs(integrated.sum().item() - (ends[1] - ends[0]).item()))
        pooled = F.avg_pool2d(torch.stack((occlusion, integrated))[:, None], side).flatten(1)
        agreements.append(pooled.corrcoef()[0, 1].nan_to_num().item())
        name = subject.classes[label] if label < len(subject.classes) else label
        pictures.update({f'{number + 1}: {name}': (image[0].permute(1, 2, 0) / 255).numpy(),
                         f'{number + 1}: occlusion': occlusion.detach().numpy(),
                         f'{number + 1}: integrated': integrated.detach().numpy()})
    gap, agreement = sum(gaps) / len(gaps), sum(agreements) / len(agreements)
    return Finding(
        f'Occlusion and integrated gradients of {len(chosen)} images correlate by {agreement:.2f} over patches; the '
        f'integrals miss the differences of the logits by {gap:.3f}.',
        {'correlation': round(agreement, 4), 'gap of completeness': round(gap, 4)}, pictures=pictures)
