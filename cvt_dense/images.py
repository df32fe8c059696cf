"""Find image files, read their headers, and compare decoded images with them."""
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import ExifTags, Image, ImageMode, ImageOps

from .annotations.names import is_rubbish
from .errors import UserError

SUFFIXES = ('.bmp', '.gif', '.jfif', '.jpeg', '.jpg', '.png', '.tif', '.tiff', '.webp')
TURNED = range(2, 9)  # values of EXIF's orientation that turn or mirror an image
TOLERANCE = 4  # mean difference of 8-bit pixels; decoders of CMYK differ by about 1
ADVICE = ('Save 8 bits, or 16 bits that reach 65535, of one or three channels. Detectors and segmentors read others as '
          "they are by LoadImageFromNpyFile(color_type='unchanged', imdecode_backend='tifffile', to_float32=True), see "
          'upernet_cvt13_multichannel.py.')


OVERLAP = 0.2  # of neighbouring slices, as a fraction of their side


def check_slice(size: int | None, overlap: float) -> None:
    """Raise ``UserError`` if images cannot be cut into slices of ``size`` pixels with this overlap."""
    if size is None and overlap != OVERLAP:
        raise UserError(f'overlap={overlap} is that of slices: give slice, too, or leave overlap out.')
    if size is not None and size < 32:
        raise UserError(f'slice={size}: allowed is a number of pixels from 32.')
    if not 0 <= overlap <= 0.9:  # at 0.9 each pixel is predicted a hundred times
        raise UserError(f'overlap={overlap}: allowed is a number from 0 to 0.9.')


# -- files -----------------------------------------------------------------------------------------


def is_image(path: str | Path) -> bool:
    """Return whether a file's name is that of an image."""
    return str(path).lower().endswith(SUFFIXES)


def images_below(folder: str | Path) -> Iterator[str]:
    """Yield the paths of the images at any depth below a folder, through links, without hidden ones."""
    return filter(is_image, files_below(folder))


def files_below(folder: str | Path) -> Iterator[str]:
    """Yield the paths of the files at any depth below a folder, through links, without hidden ones."""
    here = Path(folder).resolve()
    visited = {here, *here.parents}  # a link upwards would make a loop
    for inside, folders, files in os.walk(folder, followlinks=True):
        targets = {Path(inside, name).resolve(): name for name in sorted(folders, reverse=True) if not is_rubbish(name)}
        folders[:] = sorted(name for target, name in targets.items() if target not in visited)
        visited |= set(targets)
        yield from (os.path.join(inside, name) for name in files if not is_rubbish(name))


def find_missing(paths: Iterable[str]) -> list[str]:
    """Return the paths that do not exist, by one listing of each folder, which is fast on network disks too."""
    paths = list(paths)
    names = {folder: set(os.listdir(folder or '.') if os.path.isdir(folder or '.') else ())
             for folder in set(map(os.path.dirname, paths))}
    return [path for path in paths if os.path.basename(path) not in names[os.path.dirname(path)]]


# -- headers ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Header:
    """What the header of an image file says.

    Attributes:
        format: Pillow's name of the format, or 'NPY'.
        shape: (H, W, C) of the stored array; the indices of a palette are one channel. A TIFF file of several pages has
            them in front.
        dtype: type of a stored value, such as 'uint8' or 'float32'; 'uint4' has fewer bits.
        orientation: EXIF orientation that is still to be undone, from 1 (none) to 8.
    """
    format: str
    shape: tuple[int, ...]
    dtype: str
    orientation: int = 1

    @property
    def wide(self) -> bool:
        """Return whether a stored value can have more than 8 bits."""
        return self.dtype not in ('bool', 'uint2', 'uint4', 'uint8')


def read_header(path: str | Path) -> Header:
    """Read an image file's header without its pixels.

    Raises:
        Exception: the file is no image that Pillow or NumPy knows; damaged files raise many types.
    """
    if str(path).endswith('.npy'):
        array = np.load(path, mmap_mode='r')
        height, width, channels = (*array.shape, 1)[:3]
        return Header('NPY', (height, width, channels), array.dtype.name)
    with open(path, 'rb') as file:
        if file.read(4) in (b'II*\0', b'MM\0*', b'II+\0', b'MM\0+'):  # TIFF and BigTIFF, under any name
            return _read_tiff(path)
    with Image.open(path) as image:
        # A decoder's raw mode has the bits of a file, where the image's mode has those in memory.
        raw = image.tile[0].args if image.tile else ''
        bits = re.search(r'^[^P].*;(\d+)', raw if isinstance(raw, str) else '')  # the indices of a palette stay
        dtype = f'uint{bits[1]}' if bits else np.dtype(ImageMode.getmode(image.mode).typestr).name
        # Pillow decodes a whole PNG that has no EXIF, to look behind its pixels.
        plain = image.format == 'PNG' and not {'exif', 'Raw profile type exif'} & image.info.keys()
        return Header(image.format, (image.height, image.width, len(image.getbands())), dtype,
                      1 if plain else read_orientation(image))


def _read_tiff(path: str | Path) -> Header:
    import tifffile  # takes a tenth of a second
    with tifffile.TiffFile(path) as tiff:
        array, orientation = tiff.series[0], tiff.pages.first.tags.valueof('Orientation')
        shape = array.shape[1:] + array.shape[:1] if array.axes[0] == 'S' else array.shape  # planes of colours
        return Header('TIFF', shape + (1, ) * (3 - len(shape)), array.dtype.name,
                      orientation if orientation in TURNED else 1)


