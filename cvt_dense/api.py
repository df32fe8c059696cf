"""Load a trained model and predict with it, as ``tools/predict.py`` does.

For example::

    from cvt_dense.api import load, predict

    model = load('mine.py', 'work_dirs/mine/best.pth')   # or load('mine.py', 'mine.onnx')
    found = predict(model, 'photo.jpg')                  # a path, an array, or a list of these
    found = predict(model, 'large.tif', slice=1024)      # in overlapping slices

For a detector, ``found`` is a ``supervision.Detections``; for a segmentor, it is a label map; for a classifier, it
lists the classes with their probabilities, the most probable first.
"""
import argparse
import math
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose, default_collate, pseudo_collate
from mmengine.model import BaseModel, revert_sync_batchnorm
from mmengine.registry import MODELS, TRANSFORMS, init_default_scope
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from .datasets import open_image
from .deploy.fuse import compile_backbone
from .deploy.runtime import is_exported, open_exported
from .errors import UserError
from .launch.checks.weights import check_checkpoint
from .launch.command_line import check_slice
from .launch.data_sets import leaf_datasets, metainfo
from .launch.inference import set_inference
from .launch.read import read_config
from .nodes import dicts, type_name
from .palette import choose_palette
from .slicing import RasterImage, as_loaded, fits, predict_slices, slice_starts
from .weights.files import load_weights_file, select_weights

if TYPE_CHECKING:
    from supervision import Detections

TASKS = dict(mmdet='detection', mmseg='segmentation')  # by default_scope
MODEL_TASKS = dict(ImageClassifier='classification', MaskedImageModel='masked images')  # by model.type


def say(name: str) -> str:
    """Return the name of a class without a number of WordNet in front of it."""
    match = re.fullmatch(r'n\d{8}_(.+)', name)
    return match[1].replace('_', ' ') if match else name


@dataclass
class Model:
    """A trained network with its test pipeline and class names; :func:`load` creates it.

    Attributes:
        network: the network in eval mode, on its device.
        cfg: the complete config.
        task: 'classification', 'detection', 'segmentation' or 'masked images'.
        classes: the class names in the order of their numbers.
        palette: an RGB colour for each class.
        pipeline: the test pipeline, which takes an array (H, W, channels) and returns ``inputs`` and, for a detector or
            segmentor, ``data_samples``.
    """
    network: BaseModel
    cfg: Config
    task: str
    classes: Sequence[str]
    palette: Sequence[tuple[int, int, int]]
    pipeline: Any

    def name(self, number: int) -> str:
        """Return the name of a class, or its number where the network has more outputs than there are names.

        A name that begins with a number of WordNet, such as 'n07920052_hot_coffee', is returned as people say it.
        """
        return say(str(self.classes[number] if number < len(self.classes) else number))

    def read(self, path: str | Path, by_window: bool = False) -> np.ndarray | RasterImage:
        """Return the image in a file as the config's data sets read it: (H, W, 3), uint8, BGR, upright.

        The number of channels differs if the config loads other images. With ``by_window`` and rasterio, a TIFF file of
        8-bit gray or RGB pixels is opened without being read, and :func:`predict` reads one slice after the other.

        Raises:
            UserError: the file cannot be read as an image.
        """
        if by_window and set(_test_pipeline(self.cfg)[0]) <= {'type', 'backend_args'}:
            with suppress(ImportError, ValueError):
                return RasterImage(path)
        try:
            if self.task in TASKS.values():
                image = TRANSFORMS.build(_test_pipeline(self.cfg)[0])(dict(img_path=str(path)))['img']
            else:
                image = np.asarray(open_image(path))[..., ::-1]
        except Exception as error:  # every decoder raises its own exception for a damaged file
            raise UserError(f'{path} cannot be read as an image ({type(error).__name__}).') from error
        return image


