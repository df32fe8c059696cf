"""Draw predictions: the pictures of tools/predict.py and of reports."""
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import supervision as sv
from PIL import Image, ImageDraw, ImageFont

from ..atomic import atomic_path
from ..inference import Model
from ..inference.palette import find_font

TITLE = 40  # pixels of the height of a title above a picture
DRAWN_SIDE = 480  # pixels; images with a shorter side below are enlarged by a whole factor, ...
LARGEST_SIDE = 2000  # ... and no image is enlarged beyond this
LARGEST_PICTURE = 4000  # pictures of larger images are smaller by a whole factor
LEAST_FRACTION = 0.0005  # a class with a smaller fraction of the pixels is not named


def draw(model: Model, image: np.ndarray, prediction: Any, score_thr: float) -> tuple[np.ndarray, str]:
    """Draw a prediction.

    Args:
        model: the model that predicted.
        image: as ``model.read`` gives it. The picture of a larger one has at most ``LARGEST_PICTURE`` pixels a side.
        prediction: what :func:`cvt_dense.inference.predict` returned.
        score_thr: detections below are not drawn.

    Returns:
        The picture (H, W, 3), uint8, RGB, and a line of text that sums the prediction up.
    """
    picture, size = _resized(image)
    if model.task == 'classification':
        texts = [f'{name} {score:.2f}' for name, score in prediction[:5]]
        canvas, font = Image.fromarray(picture), ImageFont.truetype(find_font(), max(20, size[1] // 25))
        ImageDraw.Draw(canvas).text((8, 8), '\n'.join(texts), 'white', font, stroke_width=2, stroke_fill='black')
        return np.asarray(canvas), ', '.join(texts)
    if model.task == 'detection':
        prediction = prediction[prediction.confidence >= score_thr]
        objects = zip(prediction['class_name'], prediction.confidence)
        summary = ', '.join(f'{name} {score:.2f}' for name, score in objects)
        summary = summary or f'nothing with a score of {score_thr:.2f} or more'
    else:
        number = int(prediction.max()) + 1
        fractions = sum(np.bincount(row, minlength=number) for row in prediction) / prediction.size
        summary = ', '.join(f'{model.name(i)} {fractions[i]:.1%}' for i in fractions.argsort()[::-1]
                            if fractions[i] >= LEAST_FRACTION)
    labels = scale_labels(prediction, (image.shape[1], image.shape[0]), size)
    return draw_labels(picture, labels, model.name, model.palette), summary


def _resized(image: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
    """Return an image in RGB, enlarged if it is small and reduced if it is large, and its new width and height."""
    height, width = image.shape[:2]
    factor = max(1, min(round(DRAWN_SIDE / min(height, width)), LARGEST_SIDE // max(height, width)))
    if max(height, width) > LARGEST_PICTURE:
        factor = 1 / math.ceil(max(height, width) / LARGEST_PICTURE)
    size = math.ceil(width * factor), math.ceil(height * factor)
    if factor < 1:
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    return np.asarray(Image.fromarray(visible(image)).resize(size, Image.Resampling.BICUBIC)), size


def scale_labels(labels: sv.Detections | np.ndarray, old: tuple[int, int],
                 new: tuple[int, int]) -> sv.Detections | np.ndarray:
    """Return objects, or a label map (H, W), of an image that is resized from ``old`` to ``new`` (width, height)."""

    def resize(mask: np.ndarray) -> np.ndarray:
        rows, columns = (np.arange(side) * length // side for side, length in zip(new[::-1], mask.shape))
        return mask[rows[:, None], columns]

    if isinstance(labels, np.ndarray):
        return resize(labels)
    masks = None if labels.mask is None else np.array([*map(resize, labels.mask)], bool).reshape(-1, *new[::-1])
    return sv.Detections(labels.xyxy * np.tile(np.divide(new, old), 2), masks, class_id=labels.class_id,
                         confidence=labels.confidence)


def draw_labels(picture: np.ndarray, labels: sv.Detections | np.ndarray, name: Callable[[int], str],
                palette: Sequence[Sequence[int]]) -> np.ndarray:
    """Return a picture with objects or a label map drawn on it, except for the first class that is called background.

    Args:
        picture: uint8 (H, W, 3), RGB.
        labels: objects in its pixels, or a label map (H, W).
        name: returns the name of a class.
        palette: RGB colour of each class.
    """
    size, is_map = picture.shape[1::-1], isinstance(labels, np.ndarray)
    objects = regions(labels, len(palette)) if is_map else labels
    hidden = [i for i in range(len(palette)) if is_map and name(i).strip('_ ').lower() == 'background'][:1]
    objects = objects[~np.isin(objects.class_id, hidden)] if hidden and len(objects) else objects
    if not len(objects):
        return picture
    colors = sv.ColorPalette([sv.Color(*map(int, color)) for color in palette])
    picture = np.ascontiguousarray(picture[..., ::-1])  # supervision draws on BGR images
    picture = sv.MaskAnnotator(colors, opacity=0.6 if is_map else 0.4).annotate(picture, objects)
    if not is_map:
        picture = sv.BoxAnnotator(colors, thickness=sv.calculate_optimal_line_thickness(size)).annotate(
            picture, objects)
    texts = [name(number) for number in objects.class_id]
    if objects.confidence is not None:
        texts = [f'{text} {score:.2f}' for text, score in zip(texts, objects.confidence)]
    dark_or_light = sv.ColorPalette([
        sv.Color.WHITE if np.dot(color, (0.3, 0.59, 0.11)) < 120 else sv.Color.BLACK for color in palette])
    picture = sv.RichLabelAnnotator(
        colors, text_color=dark_or_light, smart_position=True, font_path=find_font(),
        text_position=sv.Position.CENTER_OF_MASS if is_map else sv.Position.TOP_LEFT,
        font_size=max(10, round(25 * sv.calculate_optimal_text_scale(size))),
    ).annotate(picture, objects, texts)
    return picture[..., ::-1]


def grid(pictures: Sequence[tuple[str, np.ndarray]], columns: int) -> np.ndarray:
    """Return one picture (H, W, 3), RGB, of several with their titles, ``columns`` in a row."""
    side, columns = max(max(picture.shape[:2]) for _, picture in pictures), min(columns, len(pictures))
    canvas = Image.new('RGB', (columns * side, math.ceil(len(pictures) / columns) * (side + TITLE)), 'white')
    for i, (title, picture) in enumerate(pictures):
        left, top = i % columns * side, i // columns * (side + TITLE)
        ImageDraw.Draw(canvas).text((left + 8, top + 4), title, 'black', ImageFont.truetype(find_font(), TITLE - 12))
        canvas.paste(Image.fromarray(picture), (left, top + TITLE))
    return np.asarray(canvas)


def save(picture: np.ndarray, path: Path) -> None:
    """Write a picture (H, W, 3), RGB, or a label map (H, W), uint8; PNG has no quality."""
    with atomic_path(path) as partial:
        Image.fromarray(np.ascontiguousarray(picture)).save(partial, quality=90)


def regions(labels: np.ndarray, number: int) -> sv.Detections:
    """Return the classes of a label map as objects; numbers of no class, such as 255, are left out."""
    present = np.array([i for i in np.unique(labels) if i < number], int)
    masks = labels == present[:, None, None]
    return sv.Detections(xyxy=sv.mask_to_xyxy(masks).astype(float), mask=masks, class_id=present) if len(present) \
        else sv.Detections.empty()


def visible(image: np.ndarray) -> np.ndarray:
    """Return an image as it was read as RGB, uint8: of other channels the first three (or one), stretched."""
    image = np.atleast_3d(image)
    if image.dtype == np.uint8 and image.shape[2] == 3:
        return np.ascontiguousarray(image[..., ::-1])
    first = image[..., [0, 1, 2] if image.shape[2] >= 3 else [0, 0, 0]].astype(np.float32)
    return ((first - first.min()) / max(float(np.ptp(first)), 1e-9) * 255).astype(np.uint8)
