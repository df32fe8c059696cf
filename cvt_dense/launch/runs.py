"""The settings of a training and of a test, each stated once.

They are the arguments of :func:`cvt_dense.train` and :func:`cvt_dense.test`, and the flags of ``tools/train.py`` and
``tools/test.py``: ``cvt_dense.cli.command_line.add_settings`` makes a flag of every field.
"""
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from ..errors import UserError, check_argument
from ..images import OVERLAP, check_slice

RANKS = dict(pytorch='RANK', slurm='SLURM_PROCID')  # the variable in which each launcher gives a process its number


def setting(default: Any, text: str, **flag: Any) -> Any:
    """Return a field that is given by its name.

    Args:
        default: its default; a dict stands for a new one.
        text: the help text.
        **flag: arguments of argparse that the annotation does not tell; ``name`` is another name of the flag.
    """
    factory = dict(default_factory=dict) if default == {} else dict(default=default)
    return field(**factory, kw_only=True, metadata=dict(flag, help=text))


@dataclass(frozen=True)
class Run:
    """The settings that a training and a test have in common.

    Raises:
        UserError: a value is not allowed, or ``launcher`` has not started this process.
    """
    config: str | Path = field(metadata=dict(help='config file'))
    work_dir: str | Path | None = setting(
        None, "folder of the run; a test writes into its folder test/ (default: the folder of the tested checkpoint, "
        "the config's work_dir, or work_dirs/CONFIG)")
    data_root: str | Path | None = setting(
        None, 'folder that replaces the data_root of all data sets and evaluators (or the common parent of several)',
        metavar='DIR')
    options: dict[str, Any] = setting(
        {}, 'override settings, e.g. train_dataloader.batch_size=32 model.num_classes=50', name='cfg-options')
    check: bool = setting(
        True, 'leave the checks of settings, data and weights out, except those that the run needs')
    launcher: Literal['none', 'pytorch', 'slurm'] = setting(
        'none', 'what started the processes of a distributed run (tools/dist_*.sh pass pytorch)')

    def __post_init__(self):
        for each in fields(self):
            check_argument(each.name, getattr(self, each.name), each.type)
        if self.launcher == 'none':
            if 'TORCHELASTIC_RUN_ID' in os.environ and os.environ.get('WORLD_SIZE', '1') != '1':
                raise UserError(
                    'torchrun started several processes, and each would train alone: give --launcher pytorch.')
        elif RANKS[self.launcher] not in os.environ:
            raise UserError(f'--launcher {self.launcher}: {RANKS[self.launcher]} is not set. Start the processes by '
                            'tools/dist_*.sh (pytorch) or srun (slurm), or leave --launcher out.')


@dataclass(frozen=True)
class TrainRun(Run):
    """The settings of a training.

    ``amp`` is 'fp16', with a dynamic loss scale; 'bf16', on CPUs too; or 'default', which is 'fp16' for detectors,
    because compiled mmcv has no operators for bfloat16, and for configs in float16, and 'bf16' for others.
    """
    resume: str | Path | None = setting(
        None, 'continue a run: from CHECKPOINT, or from the last one in the work dir', nargs='?', const='auto',
        metavar='CHECKPOINT')
    overwrite: bool = setting(
        False, 'if the work dir holds another run, move that one aside, to WORK_DIR.old1 and so on')
    amp: Literal['bf16', 'fp16', 'default'] | None = setting(
        None, 'mixed precision; without a value, fp16 for detectors and float16 configs, else bf16', nargs='?',
        const='default', metavar='{bf16,fp16}')
    auto_scale_lr: bool = setting(
        False, 'scale the learning rate to the number of images per step (some configs do so anyway)')
    val_loss: bool = setting(False, 'compute the loss of the validation images too, at each evaluation')

    def __post_init__(self):
        super().__post_init__()
        if self.resume and self.overwrite:
            raise UserError('--resume with --overwrite: a run is continued or moved aside; leave one of them out.')


@dataclass(frozen=True)
class TestRun(Run):
    """The settings of a test."""
    checkpoint: str | Path = field(metadata=dict(
        help='checkpoint file, or whole model of tools/export.py (.onnx, .xml, .pt2)'))
    runtime: Literal['onnxruntime', 'openvino', 'torch'] | None = setting(
        None, 'what runs exported files (default: by suffix; an .onnx file runs in OpenVINO too)')
    amp: Literal['bf16', 'fp16'] | None = setting(None, "PyTorch's mixed precision (on a CPU: bf16 only)")
    tta: bool = setting(False, "test-time augmentation: the config's tta_model and tta_pipeline")
    slice: int | None = setting(
        None, 'cut larger images into overlapping slices of this side, predict each slice as an image of its own, and '
        'merge the predictions', metavar='PIXELS')
    overlap: float = setting(
        OVERLAP, 'fraction of the side by which neighbouring slices overlap (default: %(default)s)', metavar='FRACTION')
    out: str | Path | None = setting(
        None, 'save predictions in a new folder: detections as COCO JSON (predictions.bbox.json, '
        'predictions.segm.json), segmentations as PNG label maps', metavar='DIR')
    split: Literal['test', 'val'] = setting('test', 'data to test on')

    def __post_init__(self):
        super().__post_init__()
        check_slice(self.slice, self.overlap)

    __test__ = False  # pytest takes classes of this name for tests
