"""What tools/predict.py draws: predictions, with the annotation beside them, and an overview of many pictures.

Sizes of texts and lines follow the picture's, so that all is read where the whole picture is looked at. Images are
(H, W, 3), uint8, RGB; colours RGB.
"""
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

Box = tuple[float, float, float, float]  # left, top, right, bottom, pixels
DRAWN_SIDE = 480  # pixels; a shorter side below this is enlarged by a whole factor
MAX_HIDDEN = 0.25  # share of another object's box that a label may cover
SHEET_WIDTH = 1560  # pixels of an overview
SHEET_ROWS = 5  # at most in an overview


class Object(NamedTuple):
    """A detected or annotated object.

    Attributes:
        label: index of its class.
        box: in pixels of the image.
        mask: (H, W), bool; None: there is none.
        score: None of an annotation.
    """
    label: int
    box: Box
    mask: np.ndarray | None
    score: float | None = None


class Row(NamedTuple):
    """A line of the panel below a picture: a name, its value in words, the length of its bar, its colour."""
    name: str
    value: str
    share: float
    colour: tuple[int, int, int]


def enlarge(image: np.ndarray) -> tuple[np.ndarray, int]:
    """The image, enlarged if it is small, and the whole factor."""
    height, width = image.shape[:2]
    factor = max(1, round(DRAWN_SIDE / min(height, width)))
    size = width * factor, height * factor
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC)), factor


def text_size(image: np.ndarray) -> int:
    """Pixels; 20 in 512 x 512."""
    return max(14, round((image.shape[0] * image.shape[1])**0.5 / 25))


# -- detections --------------------------------------------------------------------------------------


