"""Teachers of a classifier: trained networks of timm and of this project."""
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..classes import Classes
from ..config.read import read_config
from ..models.timm_backbone import TIMM_WEIGHTS
from ..registry import MODELS
from ..weights import StateDict, compare, load_weights_file, select_weights


class Teacher(nn.Module):
    """A trained classifier that always stays in eval mode and has no gradients.

    Args:
        network: images (B, 3, H, W) to logits (B, classes).
        num_classes: number of its logits.
        normalisation: mean and standard deviation of its images, a value for each channel, of 0 to 255.
        input_size: (height, width) that images are resized to.
        classes: its classes, as far as its file names them.
    """

    def __init__(self, network: nn.Module, num_classes: int, normalisation: tuple[Any, Any],
                 input_size: tuple[int, int], classes: Classes):
        super().__init__()
        self.network = network.requires_grad_(False)
        self.num_classes = num_classes
        self.input_size = input_size
        self.classes = classes
        for name, values in zip(('mean', 'std'), normalisation):
            self.register_buffer(name, torch.as_tensor(values, dtype=torch.float32).view(-1, 1, 1))
        self.eval()

    def train(self, mode: bool = True) -> 'Teacher':
        return super().train(False)

    @torch.no_grad()
    def forward(self, inputs: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        """Return the logits of images that a student gets normalised by ``mean`` and ``std``.

        The teacher runs in the student's precision, because the student's autocast context includes this call.

        Args:
            inputs: (B, C, H, W).
            mean, std: (C, 1, 1).

        Returns:
            (B, classes), float32.
        """
        images = (inputs * std + mean - self.mean) / self.std
        if images.shape[2:] != torch.Size(self.input_size):
            images = F.interpolate(images, self.input_size, mode='bicubic', antialias=True)
        return self.network(images).float()


def _load(network: nn.Module, tensors: StateDict, source: str) -> None:
    compare(network.state_dict(), tensors, source)
    network.load_state_dict(tensors)


@MODELS.register_module(name='TimmTeacher')
def timm_teacher(model_name: str, checkpoint: str, input_size: int | None = None, **timm_args: Any) -> Teacher:
    """Build a classifier of timm as a teacher.

    ``timm.task`` has a ``DistillationTeacher`` too. It belongs to timm's training loop. It accepts a network without
    published weights, which is untrained, and gives a network with other classes a new, untrained head.

    Args:
        model_name: as ``timm.create_model`` takes it, e.g. 'regnety_160.deit_in1k'.
        checkpoint: a file or URL with timm's names for the weights, as
            :func:`~cvt_dense.weights.files.load_weights_file` takes it; 'timm': those that timm publishes.
        input_size: side that images are resized to. Default: the network's own.
        timm_args: further arguments of ``timm.create_model``.

    Raises:
        CheckpointError: the weights cannot be read or do not fit. Other errors are timm's.
    """
    import timm
    about, content = timm.get_pretrained_cfg(model_name, allow_unregistered=False), {}
    if checkpoint == TIMM_WEIGHTS:
        network = timm.create_model(model_name, pretrained=True, **timm_args)
    else:
        content = load_weights_file(checkpoint, rename=False)
        tensors = select_weights(content, source=checkpoint)
        heads = [about.classifier] if isinstance(about.classifier, str) else about.classifier
        network = timm.create_model(model_name, num_classes=len(tensors.get(f'{heads[0]}.weight', ())), **timm_args)
        _load(network, tensors, checkpoint)
    normalisation = tuple([255. * value for value in values] for values in (about.mean, about.std))
    size = (input_size, input_size) if input_size else about.input_size[1:]
    return Teacher(network, network.num_classes, normalisation, size,
                   Classes.of_file(content, f'{model_name}, {checkpoint}'))


@MODELS.register_module(name='ClassifierTeacher')
def classifier_teacher(config: str, checkpoint: str) -> Teacher:
    """Build a classifier that this project trained as a teacher, with its averaged weights if it has them.

    Args:
        config: file of the teacher's config, which also says what size it resizes test images to; or a published model.
        checkpoint: checkpoint of the teacher; or the published model.

    Raises:
        UserError: there is no such config.
        FileNotFoundError: there is no such checkpoint.
        CheckpointError: the checkpoint cannot be read or does not fit.
    """
    cfg = read_config(config)
    content = load_weights_file(checkpoint)
    tensors = select_weights(content, source=checkpoint)
    if 'head.weight' in tensors:
        cfg.model.num_classes = len(tensors['head.weight'])
    cfg.model.backbone.init_cfg = None
    network = MODELS.build(cfg.model)
    _load(network, tensors, checkpoint)
    size = cfg.test_dataloader.dataset.transform.input_size
    return Teacher(network, network.num_classes, (network.data_preprocessor.mean, network.data_preprocessor.std),
                   (size, size), Classes.of_file(content, f'{config}, {checkpoint}'))
