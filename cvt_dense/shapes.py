"""Draw a small learnable data set of shapes in three formats: the data of the demo and of many tests.

``python -m cvt_dense.shapes OUT`` writes

- ``OUT/classification/{train,val}/<class>/*.png``: class folders, one shape per image;
- ``OUT/detection/{train,val}/*.png`` and ``annotations/instances_{train,val}.json``: COCO, several shapes
  per image, each with the mask of its visible part;
- ``OUT/segmentation/{images,annotations}/{training,validation}/*.png``: the same scenes with one label map
  each (ADE20K's folders), 0 for the background and 1 + class for a shape.

Shapes differ in rotation, size and texture, overlap each other, and lie on a textured background among lines
and blobs that belong to no class. Colour and texture are drawn independently of the class. Every file depends
on the settings and the seed alone.
"""
import json
import shutil
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from pycocotools import mask as coco_mask

CLASSES = ('arrow', 'circle', 'crescent', 'cross', 'ring', 'square', 'star', 'triangle')
SUPERSAMPLING = 4  # shapes are drawn this much larger, then averaged
MIN_VISIBLE = 0.7  # fraction of a shape that others may not hide
RADIUS = (12., 28.)  # pixels from a shape's centre to its farthest point
MAX_TURN = 0.6  # radians, either way


def circle(radius: float, centre: float = 0.) -> np.ndarray:
    """Return the corners (48, 2) of a polygon that is almost a circle."""
    angle = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    return np.stack((centre + radius * np.cos(angle), radius * np.sin(angle)), 1)


def star() -> np.ndarray:
    """Return the corners (10, 2) of a star."""
    angle = np.arange(10) * np.pi / 5
    radius = np.where(np.arange(10) % 2, 0.42, 1.)
    return np.stack((radius * np.cos(angle), radius * np.sin(angle)), 1)


# Polygons in the unit circle; the second one of a class is a hole.
OUTLINES = dict(
    circle=[circle(0.9)],
    square=[np.array([(-.75, -.75), (.75, -.75), (.75, .75), (-.75, .75)])],
    triangle=[np.array([(1., 0.), (-.5, .866), (-.5, -.866)])],
    star=[star()],
    ring=[circle(0.95), circle(0.5)],
    cross=[np.array([(-.95, -.3), (-.3, -.3), (-.3, -.95), (.3, -.95), (.3, -.3), (.95, -.3),
                     (.95, .3), (.3, .3), (.3, .95), (-.3, .95), (-.3, .3), (-.95, .3)])],
    crescent=[circle(1.), circle(0.8, 0.5)],
    arrow=[np.array([(1., 0.), (.1, .75), (.1, .28), (-.95, .28), (-.95, -.28), (.1, -.28), (.1, -.75)])],
)


def draw_shape(rng: np.random.Generator, label: int, radius: float, centre: np.ndarray, size: int) -> np.ndarray:
    """Return the coverage (size, size) of a shape in [0, 1], randomly rotated and stretched.

    Args:
        rng: random numbers.
        label: class of the shape.
        radius: pixels from the centre to the farthest point.
        centre: (x, y) in pixels.
        size: side of the image in pixels.
    """
    angle = rng.uniform(-MAX_TURN, MAX_TURN)
    turn = np.array([(np.cos(angle), -np.sin(angle)), (np.sin(angle), np.cos(angle))])
    stretch = np.array([1., rng.uniform(0.8, 1.)]) * radius
    canvas = Image.new('L', (size * SUPERSAMPLING, ) * 2)
    draw = ImageDraw.Draw(canvas)
    for polygon, fill in zip(OUTLINES[CLASSES[label]], (255, 0)):
        points = ((polygon * stretch) @ turn.T + centre) * SUPERSAMPLING
        draw.polygon([tuple(p) for p in points.tolist()], fill=fill)
    return np.asarray(canvas.reduce(SUPERSAMPLING), np.float32) / 255


def smooth_noise(rng: np.random.Generator, size: int, cells: int) -> np.ndarray:
    """Return noise (size, size) in about [0, 1], interpolated from ``cells`` x ``cells`` random numbers.

    Args:
        rng: random numbers.
        size: side of the result in pixels.
        cells: side of the grid.
    """
    grid = Image.fromarray(rng.random((cells, cells), np.float32))
    return np.asarray(grid.resize((size, size), Image.Resampling.BICUBIC))


