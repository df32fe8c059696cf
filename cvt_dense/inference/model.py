"""Load a trained model, with its pipeline and class names."""
import copy
import inspect
import logging
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.logging import print_log
from mmengine.model import BaseModel, revert_sync_batchnorm
from mmengine.registry import MODELS, TRANSFORMS, DefaultScope
from PIL import Image

from ..classes import Classes
from ..config import check_exists, class_of, datasets_of, dicts, metainfo, type_name
from ..console import printable, prints_to_log
from ..deploy.exported import run_exported
from ..deploy.runtime import Exported, is_exported, open_exported
from ..errors import UserError, cause, checked, refusals_of
from ..images import check_loaded, open_image
from ..images import load as load_image
from ..models.autocast import DTYPES, return_float32
from ..models.task import task_of
from ..published import is_published, read_config
from ..weights import check_model, dataset_meta, load_weights_file, select_weights
from ..weights.preprocessing import check_preprocessing
from .palette import choose_palette

DENSE = 'detection', 'segmentation'  # tasks whose images mm's pipelines prepare


@dataclass
class Model:
    """A trained network with its test pipeline and class names; :func:`load` creates it.

    Attributes:
        network: the network in eval mode, on its device.
        cfg: the complete config.
        amp: mixed precision, 'bf16', 'fp16' or None.
        task: 'classification', 'detection' or 'segmentation'.
        classes: the class names in the order of their numbers.
        palette: an RGB colour for each class.
        reader: the transform that reads a file for a dense task; None for a classifier.
        pipeline: the rest of the test pipeline: of what ``reader`` returns it makes ``inputs`` and, for dense tasks,
            ``data_samples``.
    """
    network: BaseModel
    cfg: Config
    trained: InitVar['TrainedFile']
    amp: str | None = None
    task: str = field(init=False)
    classes: Sequence[str] = field(init=False)
    palette: Sequence[tuple[int, int, int]] = field(init=False)
    reader: Callable[[dict[str, Any]], dict[str, Any]] | None = field(init=False)
    pipeline: Callable[[dict[str, Any]], dict[str, Any]] = field(init=False)
    process: int = field(default_factory=os.getpid, repr=False)  # which loaded it

    def __post_init__(self, trained: 'TrainedFile'):
        self.task = task_of(self.network)
        if self.task is None:
            raise UserError(f'model.type={type(self.network).__name__} is not supported: allowed are detectors of '
                            'MMDetection, segmentors of MMSegmentation, and the classifiers of cvt_dense.')
        if trained.exported is None:
            check_preprocessing(self.cfg, self.network, trained.source)
        data = {key: metainfo(dataset, self.cfg, key) for dataset in datasets_of(self.cfg, 'test')[:1]
                for key in ('classes', 'palette')}
        self.classes = trained.classes.names or data.get('classes') or ()
        palette = dataset_meta(trained.content).get('palette') or data.get('palette') or ()
        fits = isinstance(palette, (list, tuple)) and len(palette) >= len(self.classes)
        self.palette = palette if fits else choose_palette(self.classes)
        self.reader, self.pipeline = build_pipeline(self.cfg, self.task)

    def run(self, batch: dict[str, Any]) -> list[Any]:
        """Return the network's predictions for what its pipeline has made of images."""
        device = next(self.network.parameters()).device.type
        with torch.no_grad(), torch.autocast(device, DTYPES.get(self.amp), self.amp is not None):
            return self.network.test_step(batch)

    @property
    def reads_rgb(self) -> bool:
        """Return whether the model takes arrays (H, W, 3), uint8, and not what another reader makes of a file."""
        loader = test_pipeline(self.cfg)[0] if self.task in DENSE else {}
        return type_name(loader) in ('', 'LoadImageFromFile') and set(loader) <= {'type', 'backend_args'}

    def name(self, number: int) -> str:
        """Return the name of a class, or its number where the network has more outputs than there are names.

        A leading WordNet ID is stripped: 'n07920052_hot_coffee' becomes 'hot coffee'.
        """
        name = str(self.classes[number] if number < len(self.classes) else number)
        match = re.fullmatch(r'n\d{8}_(.+)', name)
        return match[1].replace('_', ' ') if match else name

    def read(self, image: Any) -> np.ndarray:
        """Return an image as the config's data sets read it: (H, W, 3), uint8, BGR, upright.

        The number of channels differs if the config loads other images.

        Args:
            image: path of an image file, its bytes, or a PIL image.

        Raises:
            UserError: the image cannot be read, or loses what it holds.
        """
        if isinstance(image, bytes):
            with tempfile.NamedTemporaryFile() as file:  # readers take paths
                file.write(image)
                file.flush()
                return self._read(file.name, f'The image file of {len(image):,} bytes')
        return self._read(image if isinstance(image, Image.Image) else os.fspath(image), printable(image))

    def _read(self, image: str | Image.Image, name: str) -> np.ndarray:
        """Return the array of a file or of a PIL image, which is called ``name`` in messages."""
        try:
            if isinstance(image, Image.Image):
                return np.asarray(open_image(image))[..., ::-1]
            array = load_image(image, self.reader)
            check_loaded(image, array, self.reader, quick=True)
            return array[..., ::1 if self.reader else -1]
        except UserError as error:  # for bytes it names a temporary file
            raise UserError(str(error).replace(repr(image), name)) from error
        except Exception as error:  # every decoder raises its own exception for a damaged file
            raise UserError(f'{name} cannot be read as an image ({cause(error)}).') from error