def load(config: str | Path, checkpoint: str | Path, *, device: str | None = None,
         cfg_options: dict[str, Any] | None = None, backbone: str | None = None, runtime: str | None = None,
         amp: str | None = None, compile: bool = False, data_root: str | None = None) -> Model:
    """Load a trained classifier, detector, segmentor or masked image model.

    Args:
        config: config file.
        checkpoint: checkpoint file or URL, or a whole model of ``tools/export.py`` (.onnx, .xml, .pt2).
        device: device of the network. Default: 'cuda' if there is a GPU, or else 'cpu'.
        cfg_options: settings of the config to override, by their dotted names.
        backbone: file of an exported backbone, which replaces the checkpoint's.
        runtime: runtime of exported files: 'onnxruntime', 'openvino' or 'torch'. Default: chosen by the file's suffix.
        amp: mixed precision, 'bf16' or 'fp16'.
        compile: compile the backbone, which takes a minute or more at the first image.
        data_root: folder of the config's data, if it is not where the config says.

    Raises:
        UserError: the config or the checkpoint does not exist or cannot be read, they do not fit each other, or the
            task is unknown.
    """
    args = argparse.Namespace(config=str(config), checkpoint=str(checkpoint), cfg_options=cfg_options, compile=compile,
                              backbone=backbone, runtime=runtime, autocast=amp, data_root=data_root)
    if amp not in (None, 'bf16', 'fp16'):
        raise UserError(f'amp={amp!r}: allowed are bf16 and fp16, or None for float32.')
    device = device or ('cuda' if torch.cuda.is_available() else 'cpu')
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f'device={device!r} cannot be used here: {str(error).splitlines()[0]}') from error
    cfg = read_config(args)
    scope = cfg.get('default_scope') or 'mmengine'
    init_default_scope(scope)
    task = TASKS.get(scope) or MODEL_TASKS.get(type_name(cfg.model))
    if task is None:
        raise UserError(f'{config}: default_scope={scope!r} with model.type={type_name(cfg.model)!r} is not supported: '
                        f'allowed are the scopes {list(TASKS)} and the models {list(MODEL_TASKS)} of cvt_dense.')
    cfg.load_from = str(checkpoint)
    set_inference(cfg, args)
    meta = _dataset_meta(cfg)
    if cfg.load_from:
        check_checkpoint(cfg, cfg.load_from, strict=True)
    network = revert_sync_batchnorm(MODELS.build(cfg.model))
    if cfg.load_from:
        read = load_weights_file(cfg.load_from, 'cpu')
        network.load_state_dict(select_weights(read))
        meta.update((read.get('meta') or {}).get('dataset_meta') or {})
    if is_exported(checkpoint):
        meta.update(classes=open_exported(checkpoint, runtime).metadata['classes'] or meta.get('classes'))
    network.to(device).eval()
    if compile:
        compile_backbone(network)
    classes, palette = meta.get('classes') or (), meta.get('palette') or ()
    if not isinstance(palette, (list, tuple)) or len(palette) < len(classes):
        palette = choose_palette(classes)
    return Model(network, cfg, task, classes, palette, _build_pipeline(cfg, task))