def draw_texture(rng: np.random.Generator, size: int, colour: np.ndarray, contrast: float) -> np.ndarray:
    """Return a random pattern (size, size, 3) between two colours.

    Args:
        rng: random numbers.
        size: side in pixels.
        colour: the mean of both colours.
        contrast: distance between both colours.
    """
    y, x = np.mgrid[:size, :size].astype(np.float32)
    angle, phase = rng.uniform(0, np.pi), rng.uniform(0, 2 * np.pi)
    u = x * np.cos(angle) + y * np.sin(angle)
    v = y * np.cos(angle) - x * np.sin(angle)
    wave = 2 * np.pi / rng.uniform(5, 14)
    pattern = rng.integers(5)
    if pattern == 0:  # gradient
        t = (u - u.min()) / np.ptp(u)
    elif pattern == 1:  # stripes
        t = 0.5 + 0.5 * np.sign(np.sin(u * wave + phase))
    elif pattern == 2:  # checks
        t = 0.5 + 0.5 * np.sign(np.sin(u * wave + phase) * np.sin(v * wave))
    elif pattern == 3:  # dots
        t = (np.sin(u * wave + phase) * np.sin(v * wave) > 0.3).astype(np.float32)
    else:  # clouds
        t = smooth_noise(rng, size, int(rng.integers(4, 12)))
    direction = rng.normal(size=3)
    direction *= contrast / np.linalg.norm(direction)
    return colour + (t[..., None] - 0.5) * direction


def draw_clutter(rng: np.random.Generator, image: np.ndarray, count: int) -> np.ndarray:
    """Draw lines and blobs that belong to no class.

    Args:
        rng: random numbers.
        image: (H, W, 3).
        count: number of lines and blobs.
    """
    size = len(image)
    for _ in range(count):
        canvas = Image.new('L', (size, size))
        draw = ImageDraw.Draw(canvas)
        x, y = rng.uniform(0, size, 2)
        if rng.random() < 0.6:
            dx, dy = rng.normal(0, 30, 2)
            draw.line((x, y, x + dx, y + dy), fill=255, width=int(rng.integers(1, 4)))
        else:
            rx, ry = rng.uniform(1, 5, 2)
            draw.ellipse((x - rx, y - ry, x + rx, y + ry), fill=255)
        alpha = np.asarray(canvas, np.float32)[..., None] / 255 * rng.uniform(0.4, 0.9)
        image = image * (1 - alpha) + rng.random(3) * alpha
    return image


def draw_scene(rng: np.random.Generator, size: int,
               labels: list[int]) -> tuple[np.ndarray, list[tuple[int, np.ndarray]]]:
    """Draw an image with one shape for each of ``labels``, later ones in front.

    A shape that finds no place without hiding more than ``1 - MIN_VISIBLE`` of another one is left out.

    Args:
        rng: source of all randomness.
        size: width and height in pixels.
        labels: class indices.

    Returns:
        The image (size, size, 3), uint8, RGB, and for each shape its class index and the mask (size, size),
        bool, of its visible part.
    """
    image = draw_texture(rng, size, rng.uniform(0.05, 0.45, 3), rng.uniform(0.05, 0.3))
    image = draw_clutter(rng, image, int(rng.integers(1, 5) * (size / 64)**2))
    owner = np.full((size, size), -1)
    full_area: list[int] = []
    drawn: list[int] = []
    for label in labels:
        for _ in range(20):
            radius = min(rng.uniform(*RADIUS), size * 0.46)
            centre = rng.uniform(radius * 0.85, size - radius * 0.85, 2)
            alpha = draw_shape(rng, label, radius, centre, size)
            mask = alpha > 0.5
            hidden = np.where(mask, -1, owner)
            if all((hidden == i).sum() >= MIN_VISIBLE * area for i, area in enumerate(full_area)):
                break
        else:
            continue
        colour = rng.uniform(0.2, 1., 3)
        while colour.mean() < 0.5:  # brighter than the background, or learning takes too long for a demo
            colour = rng.uniform(0.2, 1., 3)
        texture = draw_texture(rng, size, colour, rng.uniform(0., 0.35))
        image = image + (texture - image) * alpha[..., None]
        owner[mask] = len(drawn)
        full_area.append(int(mask.sum()))
        drawn.append(label)
    image = draw_clutter(rng, image, int(rng.integers(2) * (size / 64)**2))  # drawn in front of the shapes
    image = image + 0.15 * (smooth_noise(rng, size, 3)[..., None] - 0.5)  # light and shadow
    image = image + rng.normal(0, rng.uniform(0., 0.03), image.shape)
    image = (image.clip(0, 1) * 255).round().astype(np.uint8)
    return image, [(label, owner == i) for i, label in enumerate(drawn)]