@checked
@prints_to_log()  # one thread at a time; packages are imported, and print then
def load(config: str | Path, checkpoint: str | Path | None = None, *, device: str | None = None,
         cfg_options: dict[str, Any] | None = None, runtime: Literal['onnxruntime', 'openvino', 'torch'] | None = None,
         amp: Literal['bf16', 'fp16'] | None = None, data_root: str | Path | None = None) -> Model:
    """Load a trained classifier, detector or segmentor.

    Args:
        config: config file, or a published model: a folder of ``tools/publish.py``, ``cvt_dense://NAME`` for one of
            this package, or ``hf://OWNER/NAME``.
        checkpoint: checkpoint file or URL, or a whole model of ``tools/export.py`` (.onnx, .xml, .pt2). Default: the
            weights of the published model.
        device: device of the network. Default: 'cuda' if there is a GPU, or else 'cpu'.
        cfg_options: settings of the config to override, by their dotted names.
        runtime: runtime of exported files: 'onnxruntime', 'openvino' or 'torch'. Default: chosen by the file's suffix.
        amp: mixed precision, 'bf16' or 'fp16'.
        data_root: folder of the config's data, if it is not where the config says.

    Returns:
        The model, which several threads may use at once. A process that forks from this one predicts with one thread
        of PyTorch.

    Raises:
        UserError: the config, the checkpoint or the device does not exist or cannot be read, they do not fit each
            other, or the task is unknown; or published weights need other images than the config prepares.
    """
    device = _existing(('cuda' if torch.cuda.is_available() else 'cpu') if device is None else device)
    cfg = read_config(str(config), cfg_options, data_root and str(data_root))
    if checkpoint is None and not is_published(config):
        raise UserError(f'{config}: give its checkpoint, too; a published model holds both.')
    source = str(cfg.filename if checkpoint is None else checkpoint)
    check_exists(source)
    trained = TrainedFile(source, runtime, amp)
    with DefaultScope.overwrite_default_scope(cfg.get('default_scope') or 'mmengine'):
        return Model(build_trained(cfg, trained).to(device).eval(), cfg, trained, amp)


def _existing(device: str) -> str:
    """Return a device that computes; raise ``UserError`` for others."""
    try:
        torch.zeros(1, device=device).tolist()
    except Exception as error:  # each kind of device raises its own
        raise UserError(f'device={device!r} cannot be used here: {cause(error)}') from error
    return device


