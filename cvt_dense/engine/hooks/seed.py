"""Make all randomness of a training a function of the seed and of the place in the run."""
from typing import Any

import numpy as np
from mmengine.dataset import DefaultSampler, InfiniteSampler
from mmengine.hooks import Hook
from mmengine.runner import IterBasedTrainLoop, Runner, set_random_seed

from ...registry import HOOKS
from ..checkpoint.loaders import copy_loader
from ..samplers import SeededInfiniteSampler, SeededSampler, use_seeds


@HOOKS.register_module()
class SeedHook(Hook):
    """Make all randomness of a training a function of the seed and of the place in the run.

    - Before each training iteration, Python, NumPy and PyTorch are seeded from (seed, rank, iteration). So drop
      path, Mixup and mmdet's sampling of boxes do not depend on what ran before.
    - The training set is read by :func:`.samplers.use_seeds`, so that each image's augmentation has a seed of its own.
      MMEngine's ``DefaultSampler`` and ``InfiniteSampler`` of the training data become ``cvt_dense.SeededSampler``
      and ``cvt_dense.SeededInfiniteSampler``, which keep the order of the images and give these seeds, whichever
      worker loads the image. Another sampler is kept, and the log reports it.

    A resumed run draws what an uninterrupted one does, and no generator state has to be saved. This line in any
    mmdet or mmseg config is enough for that::

        custom_hooks = [dict(type='cvt_dense.SeedHook')]
    """

    priority = 'VERY_HIGH'

    def before_train(self, runner: Runner) -> None:
        loader = runner.train_dataloader
        old = loader.batch_sampler.sampler
        if type(old) is DefaultSampler:
            loader.batch_sampler.sampler = SeededSampler(old.dataset, old.shuffle, old.seed, old.round_up)
        elif type(old) is InfiniteSampler:
            loader.batch_sampler.sampler = SeededInfiniteSampler(old.dataset, old.shuffle, old.seed)
        elif not isinstance(old, SeededSampler | SeededInfiniteSampler):
            runner.logger.warning(f'SeedHook: {type(old).__name__} is kept: a resumed run may see other images, or '
                                  'other augmentations, than with cvt_dense.SeededSampler.')
            return
        use_seeds(loader.dataset)
        runner.train_loop.dataloader = copy_loader(loader, loader.batch_sampler)  # its workers have begun without seeds

    def before_train_epoch(self, runner: Runner) -> None:
        loop = runner.train_loop
        if isinstance(loop, IterBasedTrainLoop):  # its iterator was made of the loader before
            loop.dataloader_iterator = type(loop.dataloader_iterator)(loop.dataloader)

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        set_random_seed(int(np.random.SeedSequence((runner.seed, runner.rank, runner.iter)).generate_state(1)[0]))
