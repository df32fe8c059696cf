"""Samplers whose indices contain a seed, so that a sample's randomness depends on its place in the run alone."""
import random
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, islice
from typing import Any

import numpy as np
import torch
from mmengine.dataset import DefaultSampler, InfiniteSampler

from ..registry import DATA_SAMPLERS
from .data_sets import leaves, transforms_of


class SeededIndex(int):
    """A sample's index with the ``seed`` of its randomness; to batch samplers and data sets a plain int."""

    seed: int

    def __new__(cls, index: int, seed: int) -> 'SeededIndex':
        self = super().__new__(cls, index)
        self.seed = seed
        return self

    def __getnewargs__(self) -> tuple[int, int]:  # for the way to a data loader's worker
        return int(self), self.seed


def seeded_samples(dataset: Any, indices: Sequence[int]) -> list[Any]:
    """Return samples of a map-style data set; all random generators are seeded before each ``SeededIndex``.

    They are those of Python, NumPy and PyTorch, and the one that Albumentations keeps in each step ``Albu``.
    """
    steps = [step for leaf in leaves(dataset) for step in transforms_of(leaf)]
    generators = [step.aug for step in steps if hasattr(getattr(step, 'aug', None), 'set_random_seed')]
    samples = []
    for index in indices:
        if isinstance(index, SeededIndex):
            random.seed(index.seed)
            np.random.seed(index.seed)
            torch.manual_seed(index.seed)
            for generator in generators:
                generator.set_random_seed(index.seed)
            index = int(index)
        samples.append(dataset[index])
    return samples


def use_seeds(dataset: Any) -> None:
    """Make data loaders read ``dataset`` through :func:`seeded_samples`, by PyTorch's protocol for whole batches.

    :class:`SeedHook` does so for a run's training set.
    """
    dataset.__getitems__ = partial(seeded_samples, dataset)


@DATA_SAMPLERS.register_module()
class SeededSampler(DefaultSampler):
    """Draw indices in the order of MMEngine's ``DefaultSampler``, each with the seed of its augmentation.

    Seeds depend on ``seed``, the epoch and the place in the epoch, not on workers or processes. A data set follows them
    after :func:`use_seeds`, which :class:`SeedHook` calls: a resumed run then sees the same augmented images as an
    uninterrupted one, whatever ``num_workers`` is. Any map-style data set and any batch sampler (mmdet's, mmseg's) can
    be used. Exceptions are what an augmentation keeps from sample to sample (mmdet's ``CachedMosaic``), the size that
    ``BatchSyncRandomResize`` keeps for some iterations, and a step ``Albu`` inside of another step, whose generator is
    Albumentations' own.

    Args:
        dataset: anything with a length.
        shuffle: another order each epoch.
        seed: seed of the order and of the samples, the same in every process; None draws one.
        round_up: repeat samples so that every process gets as many.
    """

    def __iter__(self) -> Iterator[SeededIndex]:
        draw = torch.Generator().manual_seed(self.seed + self.epoch)
        seeds = torch.randint(2**31, (self.total_size, ), generator=draw)[self.rank::self.world_size]
        yield from map(SeededIndex, super().__iter__(), seeds.tolist())


@DATA_SAMPLERS.register_module()
class SeededInfiniteSampler(InfiniteSampler):
    """Draw indices in the order of MMEngine's ``InfiniteSampler``, each with the seed of its augmentation.

    Seeds depend on ``seed`` and the place in the endless order; see :class:`SeededSampler`.

    Args:
        dataset: anything with a length.
        shuffle: another order in each pass.
        seed: seed of the order and of the samples, the same in every process; None draws one.
    """

    skipped = 0

    def skip(self, num_samples: int) -> None:
        """Begin after this process's first ``num_samples``; MMEngine's loop calls this method when a run is resumed."""
        self.skipped = num_samples

    def __iter__(self) -> Iterator[SeededIndex]:
        first = self.rank + self.skipped * self.world_size
        for position, index in zip(count(first, self.world_size),
                                   islice(self._infinite_indices(), first, None, self.world_size)):
            seed = np.random.SeedSequence((self.seed, position)).generate_state(1)[0]
            yield SeededIndex(index, int(seed))