def write_classification(folder: Path, rng: np.random.Generator, size: int, per_class: int) -> None:
    """Write images of one shape each, in one folder for each class.

    Args:
        folder: folder to write.
        rng: random numbers.
        size: side of an image in pixels.
        per_class: images of a class.
    """
    for label, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for i in range(per_class):
            Image.fromarray(draw_scene(rng, size, [label])[0]).save(folder / name / f'{i:05d}.png')


def write_scenes(out: Path, rng: np.random.Generator, split: str, size: int, count: int) -> None:
    """Write scenes of several shapes as COCO JSON and as label maps.

    Args:
        out: folder of the data set.
        rng: random numbers.
        split: 'train' or 'val'.
        size: side of an image in pixels.
        count: number of scenes.
    """
    long_name = dict(train='training', val='validation')[split]
    pictures, annotation_files = out / 'detection' / split, out / 'detection/annotations'
    copies, label_maps = (out / 'segmentation' / kind / long_name for kind in ('images', 'annotations'))
    for folder in (pictures, annotation_files, copies, label_maps):
        folder.mkdir(parents=True, exist_ok=True)
    images, annotations = [], []
    for i in range(1, count + 1):
        image, shapes = draw_scene(rng, size, rng.integers(len(CLASSES), size=rng.integers(2, 6)).tolist())
        name = f'{i - 1:05d}.png'
        Image.fromarray(image).save(pictures / name)
        shutil.copyfile(pictures / name, copies / name)
        label_map = np.zeros((size, size), np.uint8)
        for label, mask in shapes:
            label_map[mask] = label + 1
            rle = coco_mask.encode(np.asfortranarray(mask, np.uint8))
            annotations.append(dict(
                id=len(annotations) + 1, image_id=i, category_id=label + 1, iscrowd=0, area=int(coco_mask.area(rle)),
                bbox=coco_mask.toBbox(rle).tolist(), segmentation=dict(rle, counts=rle['counts'].decode())))
        Image.fromarray(label_map).save(label_maps / name)
        images.append(dict(id=i, file_name=name, width=size, height=size))
    categories = [dict(id=i, name=name) for i, name in enumerate(CLASSES, 1)]
    (annotation_files / f'instances_{split}.json').write_text(
        json.dumps(dict(images=images, annotations=annotations, categories=categories)))


def generate(out: str | Path, seed: int = 0, size: int = 128, train: int = 400, val: int = 100,
             train_per_class: int = 500, val_per_class: int = 50) -> Path:
    """Write the data set in all three formats.

    Args:
        out: folder to write, new or empty.
        seed: seed of every random choice.
        size: width and height of a scene in pixels, at least 64. A classification image, whose shapes have the
            same size, is half as large.
        train, val: number of scenes.
        train_per_class, val_per_class: number of classification images of each class.

    Returns:
        ``out``.

    Raises:
        FileExistsError: ``out`` holds files.
    """
    out = Path(out)
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f'{out} is not empty: name a new or an empty folder.')
    unfinished = out.with_name(out.name + '.part')
    shutil.rmtree(unfinished, ignore_errors=True)
    for s, (split, scenes, per_class) in enumerate((('train', train, train_per_class), ('val', val, val_per_class))):
        # A stream for each set of files, so that the number of images of one does not change another.
        write_classification(unfinished / 'classification' / split, np.random.default_rng((seed, s, 0)), size // 2,
                             per_class)
        write_scenes(unfinished, np.random.default_rng((seed, s, 1)), split, size, scenes)
    return unfinished.rename(out)


if __name__ == '__main__':
    print(generate(sys.argv[1]))
