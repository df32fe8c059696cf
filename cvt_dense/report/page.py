"""Write an HTML page with tables and lists of pictures."""
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader
from PIL import Image
from tqdm import tqdm

LISTED = 60  # pictures that one list shows at most; the worst ones come first


@dataclass
class Cell:
    """A table's cell that leads to pictures.

    Args:
        value: number or text that the cell shows.
        images: numbers of the images that a click lists.
    """
    value: Any
    images: Sequence[int] = ()


@dataclass
class Report:
    """The content of a report, in order.

    Args:
        title: heading of the page.
        paths: paths of the tested images; an image's number is its place.
        draw: returns the picture of an image's number; it is called only if a list shows the image.
        notes: text below the picture of each image.
        summary: sentences below the heading.
    """
    title: str
    paths: Sequence[str]
    draw: Callable[[int], Image.Image]
    notes: Sequence[str] = ()
    summary: list[str] = field(default_factory=list)
    sections: list[dict[str, Any]] = field(default_factory=list)

    def add_section(self, title: str, text: str = '') -> None:
        """Begin a section; the tables and pictures that follow belong to it."""
        self.sections.append(dict(title=title, text=text, blocks=[]))

    def add_table(self, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Add a table to the last section.

        Args:
            header: names of the columns.
            rows: cells, which are texts, numbers or :class:`Cell`.
        """
        cells = [[_describe(cell) for cell in row] for row in rows]
        self.sections[-1]['blocks'].append(dict(kind='table', header=list(header), rows=cells))

    def add_confusion(self, matrix: np.ndarray, names: Sequence[str],
                      images: Callable[[int, int], Sequence[int]]) -> None:
        """Add a section with the pairs of classes that are most often taken for each other.

        Args:
            matrix: counts by annotated (rows) and predicted class (columns).
            names: names of the rows and columns.
            images: ``row, column -> numbers of the images`` of a pair.
        """
        errors = matrix * (1 - np.eye(len(names), dtype=matrix.dtype))
        pairs = [divmod(index, len(names)) for index in largest(errors.ravel())[:100]]
        self.add_section('Confusion', 'The 100 most frequent pairs, and their fraction of the annotated class (of the '
                         'background: of all false objects).')
        self.add_table(['annotated', 'predicted', 'number', 'fraction'], [
            [names[row], names[column], Cell(matrix[row, column], images(row, column)),
             matrix[row, column] / matrix[row].sum()] for row, column in pairs])

    def add_pictures(self, images: Sequence[int], caption: str) -> None:
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
        images = {number: dict(name=str(self.paths[number]), note=self.notes[number], file=f'images/{number:06}.jpg')
                  for number in listed}
        for number, image in tqdm(images.items(), desc='pictures', leave=False, disable=None):
            self.draw(number).save(folder / image['file'], quality=80)
        content = dict(title=self.title, summary=self.summary, sections=self.sections, images=images)
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
    text = '–' if value is None else f'{value:.3f}' if isinstance(value, float) else str(value)
    return dict(value=value, text=text, images=[int(number) for number in cell.images][:LISTED])


def largest(values: np.ndarray) -> np.ndarray:
    """Return the places of the values above 0, the largest first."""
    order = np.argsort(-values, kind='stable')
    return order[values[order] > 0]
