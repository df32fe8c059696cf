"""Write an HTML page with tables and lists of pictures."""
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader
from PIL import Image, ImageOps
from tqdm import tqdm

LISTED = 60  # pictures that one list shows at most; the worst ones come first
SIDE = 320  # longest side in pixels of one half of a picture
LARGEST_MATRIX = 100  # classes; a larger confusion matrix is not shown as a whole


@dataclass
class Cell:
    """A table's cell that leads to pictures.

    Args:
        value: number or text that the cell shows.
        images: numbers of the images that a click lists, as :meth:`Report.add_image` returned them.
        shade: 0 to 1, how dark the background is, as in a confusion matrix.
        digits: decimals of a number that is not whole.
    """
    value: Any
    images: Sequence[int] = ()
    shade: float = 0.
    digits: int = 3


@dataclass
class Report:
    """The content of a report, in order.

    Args:
        title: heading of the page.
        summary: sentences below the heading.
        legend: colour (red, green, blue) of each class in the pictures.
    """
    title: str
    summary: list[str] = field(default_factory=list)
    legend: dict[str, Sequence[int]] = field(default_factory=dict)
    sections: list[dict[str, Any]] = field(default_factory=list)
    images: list[dict[str, Any]] = field(default_factory=list)
    pictures: list[Callable[[], Image.Image]] = field(default_factory=list)

    def add_image(self, path: str, draw: Callable[[], Image.Image], note: str = '') -> int:
        """Add an image that lists can show, and return its number.

        Args:
            path: path of the image file.
            draw: returns the picture; it is called only if a list shows the image.
            note: text below the picture.
        """
        self.images.append(dict(path=str(path), note=note))
        self.pictures.append(draw)
        return len(self.images) - 1

    def add_section(self, title: str, text: str = '') -> None:
        """Begin a section; the tables and pictures that follow belong to it."""
        self.sections.append(dict(title=title, text=text, blocks=[]))

    def add_table(self, header: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = '') -> None:
        """Add a table to the last section.

        Args:
            header: names of the columns.
            rows: cells, which are texts, numbers or :class:`Cell`.
            caption: text above the table.
        """
        cells = [[_describe(cell) for cell in row] for row in rows]
        self.sections[-1]['blocks'].append(dict(kind='table', header=list(header), rows=cells, caption=caption))

    def add_confusion(self, matrix: np.ndarray, names: Sequence[str], images: Callable[[int, int], Sequence[int]],
                      percent: bool = False) -> None:
        """Add a confusion matrix, or its largest errors if it has more than ``LARGEST_MATRIX`` names.

        Args:
            matrix: counts by annotated (rows) and predicted class (columns).
            names: names of the rows and columns.
            images: ``row, column -> numbers of the images`` that the cell leads to.
            percent: show each count in percent of its row.
        """
        share = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
        values = 100 * share if percent else matrix

        def cell(row: int, column: int) -> Cell:
            return Cell(values[row, column], images(row, column), share[row, column])

        every = range(len(names))
        if len(names) <= LARGEST_MATRIX:
            self.add_table(['', *names], [[names[row], *(cell(row, column) for column in every)] for row in every])
            return
        errors = matrix * (1 - np.eye(len(names), dtype=matrix.dtype))
        pairs = [divmod(index, len(names)) for index in largest(errors.ravel())[:LARGEST_MATRIX]]
        self.add_table(['annotated', 'predicted', '%' if percent else 'number'], [
            [names[row], names[column], cell(row, column)] for row, column in pairs], 'The largest ones.')

    def add_pictures(self, images: Sequence[int], caption: str = '') -> None:
        """Add a list of pictures that is visible from the start."""
        shown = [int(number) for number in images][:LISTED]
        self.sections[-1]['blocks'].append(dict(kind='pictures', images=shown, caption=caption))

    def write(self, folder: str | Path) -> Path:
        """Write the report, in the place of an older report, and return the path of ``report.html``."""
        folder = Path(folder)
        shutil.rmtree(folder / 'images', ignore_errors=True)
        (folder / 'images').mkdir(parents=True)
        blocks = [block for section in self.sections for block in section['blocks']]
        cells = [cell for block in blocks for row in block.get('rows', ()) for cell in row]
        listed = sorted({number for holder in (*blocks, *cells) for number in holder.get('images', ())})
        paths = [os.path.abspath(self.images[number]['path']) for number in listed]
        root = os.path.commonpath(map(os.path.dirname, paths)) if paths else ''
        for number, path in zip(tqdm(listed, desc='pictures', leave=False, disable=None), paths):
            file = f'images/{number:06}.jpg'
            self.pictures[number]().convert('RGB').save(folder / file, quality=80)
            self.images[number].update(file=file, name=os.path.relpath(path, root))
        content = dict(title=self.title, summary=self.summary, legend=self.legend, root=root,
                       sections=self.sections, images={number: self.images[number] for number in listed})
        (folder / 'report.json').write_text(json.dumps(content, indent=1, allow_nan=False))
        pages = Environment(loader=PackageLoader('cvt_dense.report', '.'), autoescape=True)
        # Python represents bytes of file names that are not UTF-8 by characters that have no encoding.
        (folder / 'report.html').write_text(
            pages.get_template('page.html').render(content), encoding='utf-8', errors='backslashreplace')
        return folder / 'report.html'


def _describe(cell: Any) -> dict[str, Any]:
    """Return a cell as JSON can store it, with the text that the page shows."""
    cell = cell if isinstance(cell, Cell) else Cell(cell)
    value = cell.value.item() if hasattr(cell.value, 'item') else cell.value
    if isinstance(value, float) and not np.isfinite(value):
        value = None  # nothing was measured
    text = '–' if value is None else f'{value:.{cell.digits}f}' if isinstance(value, float) else str(value)
    return dict(value=value, text=text, images=[int(number) for number in cell.images][:LISTED],
                shade=round(float(cell.shade), 3))


def largest(values: np.ndarray) -> np.ndarray:
    """Return the places of the values above 0, the largest first."""
    order = np.argsort(-values, kind='stable')
    return order[values[order] > 0]


def side_by_side(*pictures: Image.Image) -> Image.Image:
    """Return pictures beside each other, each as large as fits into a square of ``SIDE`` pixels."""
    resized = [ImageOps.contain(picture.convert('RGB'), (SIDE, SIDE)) for picture in pictures]
    lefts = np.cumsum([0, *(picture.width + 4 for picture in resized)]).tolist()
    canvas = Image.new('RGB', (lefts[-1] - 4, max(picture.height for picture in resized)), 'white')
    for picture, left in zip(resized, lefts):
        canvas.paste(picture, (left, 0))
    return canvas
