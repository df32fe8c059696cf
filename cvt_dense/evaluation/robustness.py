"""How much of a network's accuracy is left on corrupted images."""
import json
import os
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any

from mmengine.dist import is_main_process
from mmengine.runner import TestLoop

from ..curves import MAIN
from ..errors import UserError
from ..registry import LOOPS


def summarise(clean: dict[str, float], corrupted: dict[str, dict[int, dict[str, float]]],
              metrics: Sequence[str]) -> dict[str, dict[str, float]]:
    """P, mPC and rPC of each metric, as Michaelis et al. 2019 (section 3) define them.

    Args:
        clean: metrics of clean images.
        corrupted: metrics by corruption and severity.
        metrics: those to sum up.

    Returns:
        By metric: ``P`` on clean images; ``mPC``, the mean over corruptions of the mean over severities; ``rPC``,
        mPC / P (not a number if P is 0).
    """
    summary = {}
    for metric in metrics:
        means = [sum(values[metric] for values in by_severity.values()) / len(by_severity)
                 for by_severity in corrupted.values()]
        mean = sum(means) / len(means)
        summary[metric] = dict(P=clean[metric], mPC=mean, rPC=mean / clean[metric] if clean[metric] else float('nan'))
    return summary


def table(clean: dict[str, float], corrupted: dict[str, dict[int, dict[str, float]]], metric: str) -> str:
    """A metric by corruption and severity, as text."""
    severities = list(next(iter(corrupted.values())))
    rows = [[metric, *(f'severity {severity}' for severity in severities), 'mean'],
            ['clean', *[''] * len(severities), f'{clean[metric]:.4g}']]
    for name, by_severity in corrupted.items():
        values = [by_severity[severity][metric] for severity in severities]
        rows.append([name, *(f'{value:.4g}' for value in values), f'{sum(values) / len(values):.4g}'])
    summary = summarise(clean, corrupted, [metric])[metric]
    rows.append(['all (mPC)', *[''] * len(severities), f'{summary["mPC"]:.4g}'])
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ['  '.join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))])
             for row in rows]
    return '\n'.join([*lines, f'relative (rPC): {100 * summary["rPC"]:.1f} % of the clean value'])


@LOOPS.register_module()
class RobustnessTestLoop(TestLoop):
    """Tests on clean images, then with each corruption and severity.

    The data set has a ``cvt_dense.CorruptImage`` (``tools/test.py --corrupt`` puts it there), whose corruption this
    loop sets; its loader must not keep workers from pass to pass. After every pass ``corruptions.json`` in the work
    dir holds what there is.

    Args:
        corruptions, severities: names and numbers, see ``cvt_dense.datasets.corruption``.
        others: as of MMEngine's ``TestLoop``.

    Raises:
        ValueError: the data set has no such transform.
    """

    def __init__(self, *args: Any, corruptions: Sequence[str], severities: Sequence[int], **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.corruptions, self.severities = list(corruptions), list(severities)
        self.transforms = list(_settable(self.dataloader.dataset))
        if not self.transforms:
            raise ValueError('the test data set has no cvt_dense.CorruptImage, which corrupts its images.')

    def run(self) -> dict[str, float]:
        """Returns the clean metrics, and ``mPC/<metric>`` and ``rPC/<metric>`` of each number among them."""
        self._set(self.corruptions[0], self.severities[0])
        try:
            self.dataloader.dataset[0]  # before the clean images have taken their time
        except ValueError as error:
            raise UserError(f'--corrupt: {error}') from error
        clean = self._test(None, 1)
        if not clean:
            raise UserError('--corrupt: the test on clean images gave no metric, so there is nothing to compare with.')
        metrics = list(clean)
        corrupted: dict[str, dict[int, dict[str, float]]] = {}
        for name in self.corruptions:
            corrupted[name] = {}
            for severity in self.severities:
                found = self._test(name, severity)
                if set(metrics) - set(found):  # COCO's metric has none where nothing was detected
                    self.runner.logger.warning(f'{name}, severity {severity}: no {metrics[0]}, which counts as 0.')
                corrupted[name][severity] = {metric: found.get(metric, 0.) for metric in metrics}
                self._write(clean, corrupted)
        self._set(None, 1)
        summary = summarise(clean, corrupted, metrics)
        self._write(clean, corrupted, summary)
        for metric in self._main(metrics):
            self.runner.logger.info('On corrupted images\n' + table(clean, corrupted, metric))
        return clean | {f'{key}/{name}': values[key] for name, values in summary.items() for key in ('mPC', 'rPC')}

    def _test(self, name: str | None, severity: int) -> dict[str, float]:
        self._set(name, severity)
        self.runner.logger.info('Test on clean images' if name is None else f'Test with {name}, severity {severity}')
        return {key: float(value) for key, value in super().run().items() if isinstance(value, Real)}

    def _set(self, name: str | None, severity: int) -> None:
        for transform in self.transforms:
            transform.set(name, severity)

    @staticmethod
    def _main(metrics: list[str]) -> list[str]:
        return [name for name in MAIN if name in metrics] or metrics[:1]

    def _write(self, clean: dict, corrupted: dict, summary: dict | None = None) -> None:
        if is_main_process():
            path = os.path.join(self.runner.work_dir, 'corruptions.json')
            with open(path + '.part', 'w', encoding='utf-8') as file:
                json.dump(dict(clean=clean, corrupted=corrupted, summary=summary), file, indent=1)
            os.replace(path + '.part', path)


def _settable(dataset: Any) -> Iterator[Any]:
    """Every ``CorruptImage`` of a data set, through wrappers of one or several."""
    for inner in [getattr(dataset, 'dataset', None), *(getattr(dataset, 'datasets', None) or ())]:
        if inner is not None:
            yield from _settable(inner)
    for pipeline in (getattr(dataset, 'pipeline', None), getattr(dataset, 'transform', None)):
        for transform in getattr(pipeline, 'transforms', None) or ():
            if hasattr(transform, 'corruption') and hasattr(transform, 'set'):
                yield transform
