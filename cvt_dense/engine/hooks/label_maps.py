"""Save the label maps that a test predicts."""
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.hooks import Hook
from mmengine.runner import Runner
from PIL import Image

from ...registry import HOOKS


@HOOKS.register_module()
class SaveLabelMapsHook(Hook):
    """Save each predicted label map as a PNG, under the path of its image relative to the images' common folder.

    With ``reduce_zero_label`` classes count from 1, as in the data.

    Args:
        folder: where the label maps go.
    """

    def __init__(self, folder: str):
        self.folder, self.root = Path(folder), ''

    def before_test_epoch(self, runner: Runner) -> None:
        dataset = runner.test_dataloader.dataset
        folders = {os.path.dirname(dataset.get_data_info(i)['img_path']) for i in range(len(dataset))}
        self.root = os.path.commonpath(folders)

    def after_test_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                        outputs: Sequence[Any] | None = None) -> None:
        for sample in outputs or ():
            labels = sample.pred_sem_seg.data[0].cpu().numpy() + int(bool(sample.get('reduce_zero_label')))
            path = self.folder / Path(os.path.relpath(sample.img_path, self.root)).with_suffix('.png')
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(labels.astype(np.uint8 if labels.max() < 256 else np.uint16)).save(path)