def read_orientation(image: Image.Image) -> int:
    """Return the EXIF orientation that is still to be undone, from 1 (none) to 8; other values are read as 1.

    Pillow turns a TIFF itself. mmcv reads WebP as it is stored, so its orientation is ignored everywhere.
    """
    orientation = None
    with suppress(Exception):  # EXIF data may be broken in many ways; the image need not be
        orientation = image.getexif().get(ExifTags.Base.Orientation)
    return orientation if orientation in TURNED and image.format not in ('TIFF', 'WEBP') else 1


# -- readers ---------------------------------------------------------------------------------------


def open_image(file: Any, turn: bool = True) -> Image.Image:
    """Open an image in RGB and upright, as classification reads it in training, testing and prediction.

    EXIF's orientation is applied to JPEG, PNG and TIFF, and not to WebP, as mmcv's decoders for detection and
    segmentation do. The authors' loader ignores it, which makes a difference for the few turned photos of ImageNet
    only. 16-bit greyscale is scaled to 8 bits.

    Args:
        file: path or open binary file, or a PIL image.
        turn: whether to apply EXIF's orientation.

    Returns:
        The image. An upright RGB image is not decoded yet, so that a JPEG can be decoded at a fraction of its size.

    Raises:
        OSError, ...: the file is no image; a truncated one may raise only when it is decoded.
        ValueError: pixels are neither 8 nor 16 bits.
    """
    image = file if isinstance(file, Image.Image) else Image.open(file)
    if turn and read_orientation(image) in TURNED:  # exif_transpose decodes every image at its full size
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith('I') or image.mode == 'F':
        image = _scale_to_8_bits(image)
    return image if image.mode == 'RGB' else image.convert('RGB')


def _scale_to_8_bits(image: Image.Image) -> Image.Image:
    pixels = np.asarray(image)  # Pillow's own conversion clips them at 255
    dark = image.format in (None, 'TIFF') and image.mode == 'I' and 0 < pixels.max() < 256  # 32 bits may hold 8
    if dark or pixels.min() < 0 or pixels.max() > 65535 or not np.issubdtype(pixels.dtype, np.integer):
        raise ValueError(f'greyscale of type {pixels.dtype} from {pixels.min()} to {pixels.max()} has no known white; '
                         'save it with 8 or 16 bits')
    return Image.fromarray((pixels / 257).round().astype(np.uint8))


def reads_raw(reader: Any) -> bool:
    """Return whether a transform that loads images gives the stored values; None: :func:`open_image`."""
    return getattr(reader, 'color_type', '') == 'unchanged' or getattr(reader, 'imdecode_backend', '') == 'tifffile'


def turns(reader: Any) -> bool:
    """Return whether a transform that loads images turns them as EXIF says; None: :func:`open_image`."""
    return not reads_raw(reader) and 'ignore_orientation' not in getattr(reader, 'color_type', '')


def shape_as_read(header: Header, reader: Any) -> tuple[int, int]:
    """Return the height and width of the array that a transform makes of a file; None: :func:`open_image`."""
    height, width = header.shape[:2]
    return (width, height) if header.orientation >= 5 and turns(reader) else (height, width)


def load(path: str | Path, reader: Any = None, **info: Any) -> np.ndarray:
    """Return an image as it is read; :func:`check_loaded` compares it with the file.

    Args:
        path: image file.
        reader: a transform of mmcv or MMSegmentation that loads images; None: :func:`open_image`.
        info: further entries of the data set for the transform.

    Returns:
        The image, (H, W, 3) in RGB of :func:`open_image`, otherwise (H, W, C) in BGR, or (H, W).

    Raises:
        Exception: the file cannot be read; each decoder raises its own.
    """
    return np.asarray(open_image(path)) if reader is None else reader(dict(info, img_path=str(path)))['img']


def check_loaded(path: str | Path, array: np.ndarray, reader: Any = None, quick: bool = False) -> None:
    """Compare an image that :func:`load` has read with the file's header and Pillow's own decoding.

    Channels beside the colours may be left out, and 16 bits may be reduced to 8.

    Args:
        path, reader: as for :func:`load`.
        array: what it has returned.
        quick: leave out the comparison of files that every decoder reads alike.

    Raises:
        UserError: size, channels or values are others than the file's.
    """
    try:
        header = read_header(path)
    except Exception:  # mmcv reads formats that Pillow does not
        return
    alike = header.format != 'TIFF' and header.dtype == 'uint8' and header.shape[2] in (1, 3)
    difference = '' if quick and alike else _find_difference(path, header, array, reader)
    if difference:
        raise UserError(f'{str(path)!r} holds {header.dtype} of shape {header.shape}: {difference}. {ADVICE}')


def _find_difference(path: str | Path, header: Header, given: np.ndarray, reader: Any) -> str:
    if given.shape[:2] != shape_as_read(header, reader):
        return f'it would be read (first page, EXIF applied) as an array of shape {given.shape}'
    if not np.isfinite(given).all():
        return 'some values are NaN or infinite. Write a number there, such as the mean of the channel'
    if reads_raw(reader):
        return ''
    try:
        with Image.open(path) as image:
            bands = len(image.getbands())
        image = open_image(path, turns(reader)).convert('RGB' if given.ndim == 3 else 'L')
    except Image.DecompressionBombError:  # Pillow decodes no image of more than 179 million pixels
        return ''
    if bands < min(header.shape[2], 3):
        return f'{bands} of {header.shape[2]} channels would be read'
    pixels = np.atleast_3d(image)[..., ::1 if reader is None else -1]
    if np.abs(np.atleast_3d(given) - pixels.astype(np.int16)).mean() > TOLERANCE:
        return (f'the reader makes {given.min()} to {given.max()} of it, and Pillow {pixels.min()} to {pixels.max()} '
                "(imdecode_backend='pillow' reads 8 bits so)")
    return ''
