"""Which files are images, what their headers say, and whether a reader gives a network what they hold.

Data sets, checks, converters and predictions ask here.
"""
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import ExifTags, Image
from PIL.Image import Transpose

SUFFIXES = ('.bmp', '.gif', '.jfif', '.jpeg', '.jpg', '.png', '.tif', '.tiff', '.webp')
# The operation that undoes each EXIF orientation; 1 and unknown ones need none.
UPRIGHT = dict(zip(range(2, 9), (
    Transpose.FLIP_LEFT_RIGHT, Transpose.ROTATE_180, Transpose.FLIP_TOP_BOTTOM, Transpose.TRANSPOSE,
    Transpose.ROTATE_270, Transpose.TRANSVERSE, Transpose.ROTATE_90)))
WHITE, DARK = 2**15, 2**12  # of 16-bit images, several and a single one, some pixel is at least as bright
RAW_READER = ("LoadImageFromNpyFile(color_type='unchanged', imdecode_backend='tifffile', to_float32=True) reads them "
              'as they are, see upernet_cvt13_multichannel.py')


# -- files -----------------------------------------------------------------------------------------


def is_image(path: str | Path) -> bool:
    """Return whether a file's name is that of an image."""
    return str(path).lower().endswith(SUFFIXES)


def is_hidden(name: str) -> bool:
    """Return whether a file or folder of this name is nobody's data: '.vscode', '._a.png', '__MACOSX'."""
    return name.startswith('.') or name == '__MACOSX'


def images_below(folder: str | Path) -> Iterator[str]:
    """Yield the paths of the images at any depth below a folder, through links, without hidden ones."""
    return filter(is_image, files_below(folder))


def files_below(folder: str | Path) -> Iterator[str]:
    """Yield the paths of the files at any depth below a folder, through links, without hidden ones."""
    here = Path(folder).resolve()
    visited = {here, *here.parents}  # a link upwards would make a loop
    for inside, folders, files in os.walk(folder, followlinks=True):
        targets = {name: Path(inside, name).resolve() for name in sorted(folders) if not is_hidden(name)}
        folders[:] = [name for name, target in targets.items() if target not in visited]
        visited |= set(targets.values())
        yield from (os.path.join(inside, name) for name in files if not is_hidden(name))


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
        size: width and height as the pixels are stored.
        orientation: EXIF orientation that is still to be undone, from 1 (none) to 8.
        dtype: type of a stored value, such as 'uint8' or 'float32'; 'uint4' has fewer bits.
        channels: number of stored channels; 1 for the indices of a palette.
        layout: how the channels differ from usual ones: 'alpha', 'frames' (an animation), or '' (not at all); in a
            TIFF file also 'extra' (a channel beside the colours), 'bands' (no colours), and 'pages' (``size`` is that
            of one page, perhaps not that of the image).
    """
    format: str
    size: tuple[int, int]
    orientation: int
    dtype: str
    channels: int
    layout: str = ''

    @property
    def upright(self) -> tuple[int, int]:
        """Return the width and height after EXIF's rotation."""
        return self.size[::-1] if self.orientation >= 5 else self.size

    @property
    def bits(self) -> int:
        """Return the number of bits of a stored value."""
        return int(re.sub(r'\D', '', self.dtype) or 8)


def read_header(path: str | Path) -> Header:
    """Read an image file's header without its pixels.

    Raises:
        Exception: the file is no image that Pillow or NumPy knows; damaged files raise many types.
    """
    if str(path).endswith('.npy'):
        array = np.load(path, mmap_mode='r')
        height, width, channels = (*array.shape, 1)[:3]
        return Header('NPY', (width, height), 1, array.dtype.name, channels)
    with open(path, 'rb') as file:
        if file.read(4) in (b'II*\0', b'MM\0*', b'II+\0', b'MM\0+'):  # TIFF and BigTIFF, under any name
            return _read_tiff(path)
    with Image.open(path) as image:
        # A decoder's raw mode has the bits of a file, where the image's mode has those in memory.
        tile = image.tile[0].args if image.tile else ''
        # A palette's stay as they are.
        bits = re.search(r'^[^P].*;(\d+)', tile if isinstance(tile, str) else image.mode)
        stored = f'uint{bits[1]}' if bits else 'uint1' if image.mode == '1' else 'uint8'
        # Pillow decodes a whole PNG that has no EXIF, to look behind its pixels.
        plain = image.format == 'PNG' and not {'exif', 'Raw profile type exif'} & image.info.keys()
        moves = image.format in ('GIF', 'PNG', 'WEBP') and getattr(image, 'is_animated', False)  # a JPEG has previews
        return Header(image.format, image.size, 1 if plain else read_orientation(image), stored, len(image.getbands()),
                      'frames' if moves else 'alpha' if image.mode in ('LA', 'RGBA') else '')


def _read_tiff(path: str | Path) -> Header:
    import tifffile  # takes a tenth of a second
    with tifffile.TiffFile(path) as tiff:
        page, colours = tiff.pages.first, tiff.pages.first.photometric
        # Overviews and masks have a bit in their type.
        layout = 'pages' if len(tiff.pages) > 1 and not tiff.pages[1].subfiletype else ''
        if colours <= tifffile.PHOTOMETRIC.RGB and page.samplesperpixel > (3 if colours == 2 else 1):
            layout = 'alpha' if any(page.extrasamples) else 'bands' if colours < 2 else 'extra'
        kind = {1: 'uint', 2: 'int', 3: 'float'}.get(page.sampleformat, 'complex')
        bits = 8 if colours == tifffile.PHOTOMETRIC.PALETTE else page.bitspersample
        return Header('TIFF', (page.imagewidth, page.imagelength), int(page.tags.valueof('Orientation') or 1),
                      f'{kind}{bits}', page.samplesperpixel, layout)


