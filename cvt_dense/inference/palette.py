"""Choose the colours of classes whose data set has none, and the font of their names."""
from collections.abc import Sequence

BACKGROUND = (40, 40, 40)  # of a class of that name
FONTS = ('Noto Sans CJK SC', 'Noto Sans CJK JP', 'Noto Sans SC', 'WenQuanYi Zen Hei', 'Droid Sans Fallback',
         'PingFang SC', 'Hiragino Sans', 'Microsoft YaHei', 'SimHei', 'Arial Unicode MS')  # Latin and Chinese


def choose_palette(classes: Sequence[str]) -> list[tuple[int, int, int]]:
    """Return an RGB colour (0 to 255) for each class: those of matplotlib's 'tab20' in turn, the strong ones first.

    A class named 'background' is dark grey.
    """
    from matplotlib import colormaps
    colors = [tuple(round(255 * value) for value in color) for color in colormaps['tab20'].colors]
    colors = colors[::2] + colors[1::2]
    return [BACKGROUND if name == 'background' else colors[i % len(colors)] for i, name in enumerate(classes)]


def find_font() -> str:
    """Return the file of this machine's first font of :data:`FONTS`."""
    from matplotlib import font_manager
    return font_manager.findfont(font_manager.FontProperties(family=[*FONTS, 'DejaVu Sans']))