def draw_objects(image: np.ndarray, objects: Sequence[Object], classes: Sequence[str],
                 palette: Sequence[tuple[int, int, int]]) -> np.ndarray:
    """Masks, boxes and labels, enlarged; the best are labelled first.

    A label stands where it hides least of the objects: with the class's name or, where that finds no place, with the
    score alone, or not at all, since the panel below the picture says which colour is which class.
    """
    image, factor = enlarge(image)
    size = text_size(image)
    line = max(2, size // 9)
    objects = sorted(objects, key=lambda found: found.score or 0., reverse=True)
    pixels = image.astype(np.float32)
    for found in reversed(objects):
        if found.mask is not None and found.mask.any():
            _draw_mask(pixels, found.mask, factor, palette[found.label], line)
    picture = Image.fromarray(pixels.astype(np.uint8))
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(size)
    boxes = [tuple(side * factor for side in found.box) for found in objects]
    for found, (left, top, right, bottom) in reversed(list(zip(objects, boxes))):
        # Around the object, not over it: a small one would be hidden.
        draw.rectangle((left - line, top - line, max(left, right) + line, max(top, bottom) + line),
                       outline=tuple(palette[found.label]), width=line)
    placed: list[Box] = []
    for found, box in zip(objects, boxes):
        score = [] if found.score is None else [f'{found.score:.2f}']
        for text in (' '.join([classes[found.label], *score]), *score):
            width = draw.textlength(text, font) + size // 2
            place = _place_label((width, size * 1.3), box, boxes, placed, picture.size, line)
            if place is not None:
                _draw_label(draw, place, text, tuple(palette[found.label]), font)
                placed.append(place)
                break
    return np.asarray(picture)


def _draw_mask(pixels: np.ndarray, mask: np.ndarray, factor: int, colour: Sequence[int], line: int) -> None:
    """Tints a mask and draws its outline, in place."""
    (top, bottom), (left, right) = ((int(index.min()), int(index.max()) + 1) for index in np.nonzero(mask))
    part = Image.fromarray(mask[top:bottom, left:right]).convert('L')
    part = part.resize((part.width * factor, part.height * factor), Image.Resampling.NEAREST)
    framed = Image.new('L', (part.width + 2, part.height + 2))  # a mask at its rectangle's border has an outline there
    framed.paste(part, (1, 1))
    inner = np.asarray(framed.filter(ImageFilter.MinFilter(2 * (line // 2) + 1)))[1:-1, 1:-1] > 0
    mask = np.asarray(part) > 0
    region = pixels[top * factor:bottom * factor, left * factor:right * factor]
    region[mask] = 0.65 * region[mask] + 0.35 * np.array(colour, np.float32)
    region[mask & ~inner] = colour


def _place_label(extent: tuple[float, float], box: Box, boxes: Sequence[Box], placed: Sequence[Box],
                 size: tuple[int, int], line: int) -> Box | None:
    """Where a label of ``extent`` (width, height) at ``box`` hides least; None: nowhere without hiding too much."""
    (width, height), (left, top, right, bottom) = extent, box
    tops = (top - line - height, bottom + line, top + line)
    places = [(x, y) for y in tops for x in (left - line, right + line - width)]
    places += [(right + 2 * line, top), (left - 2 * line - width, top)]
    best, least = None, MAX_HIDDEN
    for x, y in places:
        place = (x, y, x + width, y + height)
        if x < 0 or y < 0 or place[2] > size[0] or place[3] > size[1]:
            continue
        if any(_shared_area(place, other) for other in placed):
            continue
        hidden = max(_shared_area(place, other) / max(1., (other[2] - other[0]) * (other[3] - other[1]))
                     for other in boxes)
        if hidden < least:
            best, least = place, hidden
    return best


def _shared_area(a: Box, b: Box) -> float:
    return max(0., min(a[2], b[2]) - max(a[0], b[0])) * max(0., min(a[3], b[3]) - max(a[1], b[1]))


def _draw_label(draw: ImageDraw.ImageDraw, place: Box, text: str, colour: tuple[int, int, int],
                font: ImageFont.FreeTypeFont) -> None:
    left, top, right, bottom = place
    draw.rectangle(place, fill=colour)
    dark = sum(weight * value for weight, value in zip((0.3, 0.59, 0.11), colour)) < 120
    draw.text(((left + right) / 2, (top + bottom) / 2), text, 'white' if dark else 'black', font, anchor='mm')


# -- label maps --------------------------------------------------------------------------------------


def draw_label_map(image: np.ndarray, labels: np.ndarray, palette: Sequence[tuple[int, int, int]]) -> np.ndarray:
    """The image, enlarged, tinted with each pixel's class; what has none (``labels`` beyond the palette) is left."""
    image, factor = enlarge(image)
    labels = labels.repeat(factor, 0).repeat(factor, 1)
    known = labels < len(palette)
    pixels = image.astype(np.float32)
    pixels[known] = 0.4 * pixels[known] + 0.6 * np.array(palette, np.float32)[labels[known]]
    return pixels.astype(np.uint8)


# -- pictures of pictures ----------------------------------------------------------------------------


def with_panel(image: np.ndarray, rows: Sequence[Row], size: int) -> np.ndarray:
    """The image with a line for each of ``rows`` below it, in text of ``size`` pixels."""
    height, width = image.shape[:2]
    line, font = round(size * 1.4), ImageFont.load_default(size)
    picture = Image.new('RGB', (width, height + line * len(rows) + line // 2), 'white')
    picture.paste(Image.fromarray(image))
    draw = ImageDraw.Draw(picture)
    width = min(width, 30 * size)  # of a row, whose end the eye must find
    for i, row in enumerate(rows):
        y = height + line // 4 + i * line
        colour = tuple(row.colour)
        draw.rectangle((0, y + 1, row.share * width, y + line - 2), fill=tuple((c + 255) // 2 for c in colour))
        draw.rectangle((0, y + 1, line // 2, y + line - 2), fill=colour)
        end = width - line // 3 - draw.textlength(row.value, font)
        draw.text((line * 0.7, y + line / 2), _shorten(row.name, end - line, draw, font), 'black', font, anchor='lm')
        draw.text((end, y + line / 2), row.value, 'black', font, anchor='lm')
    return np.asarray(picture)


def _shorten(text: str, width: float, draw: ImageDraw.ImageDraw, font: ImageFont.FreeTypeFont) -> str:
    """``text``, without its end where that is wider than ``width`` pixels."""
    short = text
    while short and draw.textlength(short, font) > width:
        short = short.removesuffix('...')[:-1] + '...' if len(short) > 4 else ''
    return short


def side_by_side(pictures: dict[str, np.ndarray], size: int) -> np.ndarray:
    """Pictures of one height with their titles above them."""
    line, gap = round(size * 1.5), max(4, size // 3)
    height = max(image.shape[0] for image in pictures.values())
    width = sum(image.shape[1] + gap for image in pictures.values()) - gap
    picture = Image.new('RGB', (width, height + line), 'white')
    draw, left = ImageDraw.Draw(picture), 0
    for title, image in pictures.items():
        draw.text((left + image.shape[1] / 2, line / 2), title, 'black', ImageFont.load_default(size), anchor='mm')
        picture.paste(Image.fromarray(image), (left, line))
        left += image.shape[1] + gap
    return np.asarray(picture)


def overview(pictures: Sequence[tuple[str, Image.Image]], columns: int) -> Image.Image:
    """One sheet of :func:`thumbnail`'s pictures with their names."""
    line, font = 22, ImageFont.load_default(15)
    width = SHEET_WIDTH // columns
    rows = [pictures[i:i + columns] for i in range(0, len(pictures), columns)]
    heights = [max(picture.height for _, picture in row) + line + 10 for row in rows]
    sheet = Image.new('RGB', (width * min(columns, len(pictures)), sum(heights)), 'white')
    draw, top = ImageDraw.Draw(sheet), 0
    for row, height in zip(rows, heights):
        for i, (name, picture) in enumerate(row):
            draw.text((i * width, top + line / 2), _shorten(name, width - 10, draw, font), 'black', font, anchor='lm')
            sheet.paste(picture, (i * width, top + line))
        top += height
    return sheet


def thumbnail(picture: np.ndarray, columns: int) -> Image.Image:
    """A picture as small as one of ``columns`` on a sheet."""
    small = Image.fromarray(picture)
    width = SHEET_WIDTH // columns - 10
    small.thumbnail((width, 2 * width), Image.Resampling.LANCZOS)
    return small
