"""Check the values of label maps."""
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from mmengine.logging import print_log
from PIL import Image

from ...errors import UserError

DEFAULT_IGNORE_INDEX = 255  # of MMSegmentation's heads
MAX_LABEL_MAPS = 2000  # label maps that are read before a run, which takes some seconds


def check_label_maps(paths: list[str], dataset: Any, model: dict[str, Any], where: str) -> None:
    """Check the values of label maps against the classes of their data set and the head's ``ignore_index``.

    Args:
        paths: label map files; at most :data:`MAX_LABEL_MAPS` of them are read.
        dataset: an mmseg data set.
        model: config of the segmentor.
        where: setting that names the data set, for messages.

    Raises:
        UserError: a value is not allowed, or every pixel is ignored.
    """
    classes = dataset.metainfo['classes']
    shift = int(bool(dataset.metainfo.get('reduce_zero_label')))
    head = model['decode_head'][-1] if isinstance(model['decode_head'], list) else model['decode_head']
    ignored = {head.get('ignore_index', DEFAULT_IGNORE_INDEX)} | ({0} if shift else set())
    label_map = dataset.metainfo.get('label_map')  # from the data set's own classes to fewer
    number = len(label_map) if label_map else len(classes)
    allowed = set(range(shift, number + shift)) | ignored

    def count(path: str) -> np.ndarray:
        """Return how many pixels have each value, as MMSegmentation reads them."""
        with Image.open(path) as image:
            if image.mode == '1':  # read as 0 and 1 by Pillow, MMSegmentation's default here
                pixels = np.bincount(np.asarray(image).ravel(), minlength=256)
            elif image.mode in ('L', 'P'):
                pixels = np.array(image.histogram())
            elif image.mode.startswith('I'):  # 16 or 32 bits
                pixels = np.bincount(np.asarray(image).ravel(), minlength=256)
            else:
                raise UserError(f'{where}: the label map {path!r} is not 8-bit with one channel, but has mode '
                                f'{image.mode!r}; save class numbers as an 8-bit grey or palette PNG.')
        wrong = sorted(set(np.flatnonzero(pixels).tolist()) - allowed)
        if wrong:
            kind = f'{shift} to {number + shift - 1} ({number} classes) and {sorted(ignored)} (ignored)'
            raise UserError(f'{where}: the label map {path!r} holds the values {wrong[:10]}; allowed are {kind}. '
                            'Correct the map, the classes, or ignore_index.')
        return pixels[:256]

    if len(paths) > MAX_LABEL_MAPS:
        print_log(f'{where}: {MAX_LABEL_MAPS} of {len(paths)} label maps are checked.', logger='current')
        paths = [paths[i * len(paths) // MAX_LABEL_MAPS] for i in range(MAX_LABEL_MAPS)]
    with ThreadPoolExecutor() as pool:
        pixels = sum(pool.map(count, paths), np.zeros(256, dtype=np.int64))
    counted = {value: int(pixels[value]) for value in sorted(allowed - ignored)}
    if not sum(counted.values()):
        raise UserError(f'{where}: every pixel of the {len(paths)} label maps has an ignored value '
                        f'({sorted(ignored)}): there is nothing to learn or to score.')
    empty = [value - shift for value, pixel_count in counted.items() if not pixel_count]
    if empty:
        names = [classes[i] if not label_map else i for i in empty]
        print_log(f'{where}: no label map has a pixel of the classes {names}.', logger='current')
