"""Check what has been built for a run, before its Runner is."""
from dataclasses import dataclass
from functools import cached_property

from mmengine.config import Config
from mmengine.model import BaseModel
from torch.utils.data import DataLoader

from ...engine.schedules import Curve, planned_rates
from ...inference.model import Trained
from .batches import check_batch_norm, check_loaders, check_scored
from .heads import check_class_folders, check_heads, check_single_class
from .images import check_files
from .schedule import check_schedule
from .weights import check_weights


@dataclass
class Built:
    """What a run consists of.

    Attributes:
        cfg: the config as it runs here.
        loaders: by stage ('train', 'val', 'test'), the data loaders that the run uses.
        model: the model, without wrappers.
        trained: the file whose weights a test has loaded into the model.
    """
    cfg: Config
    loaders: dict[str, DataLoader]
    model: BaseModel
    trained: Trained | None = None

    @property
    def stage(self) -> str:
        """Return 'train' or 'test', whichever the run is."""
        return 'train' if 'train' in self.loaders else 'test'

    @cached_property
    def rates(self) -> Curve | None:
        """Return the learning rates of a training, see :func:`cvt_dense.engine.schedules.planned_rates`."""
        return planned_rates(self.cfg, self.loaders['train'])


# Each takes what has been built, and raises UserError.
CHECKS = [check_class_folders, check_heads, check_single_class, check_files, check_loaders, check_scored,
          check_weights, check_batch_norm, check_schedule]


def check(built: Built) -> None:
    """Run :data:`CHECKS`, which change nothing."""
    for check_one in CHECKS:
        check_one(built)
