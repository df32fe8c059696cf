"""Read the curves of runs from their folders, and show them as a table or a picture.

A run's folder has a ``<time>/vis_data/scalars.json`` for each of its starts but those that resumed one with curves.
"""
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# Metrics of a run that tables and pictures show by default, if they were evaluated.
MAIN = ('accuracy/top1', 'coco/bbox_mAP', 'coco/segm_mAP', 'mIoU')
NOT_METRICS = ('step', 'time', 'data_time')
COLORS = ('tab:blue', 'tab:orange', 'tab:green', 'tab:red', 'tab:purple', 'tab:brown', 'tab:pink', 'tab:gray')
MARKERS = ('o', 's', '^', 'D')


class Point(NamedTuple):
    """A record of a run.

    Attributes:
        iteration: up to which it is; of an evaluation, the last one that was logged before it.
        hours: hours of training up to there without evaluations, as far as they were logged.
        epoch: up to which it is; None where a run counts iterations only.
        values: what was logged.
        evaluation: whether it is one, or losses of training.
    """
    iteration: int
    hours: float
    epoch: int | None
    values: dict[str, Any]
    evaluation: bool


def _records(text: str) -> Iterator[dict[str, Any]]:
    """Yield the complete records of a file with a JSON object a line.

    A killed run may leave half a line, behind which the resumed run writes its first record.
    """
    for line in text.splitlines():
        for part in (line, line[max(line.rfind('{'), 0):]):
            try:
                record = json.loads(part)
            except ValueError:
                continue
            if isinstance(record, dict) and 'step' in record:
                yield record
            break


class Curves:
    """The curves of a run over all its starts, in order.

    Where a start has repeated iterations of the one before, which had not been saved, the later ones count.
    """

    def __init__(self, folder: str | Path):
        """Read the curves of the run in ``folder``.

        Raises:
            FileNotFoundError: the folder has no curves.
        """
        self.folder = Path(folder)
        self.points: list[Point] = []
        files = sorted(self.folder.glob('*/vis_data/scalars.json'))
        for file in files:
            for record in _records(file.read_text(errors='replace')):
                self._add(record)
        if not self.points:
            raise FileNotFoundError(f'{str(folder)!r} holds no curves of a training: no */vis_data/scalars.json with '
                                    'a record. Name a folder that tools/train.py wrote (its --work-dir).')

    def _add(self, record: dict[str, Any]) -> None:
        evaluation, step = 'lr' not in record and 'iter' not in record, record['step']
        if not evaluation:
            while self.points and self.points[-1].iteration >= step:
                self.points.pop()
            before = self.points[-1] if self.points else Point(0, 0., None, {}, False)
            hours = before.hours + (step - before.iteration) * record.get('time', 0.) / 3600
            self.points.append(Point(step, hours, record.get('epoch'), record, False))
            return
        self.points = [point for point in self.points if not point.evaluation or point.values['step'] != step]
        last = self.points[-1] if self.points else Point(step, 0., None, {}, False)
        by_epoch = last.epoch is not None and step <= last.epoch
        self.points.append(Point(last.iteration if by_epoch else step, last.hours, step if by_epoch else None,
                                 record, True))

    def evaluations(self, metric: str) -> list[Point]:
        """Return the evaluations that have a value of ``metric``."""
        return [point for point in self.points if point.evaluation and metric in point.values]

    def metrics(self) -> list[str]:
        """Return the names of all metrics that were evaluated, in the order of the log."""
        names = dict.fromkeys(name for point in self.points if point.evaluation for name in point.values)
        return [name for name in names if name not in NOT_METRICS]

    def main_metrics(self) -> list[str]:
        """Return the metrics that are usual for the task, or else the first one of the log."""
        names = self.metrics()
        return [name for name in MAIN if name in names] or names[:1]

    def last(self, metric: str) -> Point | None:
        """Return the last evaluation of a metric, or None if it was never evaluated."""
        return next(reversed(self.evaluations(metric)), None)

    def best(self, metric: str) -> Point | None:
        """Return the first evaluation with the best value, the smallest one for a metric with 'loss' in its name."""
        sign = -1. if 'loss' in metric else 1.
        found = [point for point in self.evaluations(metric) if math.isfinite(point.values[metric])]
        return max(found, key=lambda point: sign * point.values[metric], default=None)


def place(point: Point) -> str:
    """Return 'epoch 3' or 'iteration 300'."""
    return f'iteration {point.iteration}' if point.epoch is None else f'epoch {point.epoch}'


