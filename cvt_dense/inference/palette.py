"""Choose the colours of classes whose data set has none, and the font of their names."""
from collections.abc import Sequence

import numpy as np

BACKGROUND = (40, 40, 40)  # of a class of that name
FIRST = (230, 60, 60)
# Colours as seen without the cones for green, by linear RGB (Machado et al. 2009, doi 10.1109/TVCG.2009.113).
DEUTERANOPIA = np.array([(.367322, .860646, -.227968), (.280085, .672501, .047413), (-.011820, .042940, .968881)])
FONTS = ('Noto Sans CJK SC', 'Noto Sans CJK JP', 'Noto Sans SC', 'WenQuanYi Zen Hei', 'Droid Sans Fallback',
         'PingFang SC', 'Hiragino Sans', 'Microsoft YaHei', 'SimHei', 'Arial Unicode MS')  # Latin and Chinese


def choose_palette(classes: Sequence[str]) -> list[tuple[int, int, int]]:
    """Return an RGB colour (0 to 255) for each class, the same wherever the same classes are drawn.

    Each is the one of 4096 colours, neither dark, pale nor grey, that lies farthest in CIELAB from all before it, both
    as most people see it and without the cones for green. More classes do not change the colours of the first ones. A
    class named 'background' is dark grey.
    """
    import cv2
    steps = np.arange(0, 256, 17, dtype=np.float32)
    rgb = np.stack(np.meshgrid(steps, steps, steps, indexing='ij'), -1).reshape(-1, 3)
    lab = cv2.cvtColor(rgb[None] / 255, cv2.COLOR_RGB2LAB)[0]
    chroma = np.hypot(lab[:, 1], lab[:, 2])
    usable = (40 < lab[:, 0]) & (lab[:, 0] < 92) & (30 < chroma) & (chroma < 100)
    rgb, lab = rgb[usable], lab[usable]
    linear = np.where(rgb <= 10, rgb / 3294.6, ((rgb / 255 + 0.055) / 1.055)**2.4)  # sRGB's curve
    without_green = cv2.cvtColor((linear @ DEUTERANOPIA.T).clip(0, 1)[None].astype(np.float32), cv2.COLOR_LRGB2LAB)[0]
    distance = np.full(len(rgb), np.inf)  # of each colour to the nearest one that was chosen
    chosen, palette = int(np.abs(rgb - FIRST).sum(1).argmin()), []
    for name in classes:
        if name == 'background':
            palette.append(BACKGROUND)
            continue
        palette.append(tuple(map(int, rgb[chosen])))
        for seen in (lab, without_green):
            distance = np.minimum(distance, np.linalg.norm(seen - seen[chosen], axis=1))
        chosen = int(distance.argmax())
    return palette


def find_font() -> str:
    """Return the file of this machine's first font of :data:`FONTS`."""
    from matplotlib import font_manager
    installed = {font.name: font.fname for font in font_manager.fontManager.ttflist}
    return next((installed[name] for name in FONTS if name in installed), font_manager.findfont('DejaVu Sans'))
