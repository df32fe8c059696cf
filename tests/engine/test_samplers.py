"""Samplers that seed each sample of any data set."""
import random
from itertools import islice

import numpy as np
import torch
from mmengine.dataset import BaseDataset, DefaultSampler, InfiniteSampler
from torch.utils.data import DataLoader

from cvt_dense.engine import SeededInfiniteSampler, SeededSampler
from cvt_dense.engine.samplers import use_seeds


class Draws(BaseDataset):
    """A data set with a pipeline that draws from four generators and sometimes gives no sample."""

    def load_data_list(self):
        return [dict(number=number) for number in range(10)]


def draw(results):
    assert type(results['sample_idx']) is int
    if random.random() < 0.1:
        return None  # another image is drawn in its place
    return dict(number=results['number'], random=random.random(), numpy=np.random.rand(), torch=torch.rand(()).item(),
                own=draw.aug.random())


draw.aug = random.Random()  # a generator that no global seed reaches, as MMDetection's Albu has Albumentations'
draw.aug.set_random_seed = draw.aug.seed


def samples(sampler_type, workers, batches=None, skip=0, epoch=0, **sampler):
    dataset = Draws(pipeline=[draw])
    use_seeds(dataset)
    sampler = sampler_type(dataset, **sampler)
    sampler.set_epoch(epoch)
    if skip:
        sampler.skip(skip)
    loader = DataLoader(dataset, 4, sampler=sampler, num_workers=workers, collate_fn=list)
    random.seed()
    np.random.seed()
    torch.seed()
    return [sample for batch in islice(loader, batches) for sample in batch]


def test_samples_of_any_data_set_depend_on_seed_and_epoch_alone():
    first = samples(SeededSampler, 0, seed=3)
    assert len(first) == 10 and samples(SeededSampler, 2, seed=3) == samples(SeededSampler, 0, seed=3) == first
    assert samples(SeededSampler, 0, seed=3, epoch=1) != first


def test_the_endless_order_goes_on_where_it_was():
    first = samples(SeededInfiniteSampler, 0, 6, seed=3)
    assert len(first) == 24  # the ten images more than twice
    assert samples(SeededInfiniteSampler, 2, 6, seed=3) == first
    assert samples(SeededInfiniteSampler, 0, 2, skip=16, seed=3) == first[16:]


def test_order_is_mmengines():
    ours, theirs = SeededSampler(range(10), seed=1), DefaultSampler(range(10), seed=1)
    assert list(ours) == list(theirs)
    ours, theirs = SeededInfiniteSampler(range(10), seed=1), InfiniteSampler(range(10), seed=1)
    assert list(islice(ours, 25)) == list(islice(theirs, 25))


def test_processes_share_the_images(monkeypatch):
    alone = list(islice(SeededInfiniteSampler(range(10), seed=0), 24))
    epoch = []
    for rank in range(3):
        monkeypatch.setattr('mmengine.dataset.sampler.get_dist_info', lambda: (rank, 3))
        for skipped in (0, 4):  # a resumed run goes on where it was
            sampler = SeededInfiniteSampler(range(10), seed=0)
            sampler.skip(skipped)
            part, expected = list(islice(sampler, 8 - skipped)), alone[rank::3][skipped:]
            assert part == expected and [i.seed for i in part] == [i.seed for i in expected]
        sampler = SeededSampler(range(10), seed=0)
        part = list(sampler)
        assert len(part) == len(sampler) == 4
        epoch += part
    assert set(epoch) == set(range(10)) and len({index.seed for index in epoch}) == 12
