"""Read the curves of runs from their folders.

Each start of a run writes a ``<time>/vis_data/scalars.json``, unless it resumes a run that has curves.
"""
import json
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from .metrics import best_file, main_metrics, rule_of


class Point(NamedTuple):
    """A record of a run.

    Attributes:
        iteration: the iteration at which it was logged; for an evaluation, the last logged one before it.
        epoch: likewise; None in a run that counts iterations.
        values: what was logged.
        evaluation: True for an evaluation, False for a training record.
    """
    iteration: int
    epoch: int | None
    values: dict[str, Any]
    evaluation: bool


def _records(text: str) -> Iterator[dict[str, Any]]:
    """Yield the complete records of a file with a JSON object a line.

    A killed run may leave half a line, behind which the resumed run writes its first record.
    """
    for line in text.splitlines():
        with suppress(ValueError):
            record = json.loads('{' + line.rpartition('{')[2])
            if 'step' in record:
                yield record


class Curves:
    """The curves of a run over all its starts, in order.

    Where a start has repeated iterations of the one before, which had not been saved, the later ones count.
    """

    def __init__(self, folder: str | Path, allow_none: bool = False):
        """Read the curves of the run in ``folder``.

        Raises:
            FileNotFoundError: the folder has no curves, unless ``allow_none``.
        """
        self.folder, self.points = Path(folder), list[Point]()
        for file in sorted(Path(folder).glob('*/vis_data/scalars.json')):
            for record in _records(file.read_text(errors='replace')):
                self._add(record)
        if not self.points and not allow_none:
            raise FileNotFoundError(f'{str(folder)!r} has no */vis_data/scalars.json. Name the folder of a run.')

    def _add(self, record: dict[str, Any]) -> None:
        evaluation, step = 'lr' not in record and 'iter' not in record, record['step']
        if not evaluation:
            while self.points and self.points[-1].iteration >= step:
                self.points.pop()
            self.points.append(Point(step, record.get('epoch'), record, False))
            return
        self.points = [point for point in self.points if not point.evaluation or point.values['step'] != step]
        last = self.points[-1] if self.points else Point(step, None, {}, False)
        by_epoch = last.epoch is not None and step <= last.epoch
        self.points.append(Point(last.iteration if by_epoch else step, step if by_epoch else None, record, True))

    def find(self, name: str) -> list[Point]:
        """Return the evaluations of a metric."""
        return [point for point in self.points if point.evaluation and name in point.values]

    def main_metrics(self) -> list[str]:
        """Return the usual metrics of the task; if the log has none of them, its first metric."""
        return main_metrics(name for point in self.points if point.evaluation for name in point.values)

    def last(self, metric: str) -> Point | None:
        """Return the last evaluation of a metric, or None if it was never evaluated."""
        return next(reversed(self.find(metric)), None)

    def best(self, metric: str) -> Point | None:
        """Return the evaluation of the best checkpoint; without such a file, the first one with the best value.

        None: there is neither, or the metric's name does not tell whether less of it is better.
        """
        points = [point for point in self.find(metric) if math.isfinite(point.values[metric])]
        if (kept := best_file(self.folder, metric)) and (found := [p for p in points if p.values['step'] == kept[1]]):
            return found[-1]
        choose = dict(less=min, greater=max).get(rule_of(metric))
        return choose(points, key=lambda point: point.values[metric], default=None) if choose else None


def position(point: Point) -> str:
    """Return 'epoch 3' or 'iteration 300'."""
    return f'iteration {point.iteration}' if point.epoch is None else f'epoch {point.epoch}'
