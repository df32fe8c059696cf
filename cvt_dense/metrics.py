"""The metrics of an evaluation: which of them counts, under which name, and whether more or less of it is better."""
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .errors import UserError, listed

# The usual metrics of each task, which summaries, tables and pictures show; evaluators put a prefix before them.
MAIN = re.compile('(.*/)?(accuracy/top1|mIoU|PQ|((bbox|segm)_)?m?AP)')
RAW, LOSSES = 'raw/', 'val/'  # before the names of what RawWeightsHook and ValLossHook add to an evaluation
NOT_METRICS = ('step', 'time', 'data_time')
LESS = re.compile(r'loss|error|(?i:(?<![a-z])(mae|mse|rmse|rmse_log|abs_rel|sq_rel|silog|log10|fid|mmr|ece|nll)$)')
GREATER = re.compile('acc|Acc|top|AR|AP|IoU|Dice|auc|AUC|[Pp]recision|[Rr]ecall|[Ss]core|F1|PQ')


def rule_of(name: str) -> str | None:
    """Return 'less' or 'greater', whichever of a metric is better, by its name; None if the name does not tell."""
    return 'less' if LESS.search(name) else 'greater' if GREATER.search(name) else None


def evaluated(names: Iterable[str]) -> list[str]:
    """Return the names of the evaluators' metrics, without what hooks add to them."""
    return [name for name in dict.fromkeys(names) if not name.startswith((RAW, LOSSES)) and name not in NOT_METRICS]


def main_metrics(names: Iterable[str]) -> list[str]:
    """Return those of an evaluation's metrics that are usual for a task, of each data set; otherwise its first one."""
    names = evaluated(names)
    return [name for name in names if MAIN.fullmatch(name)] or names[:1]


def best_file(folder: str | Path, name: str) -> tuple[Path, int] | None:
    """Return the best checkpoint by a metric in a run's folder, and its epoch or iteration; None if there is none."""
    pattern = re.compile(rf'best_{re.escape(name.replace("/", "_"))}_(?:epoch|iter)_(\d+)\.pth')
    matches = [(path, pattern.fullmatch(path.name)) for path in Path(folder).glob('best_*.pth')]
    found = [(path, int(match[1])) for path, match in matches if match]
    # A run that was resumed from an earlier checkpoint may have left the best file of the later ones.
    return max(found, key=lambda file: file[0].stat().st_mtime, default=None)


def best_checkpoint(folder: str | Path) -> Path | None:
    """Return the newest best checkpoint of a run's folder, by whichever metric; None if there is none."""
    return max(Path(folder).glob('best_*.pth'), key=lambda path: path.stat().st_mtime, default=None)


class Metric:
    """The metric that a hook's setting names.

    Args:
        setting: name of the setting, for errors.
        name: name of the metric as evaluations have it; 'auto': the first of :func:`main_metrics`.
        rule: 'less' or 'greater', whichever is better; None: see :func:`rule_of`.

    Raises:
        UserError: neither ``rule`` nor the name tells which values are better.
    """

    def __init__(self, setting: str, name: str, rule: str | None = None):
        self.setting, self.name, self.rule = setting, name, rule
        if name != 'auto':
            self._choose_rule()

    def _choose_rule(self) -> None:
        self.rule = self.rule or rule_of(self.name)
        if self.rule not in ('less', 'greater'):
            raise UserError(f"{self.setting}={self.name!r} with rule={self.rule!r}: rule must be 'less' or 'greater', "
                            'whichever value of this metric is better.')

    def check(self, evaluator: Any) -> None:
        """Check before a run that MMEngine's ``evaluator``, or None, has a metric with the prefix of the name.

        Raises:
            UserError: it has none.
        """
        prefixes = [f'{metric.prefix}/' for metric in getattr(evaluator, 'metrics', ())]
        if not any(f'/{prefix}' in f'/{self.name}' for prefix in [*prefixes, RAW, LOSSES]) and prefixes and (
                'None/' not in prefixes and self.name != 'auto'):
            raise UserError(f'{self.setting}={self.name!r}: names of metrics begin with {listed(prefixes)} here.')

    @property
    def sign(self) -> int:
        """Return the factor by which a value becomes a score, of which more is better."""
        return -1 if self.rule == 'less' else 1

    def score(self, metrics: dict[str, float | None]) -> float | None:
        """Return the score of an evaluation, :attr:`sign` times the metric's value.

        It is None if the metric's evaluator has no result. MMDetection's has none if no object is detected.

        Raises:
            UserError: that evaluator has results, but none of this name.
        """
        names = evaluated(metrics)
        if self.name == 'auto' and names:
            self.name = main_metrics(names)[0]
            self._choose_rule()
        if self.name not in metrics:
            prefix = self.name.rpartition('/')[0]
            if names and (not prefix or any(name.rpartition('/')[0] == prefix for name in names)):
                raise UserError(f'{self.setting}={self.name!r}: allowed are the metrics that were evaluated, {names}.')
            return None
        return float('nan') if metrics[self.name] is None else self.sign * metrics[self.name]
