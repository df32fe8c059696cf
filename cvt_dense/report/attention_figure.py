"""Draw the picture of tools/attention.py for an image."""
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
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


def draw_panels(image: np.ndarray, rows: Sequence[Sequence[Panel]], title: str, out: Path) -> None:
    """Draw the picture and save it.

    Args:
        image: (H, W, 3), uint8, as the network gets it.
        rows: rows of panels, from top to bottom.
        title: above all.
        out: file to write.
    """
    columns = max(2, *map(len, rows))
    height = PANEL * min(2., max(0.5, image.shape[0] / image.shape[1])) + 0.4
    figure = Figure(figsize=(PANEL * columns, height * len(rows)), layout='constrained')
    figure.suptitle(title)
    for axes, row in zip(figure.subplots(len(rows), columns, squeeze=False), rows):
        for axis in axes:
            axis.axis('off')
        for axis, panel in zip(axes, row):
            _draw_panel(axis, image, panel)
    figure.savefig(out, dpi=100)


def _draw_panel(axis: Any, image: np.ndarray, panel: Panel) -> None:
    height, width = image.shape[:2]
    whole = -0.5, width - 0.5, height - 0.5, -0.5
    if panel.heat is None:
        axis.imshow(image, extent=whole)
    else:
        axis.imshow(image.mean(axis=2), cmap='gray', vmin=0, vmax=255, extent=whole)
        left, right, bottom, top = panel.extent
        step = (right - left) / panel.heat.shape[1]  # beyond the outermost keys the nearest ones are shown
        axis.imshow(np.pad(panel.heat, 1, 'edge'), extent=(left - step, right + step, bottom + step, top - step),
                    cmap='inferno', interpolation='bilinear', alpha=0.65)
    for x, y in panel.points:
        axis.plot(x, y, 'o', markersize=8, markerfacecolor='cyan', markeredgecolor='black')
    axis.set(xlim=whole[:2], ylim=whole[2:])
    axis.set_title(panel.title, fontsize=10)
