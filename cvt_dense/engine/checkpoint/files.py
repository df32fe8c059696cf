"""Files of checkpoints: written atomically, and found again when a run is resumed."""
import zipfile
from pathlib import Path

from mmengine.fileio import LocalBackend, register_backend

from ...fileio import write_atomically


@register_backend('cvt_dense.atomic', force=True)
class AtomicLocalBackend(LocalBackend):
    """MMEngine's local files, written atomically."""

    def put(self, obj: bytes, filepath: str | Path) -> None:
        """Write ``filepath``, or leave what was there before and raise OSError."""
        write_atomically(filepath, obj)


def find_checkpoint(work_dir: str) -> str | None:
    """Return the checkpoint that a run in ``work_dir`` continues from, or None if there is none.

    It is the one that ``last_checkpoint`` names. Where that is missing or incomplete (an older run without
    ``SafeCheckpointHook``, a moved folder, a damaged disk), it is the newest complete one.
    """
    folder = Path(work_dir)
    candidates: list[Path] = []
    if (folder / 'last_checkpoint').is_file():
        named = (folder / 'last_checkpoint').read_text().strip()
        if '://' in named:
            return named
        candidates = [folder / Path(named).name, Path(named)]  # a copied folder names the original's file
    saved = [path for pattern in ('epoch_*.pth', 'iter_*.pth') for path in folder.glob(pattern)]
    candidates += sorted(saved, key=lambda path: path.stat().st_mtime, reverse=True)
    # torch.save writes a zip archive, whose directory is at its end, so a truncated file has none.
    return next((str(path) for path in candidates if path.is_file() and zipfile.is_zipfile(path)), None)
