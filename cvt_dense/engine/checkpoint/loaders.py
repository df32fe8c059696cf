"""Copy data loaders with another order of samples."""
import itertools
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

# Attributes of a DataLoader that are arguments of its constructor, whatever decides the order of samples.
OPTIONS = ('num_workers', 'collate_fn', 'pin_memory', 'timeout', 'worker_init_fn', 'multiprocessing_context',
           'generator', 'prefetch_factor', 'persistent_workers')


def copy_loader(loader: DataLoader, batch_sampler: Any, dataset: Any = None) -> DataLoader:
    """Return a data loader like ``loader`` with another batch sampler, and another data set if one is given.

    PyTorch allows no assignment to these attributes of an existing loader.
    """
    options = {name: getattr(loader, name) for name in OPTIONS}
    return DataLoader(loader.dataset if dataset is None else dataset, batch_sampler=batch_sampler, **options)


class SkippingBatchSampler:
    """A batch sampler whose next pass leaves out its first ``num_batches``; their data is not loaded.

    Args:
        batch_sampler: gives the batches: lists of indices.
        num_batches: number of batches to leave out, once.
    """

    def __init__(self, batch_sampler: Any, num_batches: int):
        self.batch_sampler, self.num_batches = batch_sampler, num_batches
        # As of any batch sampler; DistSamplerSeedHook calls set_epoch of the sampler.
        self.sampler, self.batch_size = batch_sampler.sampler, batch_sampler.batch_size

    def __iter__(self) -> Iterator[list[Any]]:
        # A generator, because DataLoader makes an iterator that it drops before the one that it uses.
        start, self.num_batches = self.num_batches, 0
        yield from itertools.islice(iter(self.batch_sampler), start, None)

    def __len__(self) -> int:
        return len(self.batch_sampler)
