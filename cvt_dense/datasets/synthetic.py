"""A small learnable data set of drawn shapes, in three formats: the project's embedded default.

``python -m cvt_dense.datasets.synthetic OUT`` writes

- ``OUT/classification/{train,val}/<class>/*.png``: class folders, one shape an image;
- ``OUT/detection/{train,val}/*.png`` and ``annotations/instances_{train,val}.json``: COCO, several
  shapes an image, each with the mask of what can be seen of it;
- ``OUT/segmentation/{images,annotations}/{training,validation}/*.png``: the same scenes with a label
  map each (ADE20K's folders), 0 for background and 1 + class for a shape.

Shapes have every rotation, size and texture, overlap each other, and lie on a textured background
among lines and blobs that belong to no class; colour and texture are drawn independently of the
class. Every file depends on the settings and the seed alone.
"""
import argparse
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

CLASSES = ('arrow', 'circle', 'crescent', 'cross', 'ring', 'square', 'star', 'triangle')
SETTINGS_FILE = 'synthetic.json'
PARTS = ('classification', 'detection', 'segmentation')
SUPERSAMPLING = 4  # shapes are drawn this much larger, then averaged
MIN_VISIBLE = 0.7  # share of a shape that others may not hide
RADIUS = (12., 28.)  # pixels from a shape's centre to its farthest point
MAX_TURN = 0.6  # radians, either way


class Instance(NamedTuple):
    """A shape of a scene: its class index and the mask (H, W), bool, of what is visible of it."""
    label: int
    mask: np.ndarray


# -- shapes and textures ---------------------------------------------------------------------------


def _circle(radius: float = 1., centre: float = 0.) -> np.ndarray:
    angle = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    return np.stack((centre + radius * np.cos(angle), radius * np.sin(angle)), 1)


def _star() -> np.ndarray:
    angle = np.arange(10) * np.pi / 5
    radius = np.where(np.arange(10) % 2, 0.42, 1.)
    return np.stack((radius * np.cos(angle), radius * np.sin(angle)), 1)


# Polygons in the unit circle; the second one of a class is a hole.
OUTLINES = dict(
    circle=[_circle(0.9)],
    square=[np.array([(-.75, -.75), (.75, -.75), (.75, .75), (-.75, .75)])],
    triangle=[np.array([(1., 0.), (-.5, .866), (-.5, -.866)])],
    star=[_star()],
    ring=[_circle(0.95), _circle(0.5)],
    cross=[np.array([(-.95, -.3), (-.3, -.3), (-.3, -.95), (.3, -.95), (.3, -.3), (.95, -.3),
                     (.95, .3), (.3, .3), (.3, .95), (-.3, .95), (-.3, .3), (-.95, .3)])],
    crescent=[_circle(1.), _circle(0.8, 0.5)],
    arrow=[np.array([(1., 0.), (.1, .75), (.1, .28), (-.95, .28), (-.95, -.28), (.1, -.28), (.1, -.75)])],
)


def _shape_alpha(rng: np.random.Generator, label: int, radius: float, centre: np.ndarray,
                 size: int) -> np.ndarray:
    """Coverage (size, size) in [0, 1] of a class's shape, randomly turned and stretched."""
    angle = rng.uniform(-MAX_TURN, MAX_TURN)
    turn = np.array([(np.cos(angle), -np.sin(angle)), (np.sin(angle), np.cos(angle))])
    stretch = np.array([1., rng.uniform(0.8, 1.)]) * radius
    canvas = Image.new('L', (size * SUPERSAMPLING, ) * 2)
    draw = ImageDraw.Draw(canvas)
    for polygon, fill in zip(OUTLINES[CLASSES[label]], (255, 0)):
        points = ((polygon * stretch) @ turn.T + centre) * SUPERSAMPLING
        draw.polygon([tuple(p) for p in points.tolist()], fill=fill)
    return np.asarray(canvas.reduce(SUPERSAMPLING), np.float32) / 255


def _smooth_noise(rng: np.random.Generator, size: int, cells: int) -> np.ndarray:
    grid = Image.fromarray(rng.random((cells, cells), np.float32))
    return np.asarray(grid.resize((size, size), Image.Resampling.BICUBIC))


