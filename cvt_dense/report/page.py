"""One HTML page with tables, figures and lists of pictures."""
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from matplotlib.figure import Figure
from PIL import Image

LISTED = 60  # pictures that one list shows at most; the worst ones come first
SIDE = 320  # longest side in pixels of one half of a picture


@dataclass
class Cell:
    """A table's cell that leads to pictures.

    Args:
        value: number or text that the cell shows.
        images: numbers of the images that a click lists, as :meth:`Report.add_image` returned them.
        shade: 0 to 1, how dark the background is, as in a confusion matrix.
    """
    value: Any
    images: Sequence[int] = ()
    shade: float = 0.


@dataclass
class Report:
    """The content of a report, in order.

    Args:
        title: heading of the page.
        summary: sentences below the heading.
    """
    title: str
    summary: list[str] = field(default_factory=list)
    sections: list[dict[str, Any]] = field(default_factory=list)
    images: list[dict[str, Any]] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)

    def add_image(self, name: str, note: str = '') -> int:
        """Add an image that lists may show and return its number; :meth:`write` asks for the picture by that number."""
        self.images.append(dict(name=name, note=note))
        return len(self.images) - 1

    def add_section(self, title: str, text: str = '') -> None:
        """Begin a section; the tables and figures that follow belong to it."""
        self.sections.append(dict(title=title, text=text, blocks=[]))

    def add_table(self, header: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = '') -> None:
        """Add a table whose cells are texts, numbers or :class:`Cell`."""
        cells = [[_describe(cell) for cell in row] for row in rows]
        self.sections[-1]['blocks'].append(dict(kind='table', header=list(header), rows=cells, caption=caption))

    def add_pictures(self, images: Sequence[int], caption: str = '') -> None:
        """Add a list of pictures that is visible from the start."""
        shown = [int(number) for number in images][:LISTED]
        self.sections[-1]['blocks'].append(dict(kind='pictures', images=shown, caption=caption))

    def add_figure(self, figure: Figure, caption: str = '') -> None:
        """Add a figure of matplotlib."""
        self.figures.append(figure)
        self.sections[-1]['blocks'].append(
            dict(kind='figure', file=f'figures/{len(self.figures):02}.png', caption=caption))

    def listed(self) -> list[int]:
        """Return the numbers of the images that some list shows."""
        found: set[int] = set()
        for section in self.sections:
            for block in section['blocks']:
                found.update(block.get('images', ()))
                for row in block.get('rows', ()):
                    for cell in row:
                        found.update(cell['images'])
        return sorted(found)

    def write(self, folder: str | Path, draw: Any) -> Path:
        """Write the report; the folder gets its name when everything is in it.

        Args:
            folder: must not exist.
            draw: ``number of an image -> PIL image``, called once for every listed image.

        Returns:
            Path of ``report.html``.
        """
        folder = Path(folder)
        partial = folder.with_name(folder.name + '.partial')
        shutil.rmtree(partial, ignore_errors=True)
        try:
            (partial / 'images').mkdir(parents=True)
            (partial / 'figures').mkdir()
            for number, figure in enumerate(self.figures, 1):
                figure.savefig(partial / f'figures/{number:02}.png', dpi=110, bbox_inches='tight')
            for number in self.listed():
                file = f'images/{number:06}.jpg'
                draw(number).convert('RGB').save(partial / file, quality=80)
                self.images[number]['file'] = file
            content = dict(title=self.title, summary=self.summary, sections=self.sections,
                           images={number: self.images[number] for number in self.listed()})
            (partial / 'report.json').write_text(json.dumps(content, indent=1, allow_nan=False))
            pages = Environment(loader=PackageLoader('cvt_dense.report', '.'), autoescape=True)
            page = pages.get_template('page.html').render(content)
            (partial / 'report.html').write_text(page, encoding='utf-8')
            partial.rename(folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        return folder / 'report.html'


def _describe(cell: Any) -> dict[str, Any]:
    """Return a cell as JSON can store it, with the text that the page shows."""
    if not isinstance(cell, Cell):
        cell = Cell(cell)
    value = cell.value
    if hasattr(value, 'item'):
        value = value.item()
    if isinstance(value, float):
        value = value if abs(value) < float('inf') else None  # NaN, where nothing was measured
    text = '–' if value is None else f'{value:.3f}' if isinstance(value, float) else str(value)
    return dict(value=value, text=text, images=[int(number) for number in cell.images][:LISTED],
                shade=round(float(cell.shade), 3))


def side_by_side(*pictures: Image.Image) -> Image.Image:
    """Return pictures beside each other, each at most ``SIDE`` pixels long."""
    resized = []
    for picture in pictures:
        picture = picture.convert('RGB')
        picture.thumbnail((SIDE, SIDE))
        resized.append(picture)
    canvas = Image.new('RGB', (sum(p.width for p in resized) + 4 * (len(resized) - 1), max(p.height for p in resized)),
                       'white')
    left = 0
    for picture in resized:
        canvas.paste(picture, (left, 0))
        left += picture.width + 4
    return canvas
