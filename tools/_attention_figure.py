"""Draw the picture of tools/attention.py for an image, and the curves over depth."""
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

PANEL = 3.4  # inches


class Panel(NamedTuple):
    """An image with a map over it.

    Attributes:
        title: above it.
        heat: (H, W), any range; None: the image alone.
        extent: left, right, bottom, top of ``heat`` in pixels of the image.
        points: (x, y) to mark.
    """
    title: str
    heat: np.ndarray | None = None
    extent: tuple[float, float, float, float] | None = None
    points: Sequence[tuple[float, float]] = ()


def extent_of(places: np.ndarray, shape: tuple[int, int]) -> tuple[float, float, float, float]:
    """Return where a map of ``shape`` lies whose values belong to ``places`` (H * W, 2), (x, y) in pixels."""
    (left, top), (right, bottom) = places[0], places[-1]
    half = [(last - first) / max(1, number - 1) / 2 for first, last, number in (
        (left, right, shape[1]), (top, bottom, shape[0]))]
    half = [side or max(half) or 8. for side in half]  # a single row or column is as wide as the other
    return left - half[0], right + half[0], bottom + half[1], top - half[1]


def draw(image: np.ndarray, rows: Sequence[Sequence[Panel]], blocks: dict[str, dict[str, Any]], title: str,
         out: Path) -> None:
    """Draw the picture and save it.

    Args:
        image: (H, W, 3), uint8, as the network gets it.
        rows: rows of panels, from top to bottom.
        blocks: measures by block: ``distance_px`` and ``entropy``, each a list with one value per head.
    """
    columns = max(map(len, rows))
    height = PANEL * min(2., max(0.5, image.shape[0] / image.shape[1]))
    figure = Figure(figsize=(PANEL * columns, (height + 0.4) * len(rows) + 3.6), layout='constrained')
    FigureCanvasAgg(figure)
    top, bottom = figure.subfigures(2, 1, height_ratios=[(height + 0.4) * len(rows), 3.6])
    top.suptitle(title)
    for axes, row in zip(top.subplots(len(rows), columns, squeeze=False), rows):
        for axis in axes:
            axis.axis('off')
        for axis, panel in zip(axes, row):
            _draw_panel(axis, image, panel)
    for axis, measure, label in zip(bottom.subplots(1, 2), ('distance_px', 'entropy'), (
            'mean attention distance, pixels', 'entropy / log(keys)')):
        _draw_depth(axis, blocks, measure, label)
    figure.savefig(out, dpi=100)


def _draw_panel(axis: Any, image: np.ndarray, panel: Panel) -> None:
    height, width = image.shape[:2]
    grey = image if panel.heat is None else image.mean(axis=2).repeat(3).reshape(image.shape).astype(np.uint8)
    axis.imshow(grey, extent=(-0.5, width - 0.5, height - 0.5, -0.5))
    if panel.heat is not None:
        axis.imshow(panel.heat, extent=panel.extent, cmap='inferno', interpolation='bilinear', alpha=0.65)
    for x, y in panel.points:
        axis.plot(x, y, 'o', markersize=8, markerfacecolor='cyan', markeredgecolor='black')
    axis.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    axis.set_title(panel.title, fontsize=10)


def _draw_depth(axis: Any, blocks: dict[str, dict[str, Any]], measure: str, label: str) -> None:
    """Draw one dot per head over the blocks, each stage in its colour, as in the figure of the ViT paper."""
    stages = list(dict.fromkeys(name.split('.')[0] for name in blocks))
    for stage in stages:
        points = [(number, value) for number, (name, values) in enumerate(blocks.items(), 1)
                  if name.split('.')[0] == stage for value in values[measure]]
        axis.scatter(*zip(*points), color=f'C{stages.index(stage)}', s=24, alpha=0.8,
                     label=stage.replace('stage', 'stage '))
    axis.set(xlabel='block', ylabel=label)
    highest = 1. if measure == 'entropy' else max(value for block in blocks.values() for value in block[measure])
    axis.set_ylim(0, 1.05 * highest)
    axis.set_xticks(range(1, len(blocks) + 1))
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