def _texture(rng: np.random.Generator, size: int, colour: np.ndarray, contrast: float) -> np.ndarray:
    """A pattern (size, size, 3) between two colours, ``contrast`` apart, around ``colour``."""
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
        t = _smooth_noise(rng, size, int(rng.integers(4, 12)))
    direction = rng.normal(size=3)
    direction *= contrast / np.linalg.norm(direction)
    return colour + (t[..., None] - 0.5) * direction


def _clutter(rng: np.random.Generator, image: np.ndarray, count: int) -> np.ndarray:
    """Draws ``count`` lines and blobs that belong to no class."""
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


def render_scene(rng: np.random.Generator, size: int,
                 labels: list[int]) -> tuple[np.ndarray, list[Instance]]:
    """Draws an image with one shape of each of ``labels``, later ones in front.

    A shape that finds no place without hiding more than ``1 - MIN_VISIBLE`` of another one is left out.

    Args:
        rng: source of all randomness.
        size: width and height in pixels.
        labels: class indices.

    Returns:
        The image (size, size, 3), uint8, RGB, and its instances.
    """
    image = _texture(rng, size, rng.uniform(0.05, 0.45, 3), rng.uniform(0.05, 0.3))
    image = _clutter(rng, image, int(rng.integers(1, 5) * (size / 64)**2))
    owner = np.full((size, size), -1)
    full_area: list[int] = []
    drawn: list[int] = []
    for label in labels:
        for _ in range(20):
            radius = min(rng.uniform(*RADIUS), size * 0.46)
            centre = rng.uniform(radius * 0.85, size - radius * 0.85, 2)
            alpha = _shape_alpha(rng, label, radius, centre, size)
            mask = alpha > 0.5
            hidden = np.where(mask, -1, owner)
            if all((hidden == i).sum() >= MIN_VISIBLE * area for i, area in enumerate(full_area)):
                break
        else:
            continue
        colour = rng.uniform(0.2, 1., 3)
        while colour.mean() < 0.5:  # brighter than the background, or learning takes too long for a demo
            colour = rng.uniform(0.2, 1., 3)
        texture = _texture(rng, size, colour, rng.uniform(0., 0.35))
        image = image + (texture - image) * alpha[..., None]
        owner[mask] = len(drawn)
        full_area.append(int(mask.sum()))
        drawn.append(label)
    image = _clutter(rng, image, int(rng.integers(2) * (size / 64)**2))  # lies in front of the shapes
    image = image + 0.15 * (_smooth_noise(rng, size, 3)[..., None] - 0.5)  # light and shadow
    image = image + rng.normal(0, rng.uniform(0., 0.03), image.shape)
    image = (image.clip(0, 1) * 255).round().astype(np.uint8)
    return image, [Instance(label, owner == i) for i, label in enumerate(drawn)]


# -- formats ---------------------------------------------------------------------------------------


def _rle(mask: np.ndarray) -> dict[str, Any]:
    """COCO's uncompressed run lengths: down the columns, starting with zeros."""
    pixels = mask.ravel(order='F')
    changes = np.flatnonzero(pixels[1:] != pixels[:-1]) + 1
    runs = np.diff(np.concatenate(([0], changes, [pixels.size]))).tolist()
    return dict(size=list(mask.shape), counts=[0] + runs if pixels[0] else runs)


def _annotation(instance: Instance, image_id: int, annotation_id: int) -> dict[str, Any]:
    ys, xs = np.nonzero(instance.mask)
    x, y = int(xs.min()), int(ys.min())
    return dict(
        id=annotation_id, image_id=image_id, category_id=instance.label + 1, iscrowd=0,
        area=int(instance.mask.sum()), bbox=[x, y, int(xs.max()) + 1 - x, int(ys.max()) + 1 - y],
        segmentation=_rle(instance.mask))


def _write_classification(root: Path, rng: np.random.Generator, split: str, size: int,
                          per_class: int) -> None:
    for label, name in enumerate(CLASSES):
        folder = root / 'classification' / split / name
        folder.mkdir(parents=True)
        for i in range(per_class):
            Image.fromarray(render_scene(rng, size, [label])[0]).save(folder / f'{i:05d}.png')


