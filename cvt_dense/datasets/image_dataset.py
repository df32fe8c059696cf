"""Labelled images from class folders or list files, over timm's readers and transforms."""
import os
import random
from collections.abc import Sequence
from typing import Any

from PIL import ExifTags, Image
from timm.data import ImageNetInfo, auto_augment, create_transform
from timm.data.readers import create_reader
from timm.data.readers.reader_image_in_tar import ReaderImageInTar
from timm.data.transforms import RandomResizedCropAndInterpolation
from torch.utils.data import Dataset

from ..registry import DATASETS
from .corruption import CorruptImage
from .readers import FileReader, read_class_folders, read_list, read_unlabelled, some

MAX_ATTEMPTS = 10


def allow_posterize_to_black() -> None:
    """Keeps timm's RandAugment working with Pillow 13, whose ``posterize`` refuses 0 bits.

    ``rand-m9-mstd0.5`` reaches 0 bits where its random magnitude is 10. Pillow used to return a black
    image, on which the published results rest.
    """
    def posterize(image, bits_to_keep, **kwargs):
        if bits_to_keep < 1:
            return image.point(lambda value: 0)
        return auto_augment.posterize(image, bits_to_keep, **kwargs)

    for name in ('Posterize', 'PosterizeIncreasing', 'PosterizeOriginal'):
        auto_augment.NAME_TO_OP[name] = posterize


allow_posterize_to_black()


# What undoes each EXIF orientation; 1 and unknown ones need nothing.
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90
}


def open_image(file: Any) -> Image.Image:
    """An image as classification reads it, in training, testing and prediction: RGB, upright.

    EXIF's orientation is applied, because a photo's subject stands upright then, and because detection and
    segmentation read so (``mmcv``'s decoders apply it). The authors' loader, torchvision's, ignores it, which
    makes a difference for the few turned photos of ImageNet only.

    Args:
        file: path or open binary file.

    Returns:
        The image; not decoded yet if the file is RGB and upright, so that a JPEG can be decoded at a fraction
        of its size.

    Raises:
        OSError, ...: Pillow's, of a file that is no image; a truncated one may raise later, by ``load()``.
    """
    image = Image.open(file)
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # EXIF data may be broken in many ways; the image need not be
        orientation = None
    if orientation in UPRIGHT:
        image = image.transpose(UPRIGHT[orientation])
    return image if image.mode == 'RGB' else image.convert('RGB')


