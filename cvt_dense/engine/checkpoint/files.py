"""Files of checkpoints: written atomically, and found again when a run is resumed."""
import zipfile
from pathlib import Path

from mmengine.fileio import LocalBackend, register_backend

from ...atomic import write_atomically
from ...errors import UserError, listed
from ...weights import read_checkpoint

PREEMPTED = 'preempted.pth'  # of a run that may end before its next checkpoint; tools/_launch.sh looks for this name
ATOMIC = dict(backend='cvt_dense.atomic')  # MMEngine's backend_args for AtomicLocalBackend


@register_backend(ATOMIC['backend'], force=True)
class AtomicLocalBackend(LocalBackend):
    """MMEngine's local files, written atomically."""

    def put(self, obj: bytes, filepath: str | Path) -> None:
        """Write ``filepath``, or leave what was there before and raise UserError."""
        try:
            write_atomically(filepath, obj)
        except OSError as error:  # no room, for example
            raise UserError(f'{error}. What was there before is left; --resume continues from it.') from error


def find_checkpoint(work_dir: str | Path) -> str | None:
    """Return the checkpoint that a run in ``work_dir`` continues from, or None if there is none.

    It is the one that ``last_checkpoint`` names. Where that is missing or incomplete (an older run without
    ``SafeCheckpointHook``, a moved folder, a damaged disk), it is the complete one with the most iterations; times of
    files do not matter, because copies have new ones.

    Raises:
        UserError: all are incomplete.
    """
    folder = Path(work_dir)
    if (folder / 'last_checkpoint').is_file():
        named = (folder / 'last_checkpoint').read_text().strip()
        for path in (folder / Path(named).name, Path(named)):  # a copied folder names the original's file
            if _is_complete(path):
                return str(path)
    saved = [path for pattern in ('epoch_*.pth', 'iter_*.pth', PREEMPTED) for path in folder.glob(pattern)]
    complete = [path for path in saved if _is_complete(path)]
    if saved and not complete:
        raise UserError(f'{work_dir} holds only incomplete checkpoints ({listed(saved)}): copy them again, or remove '
                        'them to train from the beginning.')
    return str(max(complete, key=lambda path: read_checkpoint(path)['meta']['iter'])) if complete else None


def _is_complete(path: Path) -> bool:
    # torch.save writes a zip archive, whose directory is at its end, so a truncated file has none.
    return path.is_file() and zipfile.is_zipfile(path)
