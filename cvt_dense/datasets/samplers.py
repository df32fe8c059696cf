"""A sampler that makes every sample's augmentation a function of the seed alone."""
from collections.abc import Iterator, Sized

import torch
from mmengine.dataset import DefaultSampler

from ..registry import DATA_SAMPLERS


@DATA_SAMPLERS.register_module()
class SeededSampler(DefaultSampler):
    """MMEngine's ``DefaultSampler`` whose indices carry a seed for :class:`ImageDataset`.

    Seeds depend on ``seed``, the epoch and the place in the epoch, not on workers: a resumed run sees
    the same augmented images as an uninterrupted one, whatever ``num_workers`` is.

    Args:
        dataset: anything with a length.
        shuffle: another order each epoch.
        seed: the same in every process; None draws one.
        round_up: repeat samples so that every process gets as many.
        num_repeats: augmented copies of an image in one epoch (repeated augmentation; 3 in DeiT,
            whose sampler this follows); they stand side by side, so they go to different processes
            where there are several, and as many fewer images are seen, so an epoch keeps its length.
    """

    def __init__(self,
                 dataset: Sized,
                 shuffle: bool = True,
                 seed: int | None = None,
                 round_up: bool = True,
                 num_repeats: int = 1):
        super().__init__(dataset, shuffle, seed, round_up)
        if num_repeats < 1:
            raise ValueError(f'sampler.num_repeats={num_repeats}: allowed is 1 (no repetition) or more.')
        self.num_repeats = num_repeats

    def __iter__(self) -> Iterator[tuple[int, int]]:
        n = len(self.dataset)
        order = torch.arange(n)
        if self.shuffle:
            order = torch.randperm(n, generator=torch.Generator().manual_seed(self.seed + self.epoch))
        if self.num_repeats > 1:
            order = order.repeat_interleave(self.num_repeats)[:n]
        # Positions beyond n are the copies that round_up adds.
        draw = torch.Generator().manual_seed(2**32 + self.seed + self.epoch)
        seeds = torch.randint(2**31, (self.total_size, ), generator=draw)
        for position in range(self.rank, self.total_size, self.world_size):
            yield int(order[position % n]), int(seeds[position])
