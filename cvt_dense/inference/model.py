"""Load a trained model, with its pipeline and class names."""
import inspect
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.model import BaseModel, revert_sync_batchnorm
from mmengine.registry import MODELS, TRANSFORMS, DefaultScope
from PIL import Image

from ..classes import Classes
from ..config.read import check_exists, is_published, read_config
from ..config.walk import class_of, datasets_of, dicts, metainfo, type_name
from ..console import printable, prints_to_log
from ..deploy.runtime import is_exported, open_exported
from ..errors import UserError, refusals_of
from ..images import load as load_image
from ..images import open_image
from ..models.task import task_of
from ..weights import check_model, dataset_meta, load_weights_file, select_weights
from ..weights.preprocessing import check_preprocessing
from .palette import choose_palette
from .slices import RasterImage

WEIGHT_HOOKS = re.compile('EMAHook|RawWeightsHook')  # of weights that an exported file does not have
DENSE = 'detection', 'segmentation'  # tasks whose images mm's pipelines prepare


@dataclass
class Model:
    """A trained network with its test pipeline and class names; :func:`load` creates it.

    Attributes:
        network: the network in eval mode, on its device.
        cfg: the complete config.
        task: 'classification', 'detection' or 'segmentation'.
        classes: the class names in the order of their numbers.
        palette: an RGB colour for each class.
        reader: the transform that reads a file for a dense task; None for a classifier.
        pipeline: the rest of the test pipeline: of what ``reader`` returns it makes ``inputs`` and, for dense tasks,
            ``data_samples``.
    """
    network: BaseModel
    cfg: Config
    task: str
    classes: Sequence[str]
    palette: Sequence[tuple[int, int, int]]
    reader: Callable[[dict[str, Any]], dict[str, Any]] | None
    pipeline: Callable[[dict[str, Any]], dict[str, Any]]

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

    def read(self, image: Any, by_window: bool = False) -> np.ndarray | RasterImage:
        """Return an image as the config's data sets read it: (H, W, 3), uint8, BGR, upright.

        The number of channels differs if the config loads other images. With ``by_window`` and rasterio, a TIFF file of
        8-bit gray or RGB pixels is opened without being read, and :func:`predict` reads one slice after the other.

        Args:
            image: path of an image file, its bytes, or a PIL image.
            by_window: see above.

        Raises:
            UserError: the image cannot be read, or loses what it holds.
        """
        if isinstance(image, bytes):
            with tempfile.NamedTemporaryFile() as file:  # readers take paths
                file.write(image)
                file.flush()
                return self._read(file.name, f'The image file of {len(image):,} bytes')
        if by_window and self.reads_rgb:
            with suppress(ImportError, ValueError):
                return RasterImage(image)
        return self._read(image if isinstance(image, Image.Image) else os.fspath(image), printable(image))

    def _read(self, image: str | Image.Image, name: str) -> np.ndarray:
        """Return the array of a file or of a PIL image, which is called ``name`` in messages."""
        try:
            if isinstance(image, Image.Image):
                return np.asarray(open_image(image))[..., ::-1]
            return load_image(image, self.reader, quick=True)[..., ::1 if self.reader else -1]
        except UserError as error:  # for bytes it names a temporary file
            raise UserError(str(error).replace(repr(image), name)) from error
        except Exception as error:  # every decoder raises its own exception for a damaged file
            raise UserError(f'{name} cannot be read as an image ({type(error).__name__}: {error}).') from error


