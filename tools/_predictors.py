"""What tools/predict.py draws and prints for each of the three tasks."""
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
import torch
from _pictures import Object, Row, draw_label_map, draw_objects, enlarge, side_by_side, text_size, with_panel
from mmengine.config import Config
from mmengine.registry import MODELS, TRANSFORMS
from mmengine.runner import load_checkpoint
from PIL import Image

from cvt_dense.datasets import open_image
from cvt_dense.deploy.fuse import compile_backbone
from cvt_dense.deploy.runtime import open_exported
from cvt_dense.errors import UserError
from cvt_dense.nodes import dicts, type_name
from cvt_dense.palette import choose_palette

LEGEND_ROWS = 8  # of the largest or most frequent classes
LEAST_SHARE = 0.0005  # of the pixels that a class is named with: less would read 0.0%
GREY, BLUE, GREEN, RED = (200, 200, 200), (142, 202, 230), (80, 180, 90), (230, 90, 80)

# Reads a file as the task's data sets do: (H, W, 3), uint8, BGR, upright as EXIF says; None: unreadable.
Reader = Callable[[Path], np.ndarray | None]
# Takes an image (H, W, 3), uint8, BGR, and its annotation (None: not asked for); returns its picture, RGB, and the
# line to print.
Predictor = Callable[..., tuple[np.ndarray, str]]


def palette_of(cfg: Config, meta: dict[str, Any]) -> list[tuple[int, int, int]]:
    """The colours of a checkpoint's classes: those of the config's data, of the checkpoint, or chosen.

    Args:
        cfg: complete, so that classes of one's own have their palette in it.
        meta: ``dataset_meta`` of the checkpoint.
    """
    given = [node['metainfo'].get('palette') for node in dicts(cfg.get('test_dataloader'))
             if isinstance(node.get('metainfo'), dict)]
    for palette in [*given, meta.get('palette')]:
        if isinstance(palette, (list, tuple)) and len(palette) >= len(meta['classes']):
            return [tuple(map(int, colour)) for colour in palette]
    return choose_palette(meta['classes'])


def _legend(picture: np.ndarray, rows: list[Row], size: int) -> np.ndarray:
    if len(rows) > LEGEND_ROWS:
        rows = [*rows[:LEGEND_ROWS - 1], Row(f'and {len(rows) - LEGEND_ROWS + 1} more classes', '', 0., GREY)]
    return with_panel(picture, rows, size)


# -- classification ----------------------------------------------------------------------------------


def read_for_classification(path: Path) -> np.ndarray | None:
    try:
        return np.asarray(open_image(path))[..., ::-1]
    except Exception:  # Pillow raises anything from SyntaxError to struct.error on broken files
        return None


def names_in_file(cfg: Config) -> list[str] | None:
    """The class names that an exported model has in its file; None: it has none, or the model is a checkpoint's."""
    if type_name(cfg.model) != 'ExportedModel':
        return None
    return open_exported(cfg.model.file, cfg.model.runtime).metadata['classes']


def classification_predictor(cfg: Config, checkpoint: str | None, device: str, compiled: bool = False) -> Predictor:
    from timm.data import create_transform
    transform = cfg.get('test_dataloader', {}).get('dataset', {}).get('transform')
    if transform is None:
        raise UserError(f'{cfg.filename} has no test_dataloader.dataset.transform, which prepares the images.')
    transform = create_transform(**transform, use_prefetcher=True)
    model = MODELS.build(cfg.model)
    meta = load_checkpoint(model, checkpoint, map_location='cpu').get('meta', {}) if checkpoint else {}
    model.to(device).eval()
    if compiled:
        compile_backbone(model)
    names = list(names_in_file(cfg) or (meta.get('dataset_meta') or {}).get('classes') or [])
    classes = [*names, *range(len(names), model.num_classes)]  # trained with more outputs than names: by number

    def predict(image: np.ndarray, annotated: str | None = None) -> tuple[np.ndarray, str]:
        inputs = torch.as_tensor(transform(Image.fromarray(image[..., ::-1])))[None]
        with torch.no_grad():
            scores = model.test_step(dict(inputs=inputs))[0]['logits'].softmax(0)
        top = [(str(classes[i]), float(scores[i])) for i in scores.topk(min(5, len(scores))).indices]
        rows = [Row(name, f'{score:.2f}', score, BLUE) for name, score in top]
        summary = ', '.join(f'{name} {score:.2f}' for name, score in top)
        if annotated is not None:
            right = top[0][0] == annotated
            rows = [Row(f'annotated: {annotated}', 'right' if right else 'wrong', 0., GREEN if right else RED), *rows]
            summary += f'; annotated: {annotated}'
        picture = enlarge(image[..., ::-1])[0]
        return with_panel(picture, rows, text_size(picture)), summary

    return predict


