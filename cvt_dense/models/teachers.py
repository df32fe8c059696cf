"""Teachers of a classifier: trained networks of timm and of this project."""
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.config import Config
from torch import Tensor, nn

from ..errors import CheckpointError, UserError
from ..registry import MODELS
from ..weights import StateDict, check, load_weights_file, select_weights

PUBLISHED = 'timm'  # of checkpoint: the weights that timm publishes for model_name


class Teacher(nn.Module):
    """A trained classifier that always stays in eval mode and has no gradients.

    Args:
        network: images (B, 3, H, W) to logits (B, classes).
        num_classes: number of its logits.
        normalisation: mean and standard deviation of its images, a value for each channel, of 0 to 255.
        input_size: (height, width) that images are resized to; None: as they come.
        source: description of the teacher, for messages.
        classes: class names, where known.
    """

    def __init__(self, network: nn.Module, num_classes: int, normalisation: tuple[Any, Any],
                 input_size: tuple[int, int] | None, source: str, classes: tuple[str, ...] = ()):
        super().__init__()
        self.network = network.requires_grad_(False)
        self.num_classes = num_classes
        self.input_size = input_size
        self.source = source
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
        if self.input_size is not None and images.shape[2:] != torch.Size(self.input_size):
            images = F.interpolate(images, self.input_size, mode='bicubic', antialias=True)
        return self.network(images).float()


def _size(given: Any, default: Any) -> tuple[int, int] | None:
    size = default if given is None else given
    return None if size is None else (size, size) if isinstance(size, int) else tuple(size)[-2:]


def _load(network: nn.Module, tensors: StateDict, source: str) -> None:
    check(network.state_dict(), tensors, source)
    network.load_state_dict(tensors)


@MODELS.register_module(name='TimmTeacher')
def timm_teacher(model_name: str, checkpoint: str | None = None, input_size: Any = None, **timm_args: Any) -> Teacher:
    """Build a classifier of timm as a teacher.

    ``timm.task`` has a ``DistillationTeacher`` too. It belongs to timm's training loop. It accepts a network without
    published weights, which is untrained, and gives a network with other classes a new, untrained head.

    Args:
        model_name: as ``timm.create_model`` takes it, e.g. 'regnety_160.deit_in1k'.
        checkpoint: a file or URL with timm's names for the weights, as
            :func:`~cvt_dense.weights.files.load_weights_file` takes it; 'timm': those that timm publishes.
        input_size: side, or (height, width), that images are resized to. Default: the network's own.
        timm_args: further arguments of ``timm.create_model``.

    Raises:
        UserError: timm has no such network, or ``checkpoint`` is missing.
        CheckpointError: the weights cannot be read or do not fit.
    """
    import timm
    decided = sorted({'num_classes', 'pretrained'} & set(timm_args))
    if decided:
        raise UserError(f'model.distillation.teacher has {decided}, which follow from checkpoint: the file has as many '
                        f'classes as it has, and {PUBLISHED!r} names the published weights. Leave them out.')
    if not timm.is_model(model_name):
        near = timm.list_models(f'*{model_name.split(".")[0].split("_")[0]}*')[:5]
        raise UserError(f'model.distillation.teacher.model_name={model_name!r}: timm {timm.__version__} has no such '
                        f'network{f"; it has {near}" if near else ""}. timm.list_models() lists all.')
    if not checkpoint:
        raise UserError(f'model.distillation.teacher.checkpoint={checkpoint!r}: a teacher without trained weights '
                        f'is of no use. Give a file or URL, or {PUBLISHED!r} for those that timm publishes for '
                        f'{model_name}.')
    with torch.device('meta'):
        about = timm.create_model(model_name, **timm_args).pretrained_cfg
    if checkpoint == PUBLISHED:
        if not (about.get('hf_hub_id') or about.get('url')):
            raise UserError(f'timm publishes no weights of {model_name!r}: give a file as '
                            'model.distillation.teacher.checkpoint.')
        try:
            network = timm.create_model(model_name, pretrained=True, **timm_args)
        except Exception as error:  # of the hub, requests or httpx
            raise CheckpointError(f'the weights that timm publishes for {model_name} cannot be fetched '
                                  f'({type(error).__name__}: {str(error).splitlines()[0][:200]}). Fetch them where '
                                  'there is a connection, and give the file.') from error
        classes = network.num_classes
    else:
        tensors = select_weights(load_weights_file(checkpoint, rename=False), source=checkpoint)
        head = about.get('classifier')
        classes = len(tensors.get(f'{head if isinstance(head, str) else head[0]}.weight', ()))
        network = timm.create_model(model_name, num_classes=classes, **timm_args)
        _load(network, tensors, checkpoint)
    normalisation = tuple([255. * value for value in about[key]] for key in ('mean', 'std'))
    return Teacher(network, classes, normalisation, _size(input_size, about.get('input_size')),
                   f'{model_name}, {checkpoint}')


@MODELS.register_module(name='ClassifierTeacher')
def classifier_teacher(config: str, checkpoint: str | None = None, input_size: Any = None,
                       weights: str = 'ema') -> Teacher:
    """Build a classifier that this project trained as a teacher.

    Args:
        config: file of the teacher's config.
        checkpoint: checkpoint of the teacher.
        input_size: side, or (height, width), that images are resized to. Default: what its config tests with.
        weights: 'ema' or 'raw', see :func:`~cvt_dense.weights.files.select_weights`.

    Raises:
        UserError: the config is not a classifier's, or ``checkpoint`` is missing.
        CheckpointError: the checkpoint cannot be read or does not fit.
    """
    if not checkpoint:
        raise UserError(f'model.distillation.teacher.checkpoint={checkpoint!r}: give the checkpoint that {config} was '
                        'trained to; a teacher without trained weights is of no use.')
    try:
        cfg = Config.fromfile(config)
    except FileNotFoundError as error:
        raise UserError(f'model.distillation.teacher.config={config!r} does not exist: {error}') from error
    if 'ImageClassifier' not in str((cfg.get('model') or {}).get('type')):
        raise UserError(f"model.distillation.teacher.config={config!r} is not a cvt_dense.ImageClassifier's config.")
    try:
        content = load_weights_file(checkpoint)
    except FileNotFoundError as error:
        raise UserError(f'{error} It is named by model.distillation.teacher.checkpoint.') from error
    tensors = select_weights(content, weights, checkpoint)
    if 'head.weight' in tensors:
        cfg.model.num_classes = len(tensors['head.weight'])
    cfg.model.backbone.init_cfg = None
    network = MODELS.build(cfg.model)
    _load(network, tensors, checkpoint)
    preprocessor = network.data_preprocessor
    transform = ((cfg.get('test_dataloader') or {}).get('dataset') or {}).get('transform') or {}
    meta = (content.get('meta') or {}).get('dataset_meta') or {}
    return Teacher(network, network.num_classes, (preprocessor.mean, preprocessor.std),
                   _size(input_size, transform.get('input_size')), f'{config}, {checkpoint}',
                   tuple(meta.get('classes') or ()))
