"""What is built for a run, before its Runner is."""
from dataclasses import dataclass, field
from functools import cached_property

from mmengine.config import Config
from mmengine.model import BaseModel
from torch.utils.data import DataLoader

from ..classes import Classes
from ..engine.schedules import Curve, planned_rates
from ..inference.model import TrainedFile
from .runs import Run


@dataclass
class Built:
    """What a run consists of; :func:`cvt_dense.launch.build.prepare` creates it, and the next steps fill it.

    Attributes:
        run: the settings of the run.
        saved: the user's config, which the checkpoints keep.
        cfg: the config as it runs here.
        changes: how the two differ, in words.
        seed: of this process.
        trained: the file whose weights a test loads into the model.
        classes: those that number the data and the outputs; without names they are not known.
        loaders: by stage ('train', 'val', 'test'), the data loaders that the run uses.
        model: the model; the wrappers of a test come last.
    """
    run: Run
    saved: Config
    cfg: Config
    changes: list[str]
    seed: int
    trained: TrainedFile | None = None
    classes: Classes = Classes()
    loaders: dict[str, DataLoader] = field(default_factory=dict)
    model: BaseModel | None = None

    @property
    def stage(self) -> str:
        """Return 'train' or 'test', whichever the run is."""
        return 'train' if 'train' in self.loaders else 'test'

    @cached_property
    def rates(self) -> Curve | None:
        """Return the learning rates of a training, see :func:`cvt_dense.engine.schedules.planned_rates`."""
        return planned_rates(self.cfg, self.loaders['train'])
