"""Open images for classification, and adapt timm's transforms."""
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np
from PIL import ExifTags, Image
from PIL.Image import Transpose
from timm.data import auto_augment, create_transform
from timm.data.transforms import RandomResizedCropAndInterpolation

# The operation that undoes each EXIF orientation; 1 and unknown ones need none.
UPRIGHT = dict(zip(range(2, 9), (
    Transpose.FLIP_LEFT_RIGHT, Transpose.ROTATE_180, Transpose.FLIP_TOP_BOTTOM, Transpose.TRANSPOSE,
    Transpose.ROTATE_270, Transpose.TRANSVERSE, Transpose.ROTATE_90)))


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


def _scale_to_8_bits(image: Image.Image) -> Image.Image:
    pixels = np.asarray(image)  # Pillow's own conversion clips them at 255
    dark = image.format == 'TIFF' and image.mode == 'I' and 0 < pixels.max() < 256  # 32 bits that may hold 8 or 16
    if dark or pixels.min() < 0 or pixels.max() > 65535 or not np.issubdtype(pixels.dtype, np.integer):
        raise ValueError(f'greyscale of type {pixels.dtype} from {pixels.min()} to {pixels.max()} has no known white; '
                         'save it with 8 or 16 bits')
    return Image.fromarray((pixels / 257).round().astype(np.uint8))


class ReducedDecodingCrop(RandomResizedCropAndInterpolation):
    """timm's random crop and resize for an image that is not decoded yet.

    A JPEG is decoded at 1/2, 1/4 or 1/8 of its size, which is many times faster, where that leaves the crop at least
    as large as the output. An image that is decoded already is cropped as it is.
    """

    def get_params(self, img: Image.Image, scale: tuple[float, float], ratio: tuple[float, float]
                   ) -> tuple[int, int, int, int]:
        """Return the crop as timm draws it.

        Args:
            img: an image that need not be decoded yet.
            scale: range of the crop's area as a fraction of the image's.
            ratio: range of the crop's width over its height.

        Returns:
            Top, left, height and width in pixels of the image as it will be decoded.
        """
        width, height = img.size
        top, left, box_height, box_width = super().get_params(img, scale, ratio)
        factor = min(box_height // self.size[0], box_width // self.size[1])
        if factor >= 2:
            img.draft(None, (width // factor, height // factor))
        y, x = img.height / height, img.width / width
        bottom, right = round((top + box_height) * y), round((left + box_width) * x)
        top, left = round(top * y), round(left * x)
        return top, left, bottom - top, right - left


def posterize(image: Image.Image, bits_to_keep: int, **kwargs: Any) -> Image.Image:
    """Keep the ``bits_to_keep`` highest bits of each channel; 0 bits make a black image, as in the published results.

    Pillow 13 refuses 0 bits, which ``rand-m9-mstd0.5`` reaches where its random magnitude is 10.

    Args:
        image: RGB image.
        bits_to_keep: number of bits, from 0 to 8.
        **kwargs: ignored; timm passes the same settings to every operation.
    """
    return image.point(lambda value: 0) if bits_to_keep < 1 else auto_augment.posterize(image, bits_to_keep)


def build_transform(**settings: Any) -> tuple[RandomResizedCropAndInterpolation | None, list[Callable]]:
    """Build timm's transforms without normalisation and erasing, which are left to the model's preprocessor.

    Args:
        settings: arguments of ``timm.data.create_transform``.

    Returns:
        The random crop, to be applied before an image is decoded (None in evaluation), and the transforms after it.
    """
    transforms = create_transform(**settings, use_prefetcher=True).transforms
    for operation in _augmentations(transforms):
        if operation.name.startswith('Posterize'):
            operation.aug_fn = posterize
    first = transforms[0]
    if type(first) is not RandomResizedCropAndInterpolation:
        return None, transforms
    crop = ReducedDecodingCrop(first.size, first.scale, first.ratio)
    crop.interpolation = first.interpolation  # the constructor takes it by another name
    return crop, transforms[1:]


def _augmentations(transforms: list[Any]) -> Iterator[auto_augment.AugmentOp]:
    """Yield each operation of RandAugment, AugMix and AutoAugment."""
    for transform in transforms:
        yield from getattr(transform, 'ops', ())
        yield from chain.from_iterable(getattr(transform, 'policy', ()))
