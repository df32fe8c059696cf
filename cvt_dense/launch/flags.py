"""The flags of a training and of a test."""
import argparse
from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(kw_only=True)
class Flags:
    """Flags that training and testing have in common.

    Args:
        config: config file.
        cfg_options: settings to override, by their dotted names.
        work_dir: folder of logs and checkpoints. Default: the config's, or ``work_dirs/<config name>``.
        data_root: folder that takes the place of the config's data root.
        no_check: whether the checks are left out.
        launcher: what started the processes of a distributed run: 'none', 'pytorch' (torchrun) or 'slurm'.
    """

    config: str
    cfg_options: dict[str, Any] | None = None
    work_dir: str | None = None
    data_root: str | None = None
    no_check: bool = False
    launcher: str = 'none'

    @classmethod
    def of(cls, args: argparse.Namespace, **changes: Any) -> Self:
        """Return the flags of a parsed command line, with ``changes``."""
        given = {field.name: vars(args)[field.name] for field in fields(cls) if field.name in vars(args)}
        return cls(**dict(given, **changes))


@dataclass(kw_only=True)
class TrainFlags(Flags):
    """Flags of ``tools/train.py``.

    Args:
        resume: checkpoint that the run continues from; 'auto': the last complete one in the work dir.
        overwrite: whether another run in the work dir is moved aside.
        amp: mixed precision: 'fp16', 'bf16', or 'default' for the one that suits the model.
        auto_scale_lr: whether the learning rate is scaled to the total batch.
        val_loss: whether evaluations compute the validation loss too.
        vis_backend: type of MMEngine's that gets the curves too, such as 'MLflowVisBackend'.
    """

    resume: str | None = None
    overwrite: bool = False
    amp: str | None = None
    auto_scale_lr: bool = False
    val_loss: bool = False
    vis_backend: str | None = None


@dataclass(kw_only=True)
class TestFlags(Flags):
    """Flags of ``tools/test.py``.

    Args:
        checkpoint: checkpoint file or URL, or a whole exported model.
        runtime: runtime of exported files.
        autocast: mixed precision, 'bf16' or 'fp16'.
        fuse: whether BatchNorm is folded into the layers beside it.
        tta: whether the config's test-time augmentation is used.
        slice: side in pixels of the slices that larger images are cut into.
        overlap: fraction of their side by which neighbouring slices overlap.
        out: folder for the predictions.
    """

    checkpoint: str
    runtime: str | None = None
    autocast: str | None = None
    fuse: bool = False
    tta: bool = False
    slice: int | None = None
    overlap: float = 0.2
    out: str | None = None

    __test__ = False  # pytest takes a class of this name for one of tests
