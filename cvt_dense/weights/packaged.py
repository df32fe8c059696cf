"""Published models that are folders of this package, under URLs ``cvt_dense://NAME``."""
from pathlib import Path

from ..errors import CheckpointError

SCHEME = 'cvt_dense://'
FOLDER = Path(__file__).parent / 'files'


def packaged_folder(url: str) -> Path:
    """Return the folder of a published model of this package, whose weights are float16.

    Args:
        url: ``cvt_dense://cvt-nano``, a classifier, or ``cvt_dense://cvt-nano-voc``, a detector.

    Raises:
        CheckpointError: there is no such model.
    """
    names = sorted(path.name for path in FOLDER.iterdir())
    name = url.removeprefix(SCHEME)
    if name not in names:
        raise CheckpointError(f'{url}: the models in this package are {", ".join(names)}.')
    return FOLDER / name
