"""Adapt timm's transforms to images that are not decoded yet."""
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from PIL import Image
from timm.data import auto_augment, create_transform
from timm.data.transforms import RandomResizedCropAndInterpolation


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
