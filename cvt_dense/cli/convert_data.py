"""Converts annotations to COCO files or label maps, repairs COCO files, and divides data into splits.

    python tools/convert_data.py my_yolo data/mine --from yolo --split 0.8,0.1,0.1
    python tools/convert_data.py my_labelme data/mine --from labelme --to masks --split 0.9,0.1 --group '(.*)_frame'
    python tools/convert_data.py data/faulty data/repaired --from coco

The tool lists what it changed or left out at the end, with the lines for the top of the template that trains on the
result. A mistake ends with one line on stderr and exit code 2.
"""
import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from ..console import printable
from ..recipes import command
from .command_line import report_errors
from .outputs import check_folder


def fractions(text: str) -> list[float]:
    """Parse '0.8,0.2' as [0.8, 0.2]."""
    parts = [float(part) for part in text.split(',')]
    if not 2 <= len(parts) <= 3 or min(parts) <= 0 or not abs(sum(parts) - 1) <= 1e-6:
        raise argparse.ArgumentTypeError(f'{text!r}: allowed are two or three positive numbers with the sum 1')
    return parts


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('src', type=Path, help='folder of images and annotations')
    parser.add_argument('dst', type=Path, help='folder to write, which must be new or empty')
    parser.add_argument('--from', dest='source', required=True, choices=('yolo', 'voc', 'labelme', 'coco'),
                        help='format to read')
    parser.add_argument('--to', dest='target', default='coco', choices=('coco', 'masks'),
                        help='format to write (default: %(default)s)')
    parser.add_argument('--masks', action='store_true', help='objects without a mask become crowds, which are neither '
                        'learnt nor scored, as Mask R-CNN needs a mask of each object')
    parser.add_argument('--split', type=fractions,
                        metavar='TRAIN,VAL[,TEST]', help='divide the images into these fractions, e.g. '
                        '0.8,0.1,0.1 (default: by data.yaml, ImageSets, or the names of files and folders)')
    parser.add_argument('--seed', type=int, default=0, help='seed of --split (default: %(default)s)')
    parser.add_argument('--group', metavar='PATTERN', help='regular expression; images whose paths match it with the '
                        'same text (or first group) stay in one split, e.g. the frames of one video')
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Convert the data set that the command line names."""
    args = build_parser().parse_args(argv)
    from ..annotations import convert
    with report_errors(ValueError, OSError, re.error):
        check_folder(args.dst, source=args.src)
        data = convert.read(args.src, args.source, args.masks)
        if args.split:
            convert.split(data, args.split, args.seed, args.group)
        convert.write(data, args.dst, args.target)
    splits = [name for name in convert.SPLITS if any(sample.split == name for sample in data.samples)]
    for name in splits:
        objects = [len(sample.objects) for sample in data.samples if sample.split == name]
        print(f'{name}: {sum(objects)} objects in images: {len(objects)}')
    for note in convert.notes(data):
        print(printable(f'note: {note}'))
    if 'val' not in splits:
        print('No image is for validation, which the templates need: convert again with --split 0.8,0.2.')
    masks = all(entry.get('segmentation') for sample in data.samples for entry in sample.objects)
    name = 'upernet' if args.target == 'masks' else 'maskrcnn' if masks else 'gfl'
    print(f'\nTo train, copy the template {name}_cvt13_custom.py, put these lines at its top, and run '
          f'{command("train")} COPY:\nclasses = {tuple(data.classes)!r}\ndata_root = {f"{args.dst}/"!r}')
    if 'test' in splits:
        places = ('labels/test', 'images/test') if args.target == 'masks' else ('annotations/test.json', 'test/')
        print('test_ann, test_images = {!r}, {!r}'.format(*places))
    if args.target == 'masks':
        print(f"img_suffix, seg_map_suffix = {data.samples[0].path.suffix!r}, '.png'")
