"""Build what a run consists of, as ``start_training`` does."""
from typing import Any

from mmengine.config import Config

from cvt_dense.launch.build import build_model, prepare
from cvt_dense.launch.checks.built import Built, check
from cvt_dense.launch.checks.settings import check_paths
from cvt_dense.launch.data import load_data


def build_run(cfg: Config, *stages: str, checked: bool = True) -> Built:
    """Return the data loaders of the stages and the model of a config that is read."""
    if checked:
        check_paths(cfg, stages)
    running, _, seed = prepare(cfg)
    loaders = load_data(running, stages, seed, checked)
    built = Built(running, loaders, build_model(running))
    if checked:
        check(built)
    return built


def datasets(built: Built) -> dict[str, Any]:
    """Return the data set of each stage."""
    return {stage: loader.dataset for stage, loader in built.loaders.items()}
