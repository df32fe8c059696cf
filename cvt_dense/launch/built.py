"""What has been built for a run, before its Runner is."""
from dataclasses import dataclass
from functools import cached_property

from mmengine.config import Config
from mmengine.model import BaseModel
from torch.utils.data import DataLoader

from ..engine.schedules import Curve, planned_rates
from ..inference.model import TrainedFile


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
    trained: TrainedFile | None = None

    @property
    def stage(self) -> str:
        """Return 'train' or 'test', whichever the run is."""
        return 'train' if 'train' in self.loaders else 'test'

    @cached_property
    def rates(self) -> Curve | None:
        """Return the learning rates of a training, see :func:`cvt_dense.engine.schedules.planned_rates`."""
        return planned_rates(self.cfg, self.loaders['train'])