def predict(model: Model, images: Any, slice: int | None = None, overlap: float = 0.2, score_thr: float = 0.) -> Any:
    """Predict one image, or a list of images.

    Args:
        model: what :func:`load` returned.
        images: a path, an array as OpenCV and :meth:`Model.read` return it, (H, W, 3), uint8, BGR, or a list of
            these. Images that have one size after the test pipeline are predicted together.
        slice: side in pixels of the slices that larger images are cut into. The config's test pipeline resizes a
            slice as it resizes an image. None: no slices.
        overlap: fraction of their side by which neighbouring slices overlap.
        score_thr: objects with a lower score are left out. With a threshold from 0.1 the pieces of an object in several
            slices are merged; with a lower one the piece with the highest score is kept.

    Returns:
        The prediction for the one image, or a list with one for each image.

        - detection: ``supervision.Detections`` in the image's pixels, with class names in ``data['class_name']``. If
          the image was sliced, ``mask`` is a ``supervision.CompactMask``.
        - segmentation: an array (H, W) with the class number of each pixel, int64, or uint8 if the image was sliced.
        - classification: pairs of class name and probability, the most probable first.
        - masked images: a dict of arrays (H, W, 3), uint8, BGR: 'image', 'masked' and 'reconstruction', and 'loss', the
          mean L1 of the hidden pixels in standard deviations of the data.

    Raises:
        UserError: a file cannot be read, ``slice`` or ``overlap`` is not allowed, or scores or masks in the size of the
            image exceed this machine's memory.
        ValueError, RuntimeError: the network cannot take an image, for example one that is too small.
    """
    if not isinstance(images, (list, tuple)):
        return predict(model, [images], slice, overlap, score_thr)[0]
    if not 0 <= score_thr <= 1:
        raise UserError(f'score_thr={score_thr}: allowed is a number from 0 to 1.')
    for image in images:
        if isinstance(image, np.ndarray):
            _check_array(model, image)
    if slice is not None:
        check_slice(slice, overlap)
        if model.task not in TASKS.values():
            raise UserError(f'slice={slice}: allowed for detection and segmentation, this model does {model.task}.')
        return [_predict_large(model, image, slice, overlap, score_thr) for image in images]
    arrays = [image if isinstance(image, np.ndarray) else model.read(image) for image in images]
    for image in arrays:
        _check_memory(model, image)
    samples = [model.pipeline(as_loaded(image)) for image in arrays]
    together = len({sample['inputs'].shape for sample in samples}) == 1
    collate = pseudo_collate if model.task in TASKS.values() else default_collate
    with torch.no_grad():
        outputs = [output for batch in ([samples] if together else [[sample] for sample in samples])
                   for output in model.network.test_step(collate(batch))]
    convert = dict(detection=partial(_detections, score_thr=score_thr), segmentation=_label_map,
                   classification=_probabilities)
    if model.task == 'masked images':
        return [_reconstruction(model, sample['inputs'], output) for sample, output in zip(samples, outputs)]
    return [convert[model.task](model, output) for output in outputs]


def _predict_large(model: Model, image: Any, size: int, overlap: float, score_thr: float) -> 'Detections | np.ndarray':
    """Predict one image in slices, unless it fits into one."""
    image = image if hasattr(image, 'shape') else model.read(image, by_window=True)
    if fits(image, size):
        image = image if isinstance(image, np.ndarray) else np.ascontiguousarray(image.read().transpose(1, 2, 0))
        return predict(model, image, score_thr=score_thr)

    def predict_slice(window: np.ndarray) -> Any:
        bar.update()
        return model.network.test_step(pseudo_collate([model.pipeline(as_loaded(window))]))[0]

    number = math.prod(len(slice_starts(side, size, overlap)) for side in image.shape[:2])
    with torch.no_grad(), tqdm(total=number, desc='slices', delay=1, leave=False, disable=None) as bar:
        found = predict_slices(model.network, predict_slice, image, size, overlap, score_thr)
    return found if isinstance(found, np.ndarray) else _name_classes(model, found)


# -- before the network --------------------------------------------------------------------------------


def _test_pipeline(cfg: Config) -> list[dict[str, Any]]:
    dataset = (cfg.get('test_dataloader') or {}).get('dataset') or {}
    pipeline = next((node['pipeline'] for node in dicts(dataset) if node.get('pipeline')), None)
    if not pipeline:
        raise UserError(f'{cfg.filename} has no test_dataloader.dataset.pipeline, which prepares the images.')
    return pipeline


def _build_pipeline(cfg: Config, task: str) -> Any:
    if task in TASKS.values():
        return Compose([step for step in _test_pipeline(cfg)[1:] if type_name(step) != 'LoadAnnotations'])
    from timm.data import create_transform
    if task == 'classification':
        settings = (cfg.get('test_dataloader') or {}).get('dataset', {}).get('transform')
        if settings is None:
            raise UserError(f'{cfg.filename} has no test_dataloader.dataset.transform, which prepares the images.')
    else:  # pretraining has no test set
        settings = dict(input_size=cfg.train_dataloader.dataset.transform.input_size, interpolation='bicubic',
                        crop_pct=1.)
    transform = create_transform(**settings, use_prefetcher=True)  # leaves the normalisation to the network
    return lambda loaded: dict(inputs=torch.as_tensor(transform(Image.fromarray(loaded['img'][..., ::-1]))))