# -- masked images -----------------------------------------------------------------------------------


def masked_predictor(cfg: Config, checkpoint: str, device: str) -> Predictor:
    """Draws the image, what the network sees of it, and what it paints: hidden squares only, the rest is the image."""
    from timm.data import create_transform
    size = cfg.train_dataloader.dataset.transform.input_size
    transform = create_transform(size, interpolation='bicubic', crop_pct=1., use_prefetcher=True)
    model = MODELS.build(cfg.model)
    load_checkpoint(model, checkpoint, map_location='cpu')
    model.to(device).eval()
    mean, std = model.data_preprocessor.mean, model.data_preprocessor.std

    def pixels(image: torch.Tensor) -> np.ndarray:
        return (image * std + mean).round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).cpu().numpy()

    def predict(image: np.ndarray, annotated: Any = None) -> tuple[np.ndarray, str]:
        inputs = torch.as_tensor(transform(Image.fromarray(image[..., ::-1])))[None]
        with torch.no_grad():
            found = model.test_step(dict(inputs=inputs))[0]
        original = model.data_preprocessor(dict(inputs=inputs))['inputs'][0]
        views = dict(image=original, masked=original.masked_fill(found['hidden'], 0.),
                     reconstruction=torch.where(found['hidden'], found['painted'], original))
        pictures = {name: enlarge(pixels(view))[0] for name, view in views.items()}
        size = text_size(pictures['image'])
        return side_by_side(pictures, size), f'L1 of hidden pixels {found["loss"]:.3f}, in deviations of the data'

    return predict


# -- detection ---------------------------------------------------------------------------------------


def detection_predictor(cfg: Config, checkpoint: str | None, device: str, score_thr: float,
                        compiled: bool = False) -> Predictor:
    from mmdet.apis import inference_detector, init_detector
    model = init_detector(cfg, checkpoint, device=device)
    if compiled:
        compile_backbone(model)
    meta = dict(model.dataset_meta, classes=names_in_file(cfg) or model.dataset_meta['classes'])
    classes, palette = meta['classes'], palette_of(cfg, meta)

    def predict(image: np.ndarray, annotated: Sequence[Object] | None = None) -> tuple[np.ndarray, str]:
        found = inference_detector(model, image).cpu().pred_instances
        found = found[found.scores >= score_thr].numpy()
        masks = found.masks.astype(bool) if 'masks' in found else [None] * len(found)
        objects = [Object(int(label), tuple(box), mask, float(score)) for label, box, mask, score in zip(
            found.labels, found.bboxes.tolist(), masks, found.scores)]
        image = image[..., ::-1]
        picture = draw_objects(image, objects, classes, palette)
        size, counts = text_size(picture), Counter(classes[found.label] for found in objects)
        nothing = f'nothing with a score of {score_thr:.2f} or more'
        summary = ', '.join(f'{classes[found.label]} {found.score:.2f}' for found in objects) or nothing
        values = {name: str(count) for name, count in counts.most_common()}
        if annotated is not None:
            true = Counter(classes[found.label] for found in annotated)
            size = round(size * 1.3)
            picture = side_by_side(
                dict(annotation=draw_objects(image, annotated, classes, palette), prediction=picture), size)
            summary += '; annotated: ' + (', '.join(f'{count} {name}' for name, count in true.items()) or 'nothing')
            values = {name: f'annotated {true[name]}, predicted {counts[name]}'
                      for name, _ in (counts | true).most_common()}
        rows = [Row(name, value, 0., palette[classes.index(name)]) for name, value in values.items()]
        return _legend(picture, rows or [Row(nothing, '', 0., GREY)], size), summary

    return predict