def read_orientation(image: Image.Image) -> int:
    """Return the EXIF orientation that is still to be undone, from 1 (none) to 8.

    Pillow turns a TIFF itself. mmcv reads WebP as it is stored, so its orientation is ignored everywhere.
    """
    try:
        return 1 if image.format in ('TIFF', 'WEBP') else image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # EXIF data may be broken in many ways; the image need not be
        return 1


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Return the width and height that an open image file has when it is upright, without decoding a JPEG."""
    return image.size[::-1] if read_orientation(image) >= 5 else image.size


# -- readers ---------------------------------------------------------------------------------------


def open_image(file: Any) -> Image.Image:
    """Open an image in RGB and upright, as classification reads it in training, testing and prediction.

    EXIF's orientation is applied to JPEG, PNG and TIFF, and not to WebP, as mmcv's decoders for detection and
    segmentation do. The authors' loader ignores it, which makes a difference for the few turned photos of ImageNet
    only. 16-bit greyscale is scaled to 8 bits.

    Args:
        file: path or open binary file.

    Returns:
        The image. An upright RGB image is not decoded yet, so that a JPEG can be decoded at a fraction of its size.

    Raises:
        OSError, ...: the file is no image; a truncated one may raise only when it is decoded.
        ValueError: pixels are neither 8 nor 16 bits.
    """
    image = Image.open(file)
    orientation = read_orientation(image)
    if orientation in UPRIGHT:  # ImageOps.exif_transpose would decode every image at its full size
        image = image.transpose(UPRIGHT[orientation])
    if image.mode.startswith('I') or image.mode == 'F':
        image = _scale_to_8_bits(image)
    return image if image.mode == 'RGB' else image.convert('RGB')


def _scale_to_8_bits(image: Image.Image) -> Image.Image:
    pixels = np.asarray(image)  # Pillow's own conversion clips them at 255
    dark = image.format == 'TIFF' and image.mode == 'I' and 0 < pixels.max() < 256  # 32 bits that may hold 8 or 16
    if dark or pixels.min() < 0 or pixels.max() > 65535 or not np.issubdtype(pixels.dtype, np.integer):
        raise ValueError(f'greyscale of type {pixels.dtype} from {pixels.min()} to {pixels.max()} has no known white; '
                         'save it with 8 or 16 bits')
    return Image.fromarray((pixels / 257).round().astype(np.uint8))


def turns(reader: Any) -> bool:
    """Return whether a transform that loads images turns them as EXIF says; None: :func:`open_image`."""
    kind = getattr(reader, 'color_type', 'color')
    return kind in ('color', 'grayscale') and getattr(reader, 'imdecode_backend', '') != 'tifffile'


def explain_loss(header: Header, reader: Any = None, *paths: str | Path) -> tuple[str, str]:
    """Return what a reader loses of the files with a header.

    Args:
        header: of an image file.
        reader: a transform of mmcv or MMSegmentation that loads images; None: :func:`open_image`.
        paths: some of the files, whose highest value is looked up where they have 16 bits.

    Returns:
        Why they cannot be read as they are, with the setting that can; and what of them is read. Both may be ''.
    """
    decoder = 'open_image' if reader is None else getattr(reader, 'imdecode_backend', None) or 'cv2'
    if header.format == 'NPY' or getattr(reader, 'color_type', 'color') == 'unchanged' or decoder == 'tifffile':
        return '', ''
    advice = 'Save 8 bits, or 16 bits without a sign' if reader is None else RAW_READER
    pixels = f'{header.channels} channel{"s" * (header.channels > 1)} of {header.dtype}'
    wide = not header.dtype.startswith('uint') or header.bits > 16 or header.bits > 8 and decoder == 'pillow'
    if wide and (reader or header.channels > 1):  # open_image judges single channels by their values
        return f'8 bits cannot hold {pixels}. {advice}', ''
    if header.layout in ('pages', 'bands'):
        return f'only the first of {pixels} would be read. {advice}', ''
    if header.layout == 'alpha' and header.format == 'TIFF' and decoder == 'cv2':
        return (f'of {pixels} OpenCV multiplies the colours by the fourth. LoadImageFromFile with '
                f"imdecode_backend='pillow' reads the colours alone; {advice}"), ''
    if header.bits > 8 and not wide and paths:
        import cv2  # its import takes a tenth of a second
        arrays = (cv2.imread(str(path), cv2.IMREAD_UNCHANGED) for path in paths)
        highest = max((int(array.max()) for array in arrays if array is not None), default=WHITE)
        if highest < (WHITE if len(paths) > 1 else DARK):
            return f'{pixels} up to {highest} would be read as 0 to {highest >> 8}. Scale them to 65535. {advice}', ''
    taken = {'': 'the upper 8 bits', 'frames': 'the colours of the first frame'}.get(header.layout, 'the colours')
    return '', f'of {pixels} {taken} are read' * bool(header.layout or header.bits > 8 and not wide)
