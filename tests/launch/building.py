"""Build what a run consists of, as ``start_training`` does."""
from typing import Any

from mmengine.config import Config

from cvt_dense.annotations.data_sets import check_annotations
from cvt_dense.config import check_paths
from cvt_dense.launch.build import build_model, load_data, prepare, skip_unreadable
from cvt_dense.launch.checks.built import Built, check
from cvt_dense.launch.runs import TrainRun


def load(cfg: Config, *stages: str) -> Built:
    """Return what a run consists of with the data loaders of the stages, and without a model."""
    built = prepare(cfg, TrainRun('', check=False))
    load_data(built, *stages)
    return built


def build_run(cfg: Config, *stages: str, checked: bool = True) -> Built:
    """Return the data loaders of the stages and the model of a config that is read."""
    if checked:
        check_paths(cfg, stages)
        check_annotations(cfg, stages)
    built = load(cfg, *stages)
    build_model(built)
    skip_unreadable(built)
    if checked:
        check(built)
    return built


def datasets(built: Built) -> dict[str, Any]:
    """Return the data set of each stage."""
    return {stage: loader.dataset for stage, loader in built.loaders.items()}