# -- segmentation ------------------------------------------------------------------------------------


def read_for_segmentation(cfg: Config) -> Reader:
    """mmcv's default, or, where the config's test pipeline loads otherwise (more channels, say), as that does."""
    loader = (cfg.get('test_dataloader', {}).get('dataset', {}).get('pipeline') or [{}])[0]
    if type_name(loader) == 'LoadImageFromFile' and not {'color_type', 'imdecode_backend'} & set(loader):
        return mmcv.imread
    transform = TRANSFORMS.build(dict(loader))

    def read(path: Path) -> np.ndarray | None:
        try:
            return transform(dict(img_path=str(path)))['img']
        except Exception:  # each decoder raises its own
            return None

    return read


def visible(image: np.ndarray) -> np.ndarray:
    """RGB, uint8, of an image as it was read: BGR, or of other channels the first three (or one), stretched."""
    image = np.atleast_3d(image)
    if image.dtype == np.uint8 and image.shape[2] == 3:
        return image[..., ::-1]
    first = image[..., [0, 1, 2] if image.shape[2] >= 3 else [0, 0, 0]].astype(np.float32)
    return ((first - first.min()) / max(float(np.ptp(first)), 1e-9) * 255).astype(np.uint8)


def segmentation_predictor(cfg: Config, checkpoint: str | None, device: str, compiled: bool = False) -> Predictor:
    from mmseg.apis import inference_model, init_model
    cfg.setdefault('test_pipeline', cfg.get('test_dataloader', {}).get('dataset', {}).get('pipeline'))
    model = init_model(cfg, checkpoint, device=device)
    if compiled:
        compile_backbone(model)
    meta = getattr(model, 'dataset_meta', None) or dict(classes=names_in_file(cfg))
    classes = meta['classes']
    palette = palette_of(cfg, meta)[:len(classes)]

    def shares(labels: np.ndarray) -> np.ndarray:
        """Of the annotated pixels."""
        counts = np.bincount(labels.ravel(), minlength=256)[:len(classes)]
        return counts / max(1, counts.sum())

    def predict(image: np.ndarray, annotated: np.ndarray | None = None) -> tuple[np.ndarray, str]:
        labels = inference_model(model, image).pred_sem_seg.data[0].cpu().numpy()
        image = visible(image)
        picture = draw_label_map(image, labels, palette)
        share, size = shares(labels), text_size(picture)
        order = [i for i in share.argsort()[::-1] if share[i] >= LEAST_SHARE]
        summary = ', '.join(f'{classes[i]} {share[i]:.1%}' for i in order)
        values = {i: f'{share[i]:.1%}' for i in order}
        if annotated is not None:
            true, counted = shares(annotated), annotated < len(classes)
            size = round(size * 1.3)
            picture = side_by_side(
                dict(annotation=draw_label_map(image, annotated, palette), prediction=picture), size)
            summary += f'; annotated the same: {(labels == annotated)[counted].mean():.1%} of the annotated pixels'
            most = np.maximum(share, true)
            order = [i for i in most.argsort()[::-1] if most[i] >= LEAST_SHARE]
            values = {i: f'annotated {true[i]:.1%}, predicted {share[i]:.1%}' for i in order}
        rows = [Row(classes[i], values[i], float(share[i]), palette[i]) for i in order]
        return _legend(picture, rows, size), summary

    return predict