class ReducedDecodingCrop(RandomResizedCropAndInterpolation):
    """timm's random crop and resize, for an image that is not decoded yet.

    A JPEG is decoded at 1/2, 1/4 or 1/8 of its size, which is many times faster, where that still
    leaves the crop at least as large as the output. An image that is decoded already, e.g. because EXIF had it
    turned, is cropped as it is.
    """

    def get_params(self, img: Image.Image, scale: tuple[float, float], ratio: tuple[float, float]
                   ) -> tuple[int, int, int, int]:
        """(top, left, height, width), drawn as timm does, in pixels of the image as it will be decoded."""
        width, height = img.size
        top, left, box_height, box_width = super().get_params(img, scale, ratio)
        factor = min(box_height // self.size[0], box_width // self.size[1])
        if factor >= 2:
            img.draft(None, (width // factor, height // factor))
        y, x = img.height / height, img.width / width
        bottom, right = round((top + box_height) * y), round((left + box_width) * x)
        top, left = round(top * y), round(left * x)
        return top, left, bottom - top, right - left


@DATASETS.register_module()
class ImageDataset(Dataset):
    """Images with one label each.

    Two layouts: class folders ``<data_root>/<split>/<class>/*.JPEG`` (classes are numbered in sorted
    order), or, with ``ann_file``, a list of lines ``path label`` with paths relative to
    ``<data_root>/<split>``.

    Greyscale, palette and CMYK files become RGB, and photos are turned upright as their EXIF orientation says
    (:func:`open_image`, which ``tools/predict.py`` reads with too). A file that cannot be read is named in the
    sample's ``unreadable``; in training another, randomly drawn image takes its place, in evaluation the
    sample is a black image with label -1, so that counts and order do not depend on the number of
    processes.

    Args:
        data_root: folder of the data set.
        split: folder of the images below ``data_root``, e.g. 'train'; '' for ``data_root`` itself.
        ann_file: list file, relative to ``data_root``; '' for class folders.
        transform: arguments of ``timm.data.create_transform``, e.g. ``dict(input_size=224,
            is_training=True, auto_augment='rand-m9-mstd0.5-inc1')``. Its normalisation and erasing
            are left to the preprocessor: samples are uint8. A random crop of more than twice the output's
            size is taken from a JPEG decoded at a fraction of its size; evaluation decodes at full size.
        num_classes: outputs of the classifier's head; labels must be below. None: not checked
            (``tools/train.py`` and ``tools/test.py`` fill it in).
        reader: name of a timm reader of the map style instead of the two layouts, e.g. '' with
            ``split`` naming a tar file, or 'tar' with a folder of tar files. None: the layouts above.
        class_names: the classes by number, where the folders are some of them only (ImageNet-A); or 'imagenet-1k' and
            the like, timm's lists of synsets. None: the folders that there are.
        corruption: arguments of :class:`cvt_dense.CorruptImage`, which sees the image as the network does, after
            crop and resize; None: none.
        labels: False takes every image below ``<data_root>/<split>``, at any depth, with label -1.
        backend_args: of MMEngine's file backend that images, but not the list file, are read through, e.g.
            ``dict(backend='lmdb', db_path='imagenet.lmdb')``, under ``<data_root>/<split>/<path>``. It
            needs ``ann_file``. None: files.

    Raises:
        FileNotFoundError: folder, list file or images are missing.
        ValueError: more classes, or a larger label, than ``num_classes``; ``backend_args`` without ``ann_file``.

    Samples:
        dict with ``inputs`` uint8 (3, H, W), ``labels`` int, ``paths`` str (relative to the images'
        folder) and ``unreadable`` str (files skipped on the way, one per line; mostly '').
    """

    def __init__(self,
                 data_root: str,
                 split: str = '',
                 ann_file: str = '',
                 transform: dict[str, Any] = dict(input_size=224),
                 num_classes: int | None = None,
                 reader: str | None = None,
                 backend_args: dict[str, Any] | None = None,
                 labels: bool = True,
                 class_names: Sequence[str] | str | None = None,
                 corruption: dict[str, Any] | None = None):
        if backend_args and not ann_file:
            raise ValueError(f'backend_args={dict(backend_args)} reads images, but cannot list them: set ann_file to a '
                             'list with lines "path label".')
        if not backend_args and not os.path.isdir(data_root):
            raise FileNotFoundError(f'data root {data_root!r} is not a folder; give the right one with '
                                    '--data-root DIR or data_root in the config.')
        root = os.path.join(data_root, split)
        if reader == 'tar':
            self.reader = ReaderImageInTar(root)
        elif reader is not None:
            self.reader = create_reader(reader, root=root)
        elif ann_file:
            self.reader = read_list(os.path.join(data_root, ann_file), root, backend_args)
        else:
            if isinstance(class_names, str):
                class_names = ImageNetInfo(class_names).label_names()
            self.reader = read_class_folders(root, class_names) if labels else read_unlabelled(root)
        self.metainfo = dict(classes=tuple(getattr(self.reader, 'classes', ())))
        if labels and num_classes is not None and isinstance(self.reader, FileReader):
            self._check_labels(num_classes, root, ann_file)
        self.is_training = transform.get('is_training', False)
        self.transform = create_transform(**transform, use_prefetcher=True)
        if corruption is not None:
            self.transform.transforms.insert(-1, CorruptImage(**corruption))  # the last one makes it a tensor
        self.crop: ReducedDecodingCrop | None = None
        if type(self.transform.transforms[0]) is RandomResizedCropAndInterpolation:
            crop = self.transform.transforms.pop(0)
            self.crop = ReducedDecodingCrop(crop.size, crop.scale, crop.ratio)
            self.crop.interpolation = crop.interpolation  # which timm's constructor takes by another name

    def _check_labels(self, num_classes: int, root: str, ann_file: str) -> None:
        classes = self.metainfo['classes']
        if len(classes) > num_classes:
            raise ValueError(f'{root!r} holds {len(classes)} class folders, but the head has {num_classes} '
                             f'outputs: set model.num_classes={len(classes)}, or point the data root '
                             'elsewhere.')
        largest = int(self.reader.labels.max())
        if largest >= num_classes:
            path = self.reader.filename(int(self.reader.labels.argmax()))
            raise ValueError(f'list file {ann_file!r} gives {path!r} the label {largest}, but the head has '
                             f'{num_classes} outputs: allowed are 0 to {num_classes - 1}. Correct the list '
                             'or model.num_classes.')

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, index: int) -> dict[str, Any]:
        unreadable: list[str] = []
        image, label = self._load(index, unreadable)
        for _ in range(MAX_ATTEMPTS):
            if image is not None or not self.is_training:
                break
            index = random.randrange(len(self))
            image, label = self._load(index, unreadable)
        if image is None:
            if self.is_training:
                raise OSError(f'{MAX_ATTEMPTS + 1} images drawn one after the other cannot be read: '
                              f'{some(unreadable)}.')
            image, label = Image.new('RGB', (256, 256)), -1
        return dict(
            inputs=self.transform(image),
            labels=label,
            paths=self.reader.filename(index),
            unreadable='\n'.join(unreadable))

    def _load(self, index: int, unreadable: list[str]) -> tuple[Image.Image | None, int]:
        """The RGB image, cropped in training, and its label; an image that cannot be read is None and
        named in ``unreadable``."""
        try:
            file, label = self.reader[index]
            with file:
                image = open_image(file)
                if self.crop is not None:
                    image = self.crop(image)
                image.load()
                return image, label
        except Exception as error:  # Pillow raises anything from SyntaxError to struct.error on broken files
            name = self.reader.filename(index, absolute=True)
            unreadable.append(f'{name} ({type(error).__name__}: {error})'.replace('\n', ' '))
            return None, -1
