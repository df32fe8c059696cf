"""``python -m pytest tests/proof`` proves equality and prints every maximum difference."""

import pytest
import torch

_ROWS = []


class MaxDifferences:

    @staticmethod
    def check(name: str, actual: torch.Tensor, expected: torch.Tensor, tolerance: float | None) -> float:
        """Asserts the same shape and ``|actual - expected| <= tolerance`` everywhere; None only measures."""
        assert actual.shape == expected.shape and torch.isfinite(actual).all(), name
        difference = (actual.double() - expected.double()).abs().max().item()
        _ROWS.append((name, difference, tolerance))
        assert tolerance is None or difference <= tolerance, f'{name}: differs by {difference}, allowed is {tolerance}'
        return difference


@pytest.fixture(scope='session')
def max_differences() -> MaxDifferences:
    """Compares tensors, and has what it saw printed at the end of the run."""
    return MaxDifferences()


def pytest_terminal_summary(terminalreporter) -> None:
    if _ROWS:
        terminalreporter.section('maximum absolute differences')
        for name, difference, tolerance in _ROWS:
            allowed = 'measured only' if tolerance is None else f'allowed {tolerance:.0e}'
            terminalreporter.write_line(f'{difference:.2e}  ({allowed})  {name}')
