"""Files that a crash cannot tear: written under another name, and renamed when they are complete."""
import os
import zipfile
from pathlib import Path

from mmengine.fileio import LocalBackend, register_backend

PARTIAL = '.partial'  # ending of a file that is being written


@register_backend('cvt_dense.atomic', force=True)
class AtomicLocalBackend(LocalBackend):
    """MMEngine's local files; ``put`` leaves either the complete new file or what was there before."""

    def put(self, obj: bytes, filepath: str | Path) -> None:
        partial = Path(f'{filepath}{PARTIAL}')
        partial.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(partial, 'wb') as file:
                file.write(obj)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, filepath)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise OSError(
                error.errno,
                f'{error.strerror}: {filepath} ({len(obj) / 2**20:.0f} MiB) could not be written. '
                'Checkpoints written before are complete; make room and continue with --resume') from error


def find_checkpoint(work_dir: str) -> str | None:
    """The checkpoint that a run in ``work_dir`` continues from; None if there is none.

    It is the one that ``last_checkpoint`` names. Where that is missing or torn (an older run without
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
    # The directory of a zip archive, which torch.save writes, is at its end: it is the first to be torn off.
    return next((str(path) for path in candidates if path.is_file() and zipfile.is_zipfile(path)), None)
