"""Load a trained model and predict with it, as tools/predict.py does.

    from cvt_dense.api import load, predict

    model = load('mine.py', 'work_dirs/mine/best.pth')   # or load('mine.py', 'mine.onnx')
    found = predict(model, 'photo.jpg')                  # a path, an array, or a list of these

``found`` is a ``supervision.Detections`` of a detector, a label map of a segmentor, and of a classifier the classes
with their probabilities, the most probable first.
"""
import argparse
from collections.abc import Sequence
from dataclasses import dataclass
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

from .datasets import open_image
from .deploy.fuse import compile_backbone
from .deploy.runtime import is_exported, open_exported
from .errors import UserError
from .launch.checks.weights import check_checkpoint
from .launch.data_sets import leaf_datasets, metainfo
from .launch.inference import set_inference
from .launch.read import read_config
from .nodes import dicts, type_name
from .palette import choose_palette
from .weights.files import load_weights_file, select_weights

if TYPE_CHECKING:
    from supervision import Detections

TASKS = dict(mmdet='detection', mmseg='segmentation')  # by default_scope
MODEL_TASKS = dict(ImageClassifier='classification', MaskedImageModel='masked images')  # by model.type


@dataclass
class Model:
    """A trained network with what prepares its images and names its outputs; :func:`load` makes it.

    Attributes:
        network: in eval mode, on its device.
        cfg: its complete config.
        task: 'classification', 'detection', 'segmentation' or 'masked images'.
        classes: names by number.
        palette: an RGB colour for each class.
        pipeline: takes an array (H, W, channels), returns ``inputs`` and, of mmdet and mmseg, ``data_samples``.
    """
    network: BaseModel
    cfg: Config
    task: str
    classes: Sequence[str]
    palette: Sequence[tuple[int, int, int]]
    pipeline: Any

    def name(self, number: int) -> str:
        """Return the name of a class, or its number where the network has more outputs than there are names."""
        return str(self.classes[number] if number < len(self.classes) else number)

    def read(self, path: str | Path) -> np.ndarray:
        """Return the image in a file as the config's data sets read it: (H, W, 3), uint8, BGR, upright.

        A config that loads other images (more channels, say) gets those.

        Raises:
            UserError: the file cannot be read as an image.
        """
        try:
            if self.task in TASKS.values():
                image = TRANSFORMS.build(_test_pipeline(self.cfg)[0])(dict(img_path=str(path)))['img']
            else:
                image = np.asarray(open_image(path))[..., ::-1]
        except Exception as error:  # every decoder raises its own on a damaged file
            raise UserError(f'{path} cannot be read as an image ({type(error).__name__}).') from error
        return image


def load(config: str | Path, checkpoint: str | Path, *, device: str | None = None,
         cfg_options: dict[str, Any] | None = None, backbone: str | None = None, runtime: str | None = None,
         amp: str | None = None, compile: bool = False, data_root: str | None = None) -> Model:
    """Load a trained classifier, detector, segmentor or masked image model.

    Args:
        config: config file.
        checkpoint: checkpoint file or address, or a whole model of ``tools/export.py`` (.onnx, .xml, .pt2).
        device: where to run; default: cuda, without a GPU cpu.
        cfg_options: settings of the config to override, by their dotted names.
        backbone: exported backbone in place of the checkpoint's.
        runtime: what runs exported files: 'onnxruntime', 'openvino' or 'torch'; default: by the file's suffix.
        amp: mixed precision, 'bf16' or 'fp16'.
        compile: compile the backbone, which takes a minute or more at the first image.
        data_root: folder of the config's data in place of its own, where it is not at hand.

    Raises:
        UserError: config or checkpoint do not exist, cannot be read or do not fit each other, or the task is unknown.
    """
    args = argparse.Namespace(config=str(config), checkpoint=str(checkpoint), cfg_options=cfg_options, compile=compile,
                              backbone=backbone, runtime=runtime, autocast=amp, data_root=data_root)
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


def predict(model: Model, images: Any) -> Any:
    """Predict one image, or a list of images.

    Args:
        model: of :func:`load`.
        images: a path, an array as :meth:`Model.read` returns it (of OpenCV: (H, W, 3), uint8, BGR), or a list of
            these. Images that have one size after the test pipeline are predicted together.

    Returns:
        Of each image:

        - detection: ``supervision.Detections`` in its pixels, without a threshold of scores, class names in
          ``data['class_name']``.
        - segmentation: the class numbers of its pixels, an int64 array (H, W).
        - classification: pairs of class name and probability, the most probable first.
        - masked images: a dict of arrays (H, W, 3), uint8, BGR: 'image', 'masked' and 'reconstruction', and 'loss', the
          mean L1 of the hidden pixels in standard deviations of the data.

    Raises:
        UserError: a file cannot be read.
        ValueError, RuntimeError: the network cannot take an image, for example one that is too small.
    """
    if not isinstance(images, (list, tuple)):
        return predict(model, [images])[0]
    arrays = [image if isinstance(image, np.ndarray) else model.read(image) for image in images]
    samples = [model.pipeline(_as_loaded(image)) for image in arrays]
    together = len({sample['inputs'].shape for sample in samples}) == 1
    collate = pseudo_collate if model.task in TASKS.values() else default_collate
    with torch.no_grad():
        outputs = [output for batch in ([samples] if together else [[sample] for sample in samples])
                   for output in model.network.test_step(collate(batch))]
    convert = dict(detection=_detections, segmentation=_label_map, classification=_probabilities)
    if model.task == 'masked images':
        return [_reconstruction(model, sample['inputs'], output) for sample, output in zip(samples, outputs)]
    return [convert[model.task](model, output) for output in outputs]


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


def _as_loaded(image: np.ndarray) -> dict[str, Any]:
    """Return what LoadImageFromFile makes of an image."""
    return dict(img=image, img_shape=image.shape[:2], ori_shape=image.shape[:2], img_path='', img_id=0)


def _dataset_meta(cfg: Config) -> dict[str, Any]:
    """Return classes and palette of the config's test data set, as far as it gives them."""
    dataset = next(leaf_datasets((cfg.get('test_dataloader') or {}).get('dataset') or {}), None)
    if not dataset:
        return {}
    found = {key: metainfo(dataset, cfg, key) for key in ('classes', 'palette')}
    return {key: value for key, value in found.items() if isinstance(value, (list, tuple))}


# -- after the network ---------------------------------------------------------------------------------


def _detections(model: Model, sample: Any) -> 'Detections':
    from supervision import Detections
    found = Detections.from_mmdetection(sample)
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
