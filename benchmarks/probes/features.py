"""Measure how well each stage separates the classes, and how similar stages and networks are.

k nearest neighbours by cosine similarity and a linear probe (logistic regression, Alain and Bengio 2017, arXiv
1610.01644) on averaged maps of the training images; linear centred kernel alignment: Kornblith et al. 2019 (arXiv
1905.00414), Raghu et al. 2021 (arXiv 2108.08810) for transformers.
"""
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .subject import BATCH, Finding, Subject, stage_maps

NEIGHBOURS = 20


@torch.no_grad()
def stage_features(subject: Subject, images: Tensor) -> list[np.ndarray]:
    """Return (N, C) of each stage, its map averaged over places."""
    batches = []
    for batch in images.split(BATCH):
        maps = stage_maps(subject.network.backbone, subject.normalise(batch))
        batches.append([feature_map.mean(dim=(2, 3)).cpu().double().numpy() for feature_map in maps])
        subject.progress(len(batch))
    return [np.concatenate(stage) for stage in zip(*batches)]


def neighbours(train: np.ndarray, train_labels: np.ndarray, test: np.ndarray, k: int = NEIGHBOURS) -> np.ndarray:
    """Return the class that most of the nearest training images have, (N, ).

    Args:
        train: features (M, C).
        train_labels: (M, ).
        test: features (N, C).
        k: number of neighbours.
    """
    from sklearn.neighbors import KNeighborsClassifier
    k = min(k, len(train))
    return KNeighborsClassifier(k, metric='cosine', weights='distance').fit(train, train_labels).predict(test)


def linear_probe(train: np.ndarray, train_labels: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Return the class that a logistic regression on standardised features predicts, (N, ).

    Args:
        train: features (M, C).
        train_labels: (M, ).
        test: features (N, C).
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    return make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=500)).fit(
        train, train_labels).predict(test)


def alignment(x: np.ndarray, y: np.ndarray) -> float:
    """Return linear CKA of features (N, C) and (N, D) of the same images: 0 to 1."""
    x, y = x - x.mean(0), y - y.mean(0)
    norm = np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    return float(np.linalg.norm(x.T @ y)**2 / norm) if norm else 0.


def probe(subject: Subject, others: Sequence[Subject]) -> Finding:
    """Measure neighbours and linear probe of each stage, and alignment with all stages."""
    subject.classifier_only()
    test, labels = stage_features(subject, subject.images), subject.labels.numpy()
    values: dict[str, object] = {}
    curves = {}
    if subject.train is not None:
        train, train_labels = stage_features(subject, subject.train[0]), subject.train[1].numpy()
        for name, method in (('neighbours', neighbours), ('linear', linear_probe)):
            values[name] = [round(100 * float((method(stored, train_labels, queried) == labels).mean()), 2)
                            for stored, queried in zip(train, test)]
            curves[name] = [*range(1, len(test) + 1)], values[name]
    networks = {subject.name: test, **{other.name: stage_features(other, other.images) for other in others}}
    values['alignment'] = {name: [[round(alignment(one, two), 4) for two in stages] for one in test]
                           for name, stages in networks.items()}
    pictures = {f'alignment with {name}, black 0, white 1': np.array(rows)[..., None].repeat(3, 2)
                for name, rows in values['alignment'].items()}
    sentence = (f'The {NEIGHBOURS} nearest neighbours classify {values["neighbours"][-1]:.1f} % by the last stage, a '
                f'linear probe {values["linear"][-1]:.1f} %; ' if curves else '')
    first_last = values['alignment'][subject.name][0][-1]
    return Finding(f'{sentence}first and last stage are aligned by {first_last:.2f}.', values, curves,
                   ('stage', 'top-1 (%)'), pictures)