@dataclass(frozen=True)
class TrainedFile:
    """A checkpoint, which is read, or an exported file, which is opened.

    Attributes:
        source: checkpoint file or URL, or an exported file.
        runtime: of an exported file; None: chosen by its suffix.
        amp: mixed precision, which an exported file does not allow.
        exported: the exported file, opened; None for a checkpoint.
        content: the content of the checkpoint, or the metadata of the exported file.

    Raises:
        UserError: the file cannot be read, or is exported and has a precision of its own; or a checkpoint has a
            runtime.
    """
    source: str
    runtime: str | None = None
    amp: str | None = None

    def __post_init__(self):
        if self.exported and self.amp:
            raise UserError(f'amp={self.amp!r}: {self.source} has the precision of its export: leave amp out, or '
                            'export it again.')
        if self.runtime and not self.exported:
            raise UserError(f'runtime={self.runtime!r}: {self.source} is no exported file: leave runtime out.')
        size = self.content.get('input_size') if self.exported else None
        if size and self.content['task'] == 'segmentation':  # detectors fit images into it, classifiers crop them
            print_log(f'{self.source} takes images and crops of {size[0]}x{size[1]} pixels (height x width) alone: if '
                      'the test pipeline makes others, export it with --dynamic.', 'current', logging.WARNING)

    @cached_property
    def exported(self) -> Exported | None:
        """Return the opened file."""
        return open_exported(self.source, self.runtime) if is_exported(self.source) else None

    @cached_property
    def content(self) -> dict[str, Any]:
        """Return what the file holds beside the networks' operations."""
        return self.exported.metadata if self.exported else load_weights_file(self.source)

    @property
    def classes(self) -> Classes:
        """Return the classes that the file names."""
        return Classes.of_file(self.content, self.source)

    @property
    def outputs(self) -> int | None:
        """Return the number of a classifier's outputs; None: it is another model."""
        heads = [len(tensor) for name, tensor in self.content.get('state_dict', {}).items()
                 if name in ('head.weight', 'module.head.weight')]
        if self.content.get('task') == 'classification':
            heads.append(len(self.content['classes'] or ()))
        return next(iter(heads), None)


def build_trained(cfg: Config, trained: TrainedFile, check: bool = True) -> BaseModel:
    """Build the model of a config with trained weights, or around an exported file.

    Args:
        cfg: a classifier's ``num_classes`` that it leaves open becomes that of the file.
        trained: the file.
        check: whether the weights must fit.

    Raises:
        UserError: they do not fit each other.
    """
    if not isinstance(cfg.get('model'), dict):
        raise UserError(f'{cfg.filename} has model={cfg.get("model")!r}: give the settings of a model.')
    heads = [key for key in cfg.model if key.endswith('head')]  # of detectors and segmentors
    if trained.outputs and not heads and cfg.model.get('num_classes') is None:
        cfg.model.num_classes = trained.outputs
    with refusals_of('model'):
        network = revert_sync_batchnorm(MODELS.build(copy.deepcopy(cfg.model)))
    if trained.exported is not None:
        return run_exported(network, trained.exported, cfg.model)
    weights = select_weights(trained.content, source=trained.source)
    if check:
        check_model(network, weights, trained.source, strict=True)
    network.load_state_dict(weights, strict=check)
    return_float32(network)
    return network


def build_pipeline(cfg: Config, task: str) -> tuple[Any, Any]:
    """Return the ``reader`` and the ``pipeline`` of a :class:`Model`.

    Without test data, which an export does not need, the pipeline raises ``UserError``.
    """
    if task in DENSE and cfg.get('test_dataloader'):
        reader, *steps = [step for step in test_pipeline(cfg) if type_name(step) != 'LoadAnnotations']
        return TRANSFORMS.build(reader), Compose(steps)
    settings = next((node['transform'] for node in dicts(cfg.get('test_dataloader')) if node.get('transform')), None)
    if settings is None:
        return None, partial(_refuse, cfg.filename)
    from timm.data import create_transform
    return None, partial(_transform, create_transform(**settings, use_prefetcher=True))  # which normalises nothing


def _refuse(source: str, loaded: dict[str, Any]) -> dict[str, Any]:
    raise UserError(f'{source} has no test_dataloader, whose data set prepares the images.')


def _transform(transform: Callable[[Image.Image], np.ndarray], loaded: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs that timm's transform of a classifier makes of an array."""
    return dict(inputs=torch.as_tensor(transform(Image.fromarray(loaded['img'][..., ::-1]))))


def test_pipeline(cfg: Config) -> list[dict[str, Any]]:
    """Return the transforms of the test data; raise ``UserError`` if the config has none."""
    pipeline = next((dataset['pipeline'] for dataset in datasets_of(cfg, 'test') if dataset.get('pipeline')), None)
    if not pipeline:
        raise UserError(f'{cfg.filename} has no test_dataloader.dataset.pipeline, which prepares the images.')
    return pipeline


def reduces_zero_label(cfg: Config) -> bool:
    """Return whether the label maps of a config's test data count classes from 1, and 0 is ignored."""
    for dataset in datasets_of(cfg, 'test')[:1]:
        default = inspect.signature(class_of(dataset, cfg)).parameters.get('reduce_zero_label')
        return bool(dataset.get('reduce_zero_label', default and default.default))
    return False
