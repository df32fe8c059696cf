"""What images published weights were trained on: mean and standard deviation of RGB in units of 0 to 255."""
import json
import re
from pathlib import Path

IMAGENET = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
CVT_FILES = re.compile(r'cvt_dense://.*|hf://microsoft/cvt-.*|(.*/)?CvT-(13|21|w24)-\d+x\d+-IN-\d+k\.pth')

Normalisation = tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation


def trained_with(source: str) -> Normalisation | None:
    """Return the mean and standard deviation of the RGB images that weights were trained on, or None if unknown.

    Args:
        source: a checkpoint: published weights, or of transformers with its ``preprocessor_config.json``.
    """
    if CVT_FILES.fullmatch(source):
        return IMAGENET
    path = Path(source)
    about = (path if path.is_dir() else path.parent) / 'preprocessor_config.json'
    content = json.loads(about.read_text()) if about.is_file() else {}
    if not {'image_mean', 'image_std'} <= content.keys():
        return None
    return tuple(tuple(255. * value for value in content[key]) for key in ('image_mean', 'image_std'))
