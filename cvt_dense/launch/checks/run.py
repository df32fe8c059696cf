"""Objects that the checks of one start use together, so that nothing is built twice."""
import copy
from dataclasses import dataclass, field
from typing import Any

from mmengine.config import Config
from mmengine.registry import MODELS
from torch import nn


@dataclass
class Run:
    """State that the checks of one start share.

    Args:
        stages: the data loaders that the run uses, of 'train', 'val' and 'test'.
        datasets: by stage; filled in when they are built.
    """

    stages: list[str]
    datasets: dict[str, Any] = field(default_factory=dict)
    _model: nn.Module | None = None

    def model(self, cfg: Config) -> nn.Module:
        """Return the config's model, without the weights that it will start from."""
        if self._model is None:
            self._model = MODELS.build(copy.deepcopy(cfg.model))
        return self._model

    def classes(self, stage: str) -> list[str] | None:
        """Return the class names of a built data set."""
        return (getattr(self.datasets.get(stage), 'metainfo', None) or {}).get('classes')