@prints_to_log()  # one thread at a time; packages are imported, and print then
def load(config: str | Path, checkpoint: str | Path | None = None, *, device: str | None = None,
         cfg_options: dict[str, Any] | None = None, runtime: str | None = None, amp: str | None = None,
         data_root: str | None = None) -> Model:
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
        UserError: the config or the checkpoint does not exist or cannot be read, they do not fit each other, or the
            task is unknown; or published weights need other images than the config prepares.
    """
    use_one_thread_after_fork()
    device = device or ('cuda' if torch.cuda.is_available() else 'cpu')
    cfg = read_config(str(config), cfg_options, data_root)
    if checkpoint is None and not is_published(config):
        raise UserError(f'{config}: give its checkpoint, too; a published model holds both.')
    checkpoint = str(checkpoint or cfg.filename)
    check_exists(checkpoint)
    with DefaultScope.overwrite_default_scope(cfg.get('default_scope') or 'mmengine'):
        content = prepare_model(cfg, checkpoint, runtime, amp)
        meta = {key: metainfo(dataset, cfg, key) for dataset in datasets_of(cfg, 'test')[:1]
                for key in ('classes', 'palette')} | {**dataset_meta(content)}
        with refusals_of('model'):
            network = revert_sync_batchnorm(MODELS.build(cfg.model))
        task = dict(panoptic='detection').get(task_of(network), task_of(network))
        if task is None:
            raise UserError(f'{config}: model.type={type_name(cfg.model)!r} is not supported: allowed are detectors of '
                            'MMDetection, segmentors of MMSegmentation, and the classifiers of cvt_dense.')
        if not is_exported(checkpoint):
            weights = select_weights(content, source=checkpoint)
            check_model(network, weights, checkpoint, strict=True)
            check_preprocessing(cfg, network, checkpoint)
            network.load_state_dict(weights)
        network.to(device).eval()
        classes = Classes.of_file(content, checkpoint).names or meta.get('classes') or ()
        palette = meta.get('palette') or ()
        if not isinstance(palette, (list, tuple)) or len(palette) < len(classes):
            palette = choose_palette(classes)
        return Model(network, cfg, task, classes, palette, *build_pipeline(cfg, task))


@cache
def use_one_thread_after_fork() -> None:
    """Let PyTorch use one thread in processes that fork from this one, where it would wait for others for ever."""
    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))


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


def prepare_model(cfg: Config, source: str, runtime: str | None = None, amp: str | None = None) -> dict[str, Any]:
    """Fit the model of a config to the file that it predicts with.

    A classifier whose config leaves ``num_classes`` open has those of the file.

    Args:
        cfg: changed in place.
        source: checkpoint file or URL, or a whole model of ``tools/export.py``, which replaces the networks.
        runtime: see :func:`load`.
        amp: see :func:`load`.

    Returns:
        The content of the checkpoint, or the metadata of the exported file.

    Raises:
        UserError: the file cannot be read, or is exported and has a precision of its own; or ``amp`` is unknown.
    """
    whole = is_exported(source)
    if amp not in (None, 'bf16', 'fp16'):
        raise UserError(f"amp={amp!r}: allowed are 'bf16' and 'fp16'.")
    if whole and amp:
        raise UserError(f'amp={amp!r}: {source} has the precision of its export: leave amp out, or export it again.')
    content = open_exported(source, runtime).metadata if whole else load_weights_file(source)
    outputs = [len(tensor) for name, tensor in content.get('state_dict', {}).items()
               if name in ('head.weight', 'module.head.weight')]  # of classifiers
    if content.get('task') == 'classification':
        outputs.append(len(content['classes'] or ()))
    heads = [key for key in cfg.model if key.endswith('head')]  # of detectors and segmentors
    if any(outputs) and not heads and cfg.model.get('num_classes') is None:
        cfg.model.num_classes = outputs[0]
    if whole:
        cfg.load_from = None
        cfg.custom_hooks = [hook for hook in cfg.get('custom_hooks') or []
                            if not WEIGHT_HOOKS.search(str(hook['type']))]
        cfg.model.update(type='cvt_dense.ExportedModel', replaces=cfg.model.type, file=source, runtime=runtime)
    if amp:
        cfg.model.update(type='cvt_dense.AutocastModel', replaces=cfg.model.type, dtype=amp)
    return content


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
