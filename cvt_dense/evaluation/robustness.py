"""Measure a network's accuracy on corrupted images."""
import json
import os
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any

from mmengine.dist import is_main_process
from mmengine.runner import TestLoop
from prettytable import PrettyTable

from ..curves import MAIN
from ..errors import UserError
from ..fileio import write_atomically
from ..registry import LOOPS

Metrics = dict[str, float]


def mean_over_corruptions(corrupted: dict[str, dict[int, Metrics]], metric: str) -> float:
    """Return a metric's mean over corruptions of the mean over severities: mPC of Michaelis et al. 2019, section 3."""
    means = [sum(values[metric] for values in by_severity.values()) / len(by_severity)
             for by_severity in corrupted.values()]
    return sum(means) / len(means)


def summarise(clean: Metrics, corrupted: dict[str, dict[int, Metrics]]) -> dict[str, Metrics]:
    """Return ``P`` (clean), ``mPC`` and ``rPC`` = mPC / P (not a number if P is 0) of each metric in ``clean``."""
    means = {metric: mean_over_corruptions(corrupted, metric) for metric in clean}
    return {metric: dict(P=value, mPC=means[metric], rPC=means[metric] / value if value else float('nan'))
            for metric, value in clean.items()}


def table(clean: Metrics, corrupted: dict[str, dict[int, Metrics]], metric: str) -> str:
    """Return a metric for each corruption and severity as a text table.

    Args:
        clean: metrics of the images as they are.
        corrupted: metrics by name of the corruption and severity.
        metric: a key of the metrics.
    """
    severities = list(next(iter(corrupted.values())))
    rows = PrettyTable([metric, *(f'severity {severity}' for severity in severities), 'mean'], align='r')
    rows.align[metric] = 'l'
    rows.add_row(['clean', *[''] * len(severities), f'{clean[metric]:.4g}'], divider=True)
    for name, by_severity in corrupted.items():
        mean = mean_over_corruptions({name: by_severity}, metric)
        rows.add_row([name, *(f'{values[metric]:.4g}' for values in by_severity.values()), f'{mean:.4g}'])
    summary = summarise(clean, corrupted)[metric]
    rows.add_row(['mean (mPC)', *[''] * len(severities), f'{summary["mPC"]:.4g}'])
    rows.add_row(['fraction of clean (rPC)', *[''] * len(severities), f'{100 * summary["rPC"]:.1f} %'])
    return str(rows)


@LOOPS.register_module()
class RobustnessTestLoop(TestLoop):
    """Tests on clean images, then with each corruption and severity.

    The data set has a ``cvt_dense.CorruptImage`` (``tools/test.py --corrupt`` puts it there), whose corruption this
    loop sets; its loader must not have persistent workers. ``corruptions.json`` in the work dir is written
    after every pass.

    Args:
        corruptions: names, see ``cvt_dense.datasets.corruption``.
        severities: numbers from 1 to 5.
        args, kwargs: arguments of MMEngine's ``TestLoop``.

    Raises:
        ValueError: the data set has no such transform.
    """

    def __init__(self, *args: Any, corruptions: Sequence[str], severities: Sequence[int], **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.corruptions = list(corruptions)
        self.severities = list(severities)
        self.transforms = list(_corrupting_transforms(self.dataloader.dataset))
        if not self.transforms:
            raise ValueError('the test data set has no cvt_dense.CorruptImage, which corrupts its images.')

    def run(self) -> Metrics:
        """Run all passes and return the clean metrics, with ``mPC/<metric>`` and ``rPC/<metric>`` of each."""
        self._set(self.corruptions[0], self.severities[0])
        try:
            self.dataloader.dataset[0]  # an image that cannot be corrupted is found before the clean test
        except ValueError as error:
            raise UserError(f'--corrupt: {error}') from error
        clean = self._test(None, 1)
        if not clean:
            raise UserError('--corrupt: the test on clean images gave no metric to compare with.')
        corrupted: dict[str, dict[int, Metrics]] = {}
        for name in self.corruptions:
            corrupted[name] = {}
            for severity in self.severities:
                found = self._test(name, severity)
                if clean.keys() - found.keys():  # COCO's metric gives none where nothing was detected
                    self.runner.logger.warning(f'{name}, severity {severity}: missing metrics count as 0.')
                corrupted[name][severity] = {metric: found.get(metric, 0.) for metric in clean}
                self._write(dict(clean=clean, corrupted=corrupted, summary=None))
        self._set(None, 1)
        summary = summarise(clean, corrupted)
        self._write(dict(clean=clean, corrupted=corrupted, summary=summary))
        for metric in [name for name in MAIN if name in clean] or list(clean)[:1]:
            self.runner.logger.info('On corrupted images\n' + table(clean, corrupted, metric))
        return clean | {f'{key}/{name}': values[key] for name, values in summary.items() for key in ('mPC', 'rPC')}

    def _test(self, name: str | None, severity: int) -> Metrics:
        self._set(name, severity)
        self.runner.logger.info('Test on clean images' if name is None else f'Test with {name}, severity {severity}')
        return {key: float(value) for key, value in super().run().items() if isinstance(value, Real)}

    def _set(self, name: str | None, severity: int) -> None:
        for transform in self.transforms:
            transform.set(name, severity)

    def _write(self, content: dict[str, Any]) -> None:
        if is_main_process():
            write_atomically(os.path.join(self.runner.work_dir, 'corruptions.json'), json.dumps(content, indent=1))


def _corrupting_transforms(dataset: Any) -> Iterator[Any]:
    """Yield every ``CorruptImage`` of a data set, through wrappers of one or several."""
    for inner in [getattr(dataset, 'dataset', None), *(getattr(dataset, 'datasets', None) or ())]:
        if inner is not None:
            yield from _corrupting_transforms(inner)
    for transform in getattr(getattr(dataset, 'pipeline', None), 'transforms', ()):
        if hasattr(transform, 'corruption'):
            yield transform
