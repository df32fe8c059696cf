"""Images with noise, blur, weather and compression, for testing: the corruptions of ImageNet-C and its like."""
import zlib
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from mmengine.config import Config
from PIL import Image

from ..errors import UserError
from ..nodes import dicts, type_name
from ..registry import TRANSFORMS

# In the order of the benchmarks (Hendrycks and Dietterich 2019, Michaelis et al. 2019).
CORRUPTIONS = (
    'gaussian_noise', 'shot_noise', 'impulse_noise', 'defocus_blur', 'glass_blur', 'motion_blur', 'zoom_blur', 'snow',
    'frost', 'fog', 'brightness', 'contrast', 'elastic_transform', 'pixelate', 'jpeg_compression')
# The benchmarks keep these for choosing settings.
VALIDATION_CORRUPTIONS = ('speckle_noise', 'gaussian_blur', 'spatter', 'saturate')
SEVERITIES = (1, 2, 3, 4, 5)
DRAWS_BY_SEED = ('impulse_noise', 'glass_blur')  # the others draw from NumPy's global state
SMALLEST = 32


def check_corruptions(names: Sequence[str], severities: Sequence[int]) -> None:
    """Raise ValueError for a name or a severity that does not exist."""
    known = CORRUPTIONS + VALIDATION_CORRUPTIONS
    wrong = [name for name in names if name not in known]
    if wrong or not names:
        raise ValueError(f'corruption {", ".join(map(repr, wrong)) or "(none)"}: allowed are {", ".join(known)}.')
    if not severities or set(severities) - set(SEVERITIES):
        raise ValueError(f'severity {list(severities)}: allowed are 1 (weak) to 5 (strong).')


def use_corruptions(cfg: Config, names: str, severities: Sequence[int]) -> None:
    """Test ``cfg`` on corrupted images too: with another test loop, and a transform that the loop sets.

    Args:
        cfg: changed in place.
        names: names of corruptions with commas between them, or 'all', the benchmarks' fifteen.
        severities: any of 1 to 5.

    Raises:
        UserError: no such corruption or severity, a package that is not installed, or no data to corrupt.
    """
    chosen = list(CORRUPTIONS) if names == 'all' else names.split(',')
    try:
        check_corruptions(chosen, severities)
    except ValueError as error:
        raise UserError(f'--corrupt {names} --severity: {error}') from error
    if find_spec('imagecorruptions') is None:
        raise UserError('--corrupt needs the package imagecorruptions: run "pip install imagecorruptions-imaug".')
    added = 0
    for node in dicts(cfg.test_dataloader):
        if type_name(node) == 'ImageDataset':
            node.setdefault('corruption', {})
            added += 1
        for key in ('pipeline', 'transforms'):
            steps = node.get(key)
            load = next((i for i, step in enumerate(steps or ()) if isinstance(step, dict)
                         and type_name(step).startswith('LoadImage')), None)
            if load is not None:
                node[key] = [*steps[:load + 1], dict(type='cvt_dense.CorruptImage'), *steps[load + 1:]]
                added += 1
    if not added:
        raise UserError('--corrupt: test_dataloader has neither a LoadImage... transform nor a cvt_dense.ImageDataset, '
                        'after which images could be corrupted.')
    cfg.test_dataloader.persistent_workers = False  # workers would keep the corruption that they began with
    cfg.test_cfg.update(type='cvt_dense.RobustnessTestLoop', corruptions=chosen, severities=severities)


def corrupt(image: np.ndarray, name: str, severity: int, seed: int = 0) -> np.ndarray:
    """Corrupt an image with the package ``imagecorruptions``.

    The random numbers depend on the arguments alone, including the image's content, not on order, workers or processes.

    Args:
        image: uint8 (H, W, 3), RGB, at least 32x32.
        name: a name in ``CORRUPTIONS`` or ``VALIDATION_CORRUPTIONS``.
        severity: 1 to 5.
        seed: seed of the random numbers.

    Returns:
        The corrupted image, uint8 (H, W, 3).

    Raises:
        ValueError: the image has another shape or type.
    """
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or min(image.shape[:2]) < SMALLEST:
        raise ValueError(f'an image of shape {image.shape} and type {image.dtype} cannot be corrupted: allowed is '
                         f'uint8 with 3 channels and at least {SMALLEST}x{SMALLEST} pixels.')
    import imagecorruptions
    content = np.ascontiguousarray(image)
    sequence = np.random.SeedSequence((seed, severity, zlib.crc32(name.encode()), zlib.crc32(content)))
    state = np.random.get_state()
    drawn = int(sequence.generate_state(1)[0])
    np.random.seed(drawn)
    try:
        seeds = dict(seed=drawn) if name in DRAWS_BY_SEED else {}
        return imagecorruptions.corrupt(content, severity=severity, corruption_name=name, **seeds)
    finally:
        np.random.set_state(state)


@TRANSFORMS.register_module()
class CorruptImage:
    """Corrupt images with :func:`corrupt`, as a transform.

    In MMDetection's and MMSegmentation's pipelines it follows the loading of the image and changes it at its own size,
    as Michaelis et al. do; in :class:`ImageDataset` it takes the PIL image after the crop, as ImageNet-C does.
    :meth:`set` changes it between passes over the data, not while workers run.

    Args:
        corruption: name; None: images stay as they are.
        severity: 1 to 5.
        seed: seed of the random numbers.
        to_rgb: the pipeline's images are BGR, as mmcv loads them, and are corrupted as RGB.
    """

    def __init__(self, corruption: str | None = None, severity: int = 1, seed: int = 0, to_rgb: bool = True):
        self.seed = seed
        self.to_rgb = to_rgb
        self.set(corruption, severity)

    def set(self, corruption: str | None, severity: int = 1) -> None:
        """Set the corruption of the next pass over the data."""
        if corruption is not None:
            check_corruptions([corruption], [severity])
        self.corruption, self.severity = corruption, severity

    def __call__(self, results: Any) -> Any:
        if self.corruption is None:
            return results
        if isinstance(results, Image.Image):
            return Image.fromarray(corrupt(np.asarray(results), self.corruption, self.severity, self.seed))
        step = -1 if self.to_rgb else 1
        image = corrupt(results['img'][..., ::step], self.corruption, self.severity, self.seed)
        results['img'] = np.ascontiguousarray(image[..., ::step])
        return results

    def __repr__(self) -> str:
        return f'{type(self).__name__}(corruption={self.corruption!r}, severity={self.severity}, seed={self.seed})'
