"""Convert the Hugging Face Hub's parquet files of labelled images to WebDataset shards."""
import json
from collections import Counter
from io import BytesIO
from pathlib import Path
from tarfile import TarFile, TarInfo

from PIL import Image

from ..images import is_image
from .convert import naming, split_name


def write_shards(src: Path, dst: Path, image: str = 'image', label: str = 'label') -> Counter[str]:
    """Write each parquet file as one tar file in ``dst/<split>``, and the names of the classes as ``dst/classes.txt``.

    The splits are those that the names of files and folders contain. Row 7 becomes ``00000007.jpg``, or as the image is
    stored, and ``00000007.cls``. A row group is in memory at a time; the Hub's have 100 images or 100 MB.

    Args:
        src: folder of the parquet files, at any depth.
        dst: folder to write.
        image: column of the images, with their ``bytes`` and ``path``.
        label: column of the classes by number; without one, as in test sets, the class is -1.

    Returns:
        The number of images by split.

    Raises:
        ValueError: there is no parquet file, one cannot be read or lacks a column, or the classes differ.
    """
    from pyarrow import parquet  # needs 0.3 s
    paths, classes = sorted(src.rglob('*.parquet')), {}
    for path in paths:
        with naming(path):
            schema = parquet.read_schema(path)
            if {image, label} - set(schema.names):
                raise ValueError(f'it has the columns {schema.names}, not {image!r} and {label!r}.')
            about = json.loads((schema.metadata or {}).get(b'huggingface', '{}'))
            names = about.get('info', {}).get('features', {}).get(label, {}).get('names', ())
            classes[tuple(names)] = path
    if len(classes) != 1:
        raise ValueError(f'{src} holds no parquet file of one data set: there are {len(classes)} lists of classes, '
                         f'such as in {list(map(str, classes.values()))[:5]}.')
    images: Counter[str] = Counter()
    for path in paths:
        place = path.relative_to(src).with_suffix('')
        folder = dst / split_name(place / '_')
        folder.mkdir(parents=True, exist_ok=True)
        shard = folder / f'{"-".join(place.parts)}.tar'
        with naming(path), parquet.ParquetFile(path) as table, TarFile(shard, 'w') as tar:
            batches = table.iter_batches(64, columns=[image, label])
            for number, row in enumerate(row for batch in batches for row in batch.to_pylist()):
                _add(tar, f'{number:08}{_suffix(row[image])}', row[image]['bytes'])
                _add(tar, f'{number:08}.cls', b'%d' % (-1 if row[label] is None else row[label]))
                images[folder.name] += 1
    (dst / 'classes.txt').write_text(''.join(f'{name}\n' for name in classes.popitem()[0]), encoding='utf-8')
    return images


def _suffix(image: dict[str, str | bytes]) -> str:
    name = image.get('path') or ''
    suffix = Path(name).suffix if is_image(name) else f'.{Image.open(BytesIO(image["bytes"])).format.lower()}'
    if not is_image(suffix):
        raise ValueError(f'images of the format {suffix[1:]} cannot be read from shards.')
    return suffix


def _add(tar: TarFile, name: str, content: bytes) -> None:
    member = TarInfo(name)
    member.size = len(content)
    tar.addfile(member, BytesIO(content))
