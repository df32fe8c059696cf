"""Seeds Python, NumPy and PyTorch before each training iteration from (seed, rank, iteration)."""
import random
from typing import Any

import numpy as np
import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...registry import HOOKS


@HOOKS.register_module()
class SeedHook(Hook):
    """Seeds Python, NumPy and PyTorch before each training iteration from (seed, rank, iteration).

    So drop path, Mixup and erasing do not depend on what ran before: a resumed run draws what an
    uninterrupted one does, and no generator state has to be saved.
    """

    priority = 'VERY_HIGH'

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        seed = int(np.random.SeedSequence((runner.seed, runner.rank, runner.iter)).generate_state(1)[0])
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
