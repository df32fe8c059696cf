"""Labelled images for classification: MMEngine's data set with timm's transforms."""
import random
from typing import Any

from mmengine.dataset import BaseDataset, Compose
from PIL import Image

from ..images import open_image
from ..registry import DATASETS
from .listing import image_name, list_from_file, list_images, open_file
from .transforms import build_transform


@DATASETS.register_module()
class ImageDataset(BaseDataset):
    """Images with one label each.

    They have one of these layouts:

    - class folders ``<data_root>/<split>/<class>/*.JPEG``, numbered in sorted order;
    - ``split`` names a tar file of class folders, or a folder of such tar files, of one tar file for each class, or
      of WebDataset's shards;
    - ``ann_file`` is a list with lines ``path label`` and paths relative to ``<data_root>/<split>``.

    Images become RGB and upright, see :func:`open_image`. One that cannot be read is named in the sample's
    ``unreadable``: in training another, randomly drawn image takes its place, in evaluation a black image with label
    -1, so that counts and order do not depend on the number of processes.

    Args:
        data_root: folder of the data set.
        split: folder or tar file of the images below ``data_root``, e.g. 'train'; '' for ``data_root`` itself.
        ann_file: list file, relative to ``data_root``; '' for the other layouts.
        metainfo: ``dict(classes=...)`` are the classes by number: names, or a file with one name per line. Classes may
            lack a folder. None: the folders that there are.
        transform: arguments of ``timm.data.create_transform``, e.g. ``dict(input_size=224, is_training=True,
            auto_augment='rand-m9-mstd0.5-inc1')``. Normalisation and erasing are left to the preprocessor: samples
            are uint8. In training a crop of more than twice the output's size is taken from a JPEG decoded at a
            fraction of its size.
        num_classes: outputs of the classifier's head; labels must be below. None: not checked (``tools/train.py`` and
            ``tools/test.py`` fill it in).
        max_refetch: images drawn in training in place of one that cannot be read.
        kwargs: arguments of any MMEngine data set.

    Raises:
        FileNotFoundError: folder, list file or images are missing.
        ValueError: a label is not below ``num_classes``.

    Samples:
        dict with ``inputs`` uint8 (3, H, W), ``labels`` int, ``paths`` str and ``unreadable`` str: a line
        ``path<tab>reason`` for each image that could not be read, mostly ''.
    """

    def __init__(self, data_root: str = '', split: str = '', ann_file: str = '', metainfo: dict[str, Any] | None = None,
                 transform: dict[str, Any] = dict(input_size=224), num_classes: int | None = None,
                 max_refetch: int = 10, **kwargs: Any):
        self.num_classes = num_classes
        super().__init__(ann_file, metainfo, data_root, dict(img_path=split), max_refetch=max_refetch,
                         test_mode=not transform.get('is_training', False), **kwargs)
        self.crop, transforms = build_transform(**transform)
        self.pipeline = Compose(transforms)

    classes: tuple[str, ...] = ()

    @property
    def metainfo(self) -> dict[str, Any]:
        """Return the metadata of the data set, including ``classes``, the names by number (empty if unknown)."""
        return dict(super().metainfo, classes=self.classes)

    def load_data_list(self) -> list[dict[str, Any]]:
        """List the images with their labels, which are checked against ``num_classes``."""
        root, classes = self.data_prefix['img_path'], super().metainfo.get('classes')
        if self.ann_file:
            images = list_from_file(self.ann_file, root)
        else:
            images, classes = list_images(root, classes)
        self.classes = tuple(classes or ())
        largest = max(images, key=lambda image: image['label'])
        if self.num_classes is not None and largest['label'] >= self.num_classes:
            raise ValueError(f'{largest["img_path"]!r} has the label {largest["label"]}, not below num_classes='
                             f'{self.num_classes}. Correct {self.ann_file or root!r}, or set model.num_classes.')
        return images

    def get_cat_ids(self, idx: int) -> list[int]:
        """Return the label of an image, as wrappers that balance classes ask for it."""
        return [self.get_data_info(idx)['label']]

    def __getitem__(self, idx: int) -> dict[str, Any]:
        unreadable: list[str] = []
        attempts = 1 if self.test_mode else self.max_refetch + 1
        for _ in range(attempts):
            info = self.get_data_info(idx)
            try:
                image, label = open_image(open_file(info)), info['label']
                image = image if self.crop is None else self.crop(image)
                image.load()
                break
            except Exception as error:  # Pillow raises anything from SyntaxError to struct.error on broken files
                reason = f'{type(error).__name__}: {error}'.replace('\n', ' ')
                unreadable.append(f'{image_name(info)}\t{reason}')
                idx = random.randrange(len(self))
        else:
            if not self.test_mode:
                raise OSError(f'{len(unreadable)} images drawn one after the other cannot be read, the last: '
                              f'{unreadable[-1]}')
            image, label = Image.new('RGB', (256, 256)), -1
        return dict(inputs=self.pipeline(image), labels=label, paths=image_name(info), unreadable='\n'.join(unreadable))
