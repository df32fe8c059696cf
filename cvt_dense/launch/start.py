"""Train and test: the whole way from the settings of a run to its result."""
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import checked
from .distributed import on_first_process, setup_distributed
from .runs import TestRun, TrainRun
from .settings import read_test, read_training
from .work_dir import claim, move_aside

if TYPE_CHECKING:
    from ..engine.runner import CvTRunner
# PyTorch and the packages of the data sets take seconds to import: only after mistakes that need none of them.


@dataclass(frozen=True)
class Trained:
    """The result of a training.

    Attributes:
        folder: the run's folder.
        last: the last checkpoint, from which the run can be resumed; None: none was saved.
        best: the best checkpoint, or the last one where the config keeps no best.
        metrics: those of the last evaluation; empty without one.
        stopped: whether the run ended before its last step, by an interrupt, a callback or early stopping.
    """
    folder: Path
    last: Path | None
    best: Path | None
    metrics: dict[str, float]
    stopped: bool

    @property
    def curves(self) -> list[dict[str, Any]]:
        """Return the rows of a table: what was logged, with its iteration; ``pandas.DataFrame`` takes them."""
        from ..curves import Curves
        return [dict(point.values, iteration=point.iteration, evaluation=point.evaluation)
                for point in Curves(self.folder, allow_none=True).points]


@checked
def train(config: str | Path, callback: Callable[[int, dict[str, float]], Any] | None = None,
          **settings: Any) -> Trained:
    """Train the network of a config.

    An interrupt (Ctrl-C, SIGTERM) saves a checkpoint and returns; ``resume='auto'`` continues the run.

    Args:
        config: config file.
        callback: called after each evaluation with the iteration and the metrics; the training ends if it returns
            something true.
        **settings: fields of :class:`~cvt_dense.launch.runs.TrainRun`, such as ``work_dir``, ``data_root``,
            ``options={'train_cfg.max_iters': 300}``, ``resume``, ``amp``.

    Raises:
        UserError: a mistake in settings, config, data or weights; nothing has been written then.
    """
    runner = start_training(TrainRun(config, **settings), callback)
    from ..curves import Curves
    from ..engine.checkpoint import Stopped, find_checkpoint
    from ..metrics import NOT_METRICS, best_checkpoint
    folder, metrics = Path(runner.work_dir), {}
    try:
        runner.train()
    except Stopped:
        pass
    finally:
        runner.restore_signals()
    for point in Curves(folder, allow_none=True).points:
        metrics = point.values if point.evaluation else metrics
    metrics = {name: value for name, value in metrics.items() if name not in NOT_METRICS}
    last = find_checkpoint(folder)
    best = best_checkpoint(folder) or (last and Path(last))
    return Trained(folder, last and Path(last), best, metrics, runner.iter < runner.max_iters)


@checked
def test(config: str | Path, checkpoint: str | Path | None = None, **settings: Any) -> dict[str, float]:
    """Test a checkpoint, or a file of :func:`cvt_dense.export`, and return the metrics.

    Args:
        config: config file, or a published model.
        checkpoint: checkpoint or exported file. Default: the weights of the published model.
        **settings: fields of :class:`~cvt_dense.launch.runs.TestRun`, such as ``data_root``, ``tta``, ``slice``.

    Raises:
        UserError: a mistake in settings, config, data or weights; nothing has been written then.
    """
    from ..published import fetch, is_published
    if checkpoint is None and is_published(config):
        config = checkpoint = fetch(config)
    metrics = start_test(TestRun(config, checkpoint, **settings)).test()
    return {name: value.item() if hasattr(value, 'item') else value for name, value in metrics.items()}  # of NumPy


def start_training(run: TrainRun, callback: Callable[..., Any] | None = None) -> 'CvTRunner':
    """Return the Runner of a training, with its model and its data; see :func:`train`."""
    cfg = read_training(run)
    from ..annotations.data_sets import check_annotations
    from ..engine.hooks.callback import CallbackHook
    from .build import build_model, build_runner, load_data, prepare, skip_unreadable
    from .checks.built import check
    setup_distributed(run.launcher, cfg)  # after these imports: modules would keep the process group, and its threads
    checkpoint = on_first_process(claim, cfg, run)
    if run.check:
        on_first_process(check_annotations, cfg, ('train', 'val'))
    built = prepare(cfg, run, checkpoint)
    load_data(built, 'train', 'val')
    build_model(built)
    skip_unreadable(built)
    if run.check:
        on_first_process(check, built)
    if run.overwrite:
        on_first_process(move_aside, cfg.work_dir)
    runner = build_runner(built)
    runner.rates = built.rates
    if callback:
        runner.register_hook(CallbackHook(callback))
    return runner


def start_test(run: TestRun) -> 'CvTRunner':
    """Return the Runner of a test, with its model and its data; see :func:`test`."""
    cfg = read_test(run)
    from ..annotations.data_sets import check_annotations
    from ..inference.model import TrainedFile, build_trained
    from .build import build_runner, load_data, prepare, skip_unreadable
    from .checks.built import check
    from .wrap import wrap
    setup_distributed(run.launcher, cfg)
    if run.check:
        on_first_process(check_annotations, cfg, ('test', ))
    built = prepare(cfg, run, trained=TrainedFile(str(run.checkpoint), run.runtime, run.amp))
    load_data(built, 'test')
    built.model = build_trained(built.cfg, built.trained, run.check)
    skip_unreadable(built)
    if run.check:
        on_first_process(check, built)
    wrap(built)
    return build_runner(built)
