"""Small training images first, large ones later: progressive learning of EfficientNetV2 (arXiv 2104.00298)."""
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import IterBasedTrainLoop, Runner

from ...models.wrappers import unwrap
from ...registry import HOOKS


@HOOKS.register_module()
class ProgressiveSizeHook(Hook):
    """Set the classifier's training image size by epoch; the data preprocessor resizes each batch to it.

    Evaluation keeps the size of its own pipeline. The size follows from the epoch alone (with an
    ``IterBasedTrainLoop`` from the iteration), so a resumed run continues with it.

    Sizes are meant to be at most those of the training pipeline. Larger ones enlarge its crops bilinearly, and a
    network that learns such images does worse on sharper ones (see the model card of cvt-nano).

    Args:
        sizes: the side of the images in pixels by the epoch, counted from 0, from which on it holds: ``{0: 32, 10: 48,
            20: None}``. None keeps the size of the training pipeline, which also holds before the first key. With an
            ``IterBasedTrainLoop`` the keys are iterations.
    """

    def __init__(self, sizes: dict[int, int | None]):
        self.sizes = sizes

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        model = unwrap(runner.model)
        now = runner.iter if isinstance(runner.train_loop, IterBasedTrainLoop) else runner.epoch
        first = max((start for start in self.sizes if start <= now), default=None)
        model.data_preprocessor.image_size = self.sizes.get(first)