def _write_scenes(root: Path, rng: np.random.Generator, split: str, size: int, count: int) -> None:
    long_name = dict(train='training', val='validation')[split]
    pictures = root / 'detection' / split
    copies = root / 'segmentation' / 'images' / long_name
    label_maps = root / 'segmentation' / 'annotations' / long_name
    for folder in (pictures, copies, label_maps, root / 'detection' / 'annotations'):
        folder.mkdir(parents=True, exist_ok=True)
    images, annotations = [], []
    for i in range(count):
        labels = rng.integers(len(CLASSES), size=rng.integers(2, 6)).tolist()
        image, instances = render_scene(rng, size, labels)
        name = f'{i:05d}.png'
        Image.fromarray(image).save(pictures / name)
        shutil.copyfile(pictures / name, copies / name)
        label_map = np.zeros((size, size), np.uint8)
        for instance in instances:
            label_map[instance.mask] = instance.label + 1
            annotations.append(_annotation(instance, i + 1, len(annotations) + 1))
        Image.fromarray(label_map).save(label_maps / name)
        images.append(dict(id=i + 1, file_name=name, width=size, height=size))
    categories = [dict(id=i + 1, name=name) for i, name in enumerate(CLASSES)]
    (root / 'detection' / 'annotations' / f'instances_{split}.json').write_text(
        json.dumps(dict(images=images, annotations=annotations, categories=categories)))


def generate(out: str | Path,
             seed: int = 0,
             size: int = 128,
             train: int = 400,
             val: int = 100,
             train_per_class: int = 500,
             val_per_class: int = 50) -> Path:
    """Writes the data set, in all three formats; does nothing if it is there already.

    A folder this function wrote with other settings, or did not finish, is written anew.

    Args:
        out: folder to write, new, empty, or written by this function before.
        seed: of every random choice.
        size: width and height of a scene in pixels, at least 64; those of a classification image,
            which shows shapes of the same size, are half of it.
        train, val: number of scenes.
        train_per_class, val_per_class: number of classification images of each class.

    Returns:
        ``out``.

    Raises:
        ValueError: a setting is out of range.
        FileExistsError: ``out`` is a file, or holds something else.
    """
    settings = dict(seed=seed, size=size, train=train, val=val, train_per_class=train_per_class,
                    val_per_class=val_per_class)
    if size < 64:
        raise ValueError(f'size={size}: a scene needs at least 64 pixels to hold its shapes.')
    for name in ('train', 'val', 'train_per_class', 'val_per_class'):
        if settings[name] < 1:
            raise ValueError(f'{name}={settings[name]}: at least one image is needed.')
    if seed < 0:
        raise ValueError(f'seed={seed}: must not be negative.')
    out = Path(out)
    record = out / SETTINGS_FILE
    if out.exists() and not (out.is_dir() and (record.is_file() or not any(out.iterdir()))):
        raise FileExistsError(
            f'{out} exists and was not written by this generator (it has no {SETTINGS_FILE}): nothing '
            'was touched. Name a new or an empty folder.')
    if _read(record) == dict(settings, complete=True):
        return out
    out.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(dict(settings, complete=False)))
    for part in PARTS:
        if (out / part).exists():
            shutil.rmtree(out / part)
    for s, split in enumerate(('train', 'val')):
        # A stream for each file set, so that the number of images of one does not change another.
        _write_classification(out, np.random.default_rng((seed, s, 0)), split, size // 2,
                              settings[f'{split}_per_class'])
        _write_scenes(out, np.random.default_rng((seed, s, 1)), split, size, settings[split])
    record.write_text(json.dumps(dict(settings, complete=True)))
    return out


def _read(record: Path) -> dict[str, Any] | None:
    try:
        return json.loads(record.read_text())
    except (OSError, ValueError):
        return None


def main() -> None:
    parser = argparse.ArgumentParser(
        prog='python -m cvt_dense.datasets.synthetic',
        description='Write the data set of drawn shapes as class folders, COCO JSON and label maps.',
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument('out', help='folder to write: new, empty, or written by this command before')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--size', type=int, default=128, help='width and height of a scene, pixels')
    parser.add_argument('--train', type=int, default=400, help='training scenes')
    parser.add_argument('--val', type=int, default=100, help='validation scenes')
    parser.add_argument('--train-per-class', type=int, default=500, help='training images of a class')
    parser.add_argument('--val-per-class', type=int, default=50, help='validation images of a class')
    try:
        out = generate(**vars(parser.parse_args()))
    except (ValueError, OSError) as error:
        raise SystemExit(f'error: {error}')
    print(f'{out}: ' + ', '.join(f'{part}/' for part in PARTS))


if __name__ == '__main__':
    main()
