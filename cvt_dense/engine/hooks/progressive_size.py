"""Small training images first, large ones later: progressive learning of EfficientNetV2 (arXiv 2104.00298)."""
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner

from ...registry import HOOKS


@HOOKS.register_module()
class ProgressiveSizeHook(Hook):
    """Sets the classifier's training image size by epoch; the data preprocessor resizes each batch to it.

    Evaluation keeps the size of its own pipeline. The size follows from the epoch alone, so a resumed run continues
    with it.

    Sizes are meant to be at most those of the training pipeline. Larger ones enlarge its crops bilinearly, and a
    network that learns such images does worse on sharper ones (see the model card of cvt-nano).

    Args:
        sizes: the side of the images in pixels by the epoch, counted from 0, from which on it holds: ``{0: 32, 10: 48,
            20: None}``. None keeps the size of the training pipeline.
    """

    def __init__(self, sizes: dict[int, int | None]):
        self.sizes = sizes

    def before_train_epoch(self, runner: Runner) -> None:
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        first = max(epoch for epoch in self.sizes if epoch <= runner.epoch)
        model.data_preprocessor.image_size = self.sizes[first]