def _check_array(model: Model, image: np.ndarray) -> None:
    """Raise ``UserError`` if an array is not what the config's test pipeline loads."""
    allowed = 'allowed is (H, W, 3), uint8, BGR, or what the first step of the test pipeline loads.'
    if model.task not in TASKS.values():
        fits = image.ndim == 3 and image.shape[2] == 3 and image.dtype == np.uint8
    else:
        loader = _test_pipeline(model.cfg)[0]
        own = type_name(loader) != 'LoadImageFromFile'
        gray = own or loader.get('color_type', 'color') != 'color'
        fits = (image.ndim == 3 or image.ndim == 2 and gray) and (
            image.dtype.kind != 'f' or own or bool(loader.get('to_float32')))
    if not fits:
        raise UserError(f'an array of shape {image.shape} and type {image.dtype} is not an image of this model: '
                        + allowed)


def _check_memory(model: Model, image: np.ndarray) -> None:
    """Raise ``UserError`` if the scores or masks of a whole image are more than this machine's memory."""
    network, needed = model.network, 0
    if model.task == 'segmentation':
        needed = 4 * network.out_channels * image.shape[0] * image.shape[1]
    elif getattr(network, 'with_mask', False) and 'rcnn' in (network.test_cfg or {}):
        needed = network.test_cfg.rcnn.max_per_img * image.shape[0] * image.shape[1]
    memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    if needed > memory:
        what = 'scores' if model.task == 'segmentation' else 'masks'
        raise UserError(f'The {what} of a whole image of {image.shape[1]}x{image.shape[0]} pixels take '
                        f'{needed / 2**30:.0f} GiB, and this machine has {memory / 2**30:.0f}: predict it in slices '
                        '(--slice 1024, or slice=1024).')


def _dataset_meta(cfg: Config) -> dict[str, Any]:
    """Return classes and palette of the config's test data set, as far as it gives them."""
    dataset = next(leaf_datasets((cfg.get('test_dataloader') or {}).get('dataset') or {}), None)
    if not dataset:
        return {}
    found = {key: metainfo(dataset, cfg, key) for key in ('classes', 'palette')}
    return {key: value for key, value in found.items() if isinstance(value, (list, tuple))}


# -- after the network ---------------------------------------------------------------------------------


def _detections(model: Model, sample: Any, score_thr: float) -> 'Detections':
    from supervision import Detections
    found = Detections.from_mmdetection(sample)
    return _name_classes(model, found[found.confidence >= score_thr])


def _name_classes(model: Model, found: 'Detections') -> 'Detections':
    found.data['class_name'] = np.array([model.name(number) for number in found.class_id], str)
    return found


def _label_map(model: Model, sample: Any) -> np.ndarray:
    return sample.pred_sem_seg.data[0].cpu().numpy()


def _probabilities(model: Model, output: dict[str, Tensor]) -> list[tuple[str, float]]:
    values, numbers = output['logits'].float().softmax(0).sort(descending=True)
    return [(model.name(number), value) for number, value in zip(numbers.tolist(), values.tolist())]


def _reconstruction(model: Model, inputs: Tensor, output: dict[str, Any]) -> dict[str, Any]:
    preprocessor = model.network.data_preprocessor
    original = preprocessor(dict(inputs=inputs[None]))['inputs'][0]
    views = dict(image=original, masked=original.masked_fill(output['hidden'], 0.),
                 reconstruction=torch.where(output['hidden'], output['reconstruction'], original))

    def pixels(view: Tensor) -> np.ndarray:
        view = (view * preprocessor.std + preprocessor.mean).round().clamp(0, 255).to(torch.uint8)
        return view.permute(1, 2, 0).flip(2).cpu().numpy()

    return {**{name: pixels(view) for name, view in views.items()}, 'loss': float(output['loss'])}