def table(runs: dict[str, Curves], metrics: Sequence[str] = ()) -> str:
    """Return each run's last loss, and the last and best of ``metrics`` (default: the task's), as text."""
    rows = [('run', 'metric', 'last', 'at', 'best', 'at')]
    for name, curves in runs.items():
        losses = [point for point in curves.points if 'loss' in point.values and not point.evaluation]
        if losses:
            rows.append((name, 'loss', f'{losses[-1].values["loss"]:.4g}', f'iteration {losses[-1].iteration}', '', ''))
        for metric in metrics or curves.main_metrics():
            last, best = curves.last(metric), curves.best(metric)
            if last is not None:
                rows.append((name, metric, f'{last.values[metric]:.4g}', place(last),
                             *((f'{best.values[metric]:.4g}', place(best)) if best else ('', ''))))
    widths = [max(map(len, column)) for column in zip(*rows)]
    return '\n'.join('  '.join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


# -- pictures ----------------------------------------------------------------------------------------


def draw_line(axis: Any, curves: Curves, value: str, x: str = 'iterations', **style: Any) -> None:
    """Add a run's ``value`` ('loss', or a metric) to a matplotlib ``axis``.

    Args:
        x: 'iterations', 'epochs' (evaluations of runs that have them) or 'time' (hours of training).
        style: arguments of matplotlib's ``plot``, with ``label``.
    """
    points = curves.evaluations(value) or [p for p in curves.points if not p.evaluation and value in p.values]
    positions = {'iterations': lambda p: p.iteration, 'time': lambda p: p.hours,
                 'epochs': lambda p: p.iteration if p.epoch is None else p.epoch}[x]
    # Without markers few points are hard to see as a line.
    marker = 'o' if len(points) <= 60 else None
    axis.plot([positions(p) for p in points], [p.values[value] for p in points], marker=marker, markersize=4, **style)
    epochs = x == 'epochs' and any(p.epoch is not None for p in points)
    axis.set_xlabel('epoch' if epochs else 'hours of training' if x == 'time' else 'iteration')
    axis.set_ylabel(value.removeprefix('val/'))  # the validation's loss is beside the training's
    axis.grid(alpha=0.3)


def draw(runs: dict[str, Curves], out: str | Path, metrics: Iterable[str] = (), x: str = 'iterations') -> None:
    """Write a picture: the loss and each metric in a part of its own, with a line for each run.

    Args:
        runs: by the name in the legend.
        out: file to write; its suffix chooses the format.
        metrics: metrics of the evaluations; if there are none, those of the runs' tasks.
        x: 'iterations' or 'time'.
    """
    values = ['loss', *(metrics or dict.fromkeys(name for curves in runs.values() for name in curves.main_metrics()))]
    figure, axes = new_figure(1, len(values))
    for axis, value in zip(axes[0], values):
        for number, (name, curves) in enumerate(runs.items()):
            style = dict(label=name, color=COLORS[number % len(COLORS)])
            draw_line(axis, curves, value, x, **style)
            if value == 'loss' and curves.evaluations('val/loss'):
                draw_line(axis, curves, 'val/loss', x, **dict(style, label=f'{name}, validation', linestyle='--'))
        if len(runs) > 1 or len(axis.lines) > 1:
            axis.legend()
    if len(runs) == 1:
        figure.suptitle(next(iter(runs)))
    save_figure(figure, out)


def new_figure(rows: int, columns: int) -> tuple[Any, Any]:
    """Return a figure without a window, and its axes as an array of ``rows`` by ``columns``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    figure = Figure(figsize=(1 + 4.6 * columns, 4.2 * rows), layout='constrained')
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def save_figure(figure: Any, out: str | Path) -> None:
    """Write a figure, and create its folder if it does not exist."""
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


def draw_costs(rows: Sequence[dict[str, Any]], out: str | Path) -> None:
    """Write a picture of a study: each metric over the networks' multiplications, and over their images/s.

    Args:
        rows: for each network its ``name``, ``gmacs``, ``images_per_s`` and ``metrics``, by name ``mean``, ``low`` and
            ``high`` over its seeds; one that lacks any of them is left out.
        out: file to write; its suffix chooses the format.
    """
    rows = [row for row in rows if 'gmacs' in row and row['metrics']]
    metrics = list(dict.fromkeys(name for row in rows for name in row['metrics']))
    figure, axes = new_figure(len(metrics), 2)
    handles = {}
    for line, metric in zip(axes, metrics):
        for axis, cost, label in zip(line, ('gmacs', 'images_per_s'), ('GMACs an image', 'images/s')):
            for number, row in enumerate(rows):
                if metric not in row['metrics']:
                    continue
                found = row['metrics'][metric]
                spread = [[found['mean'] - found['low']], [found['high'] - found['mean']]]
                handles[row['name']] = axis.errorbar(
                    row[cost], found['mean'], spread, capsize=3, color=COLORS[number % len(COLORS)],
                    marker=MARKERS[number // len(COLORS) % len(MARKERS)], linestyle='')
            costs = [row[cost] for row in rows]
            axis.set(xlabel=label, ylabel=metric, xscale='log' if max(costs) > 5 * min(costs) else 'linear')
            axis.grid(alpha=0.3)
    # Not beside the points: networks of one study often cost the same.
    figure.legend(handles.values(), handles.keys(), loc='outside right upper', fontsize=9)
    save_figure(figure, out)
