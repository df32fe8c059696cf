"""Draws the predictions of a checkpoint: the best classes, boxes and masks, or a label map over the image.

    python tools/predict.py configs/maskrcnn_cvt21_coco.py work_dirs/maskrcnn_cvt21_coco/epoch_12.pth a.jpg

Writes a picture and prints one line for each image. Small images are drawn enlarged. With --slice large images are
predicted in slices, and label maps are written in full size. An image that cannot be read or predicted is named, the
others are drawn, and the exit code is 1. cvt_dense.inference has the same predictions for programs, such as those that
draw videos or write annotations; tools/diagnose.py draws annotations beside predictions.
"""
import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..console import printable
from ..errors import UserError, listed
from ..images import SUFFIXES, files_below, is_image
from ..launch.runs import TestRun
from . import command_line
from .outputs import add_force_argument, check_outputs

if TYPE_CHECKING:
    from ..inference import Model

JPEG = '.jpg', '.jpeg', '.jfif'


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], usage='%(prog)s '
                                     '{CONFIG CHECKPOINT | PUBLISHED_MODEL} IMAGE [IMAGE ...] [--FLAG ...]')
    parser.add_argument('config', help='config file (a published model takes the place of config and checkpoint)')
    parser.add_argument('checkpoint', help='checkpoint file, or whole model of tools/export.py (.onnx, .xml, .pt2)')
    parser.add_argument('images', nargs='+', metavar='IMAGE', help='image file, or folder of images at any depth')
    parser.add_argument('--out-dir', type=Path, default='predictions', metavar='DIR',
                        help='folder of the pictures (default: %(default)s)')
    add_force_argument(parser)
    parser.add_argument('--score-thr', type=float, default=0.3, metavar='SCORE',
                        help='detections below this score are not drawn (default: %(default)s)')
    command_line.add_settings(parser, TestRun, 'slice', 'overlap')
    parser.add_argument('--device', help='where to run (default: cuda if there is a GPU, otherwise cpu)')
    command_line.add_settings(parser, TestRun, 'options', 'runtime', 'amp')
    return parser


def find_images(names: Sequence[str]) -> list[Path]:
    """Return files in the order given, and the images of folders, at any depth; arrays if there are no images.

    Raises:
        UserError: a path does not exist, or a folder holds no image.
    """
    images = []
    for path in map(Path, names):
        if path.is_dir():
            files = sorted(map(Path, files_below(path)))
            # Arrays beside images have another meaning.
            inside = list(filter(is_image, files)) or [file for file in files if file.suffix.lower() == '.npy']
            if not inside:
                raise UserError(f'The folder {path} holds no image ({", ".join(SUFFIXES)}).')
            images += inside
        elif path.is_file():
            images.append(path)
        else:
            raise UserError(f'The image {path} does not exist. Give files or folders of images.')
    return images


def name_pictures(images: Sequence[Path], out_dir: Path) -> list[Path]:
    """Return a file in ``out_dir`` for each image: ``<stem>.png``, or ``<folder>_<stem>.png`` for all if two are equal.

    Of a JPEG photograph it is ``<stem>.jpg``, because its PNG would take longer than the prediction. ``_2`` follows the
    stem where a picture, or the label map beside one, has that name too.
    """
    taken, pictures, unique = set(), [], len({image.stem for image in images}) == len(images)
    for image in images:
        stem = image.stem if unique else f'{image.resolve().parent.name}_{image.stem}'
        while taken & {stem, f'{stem}_labels'}:
            stem += '_2'
        taken |= {stem, f'{stem}_labels'}
        pictures.append(out_dir / f'{stem}{".jpg" if image.suffix.lower() in JPEG else ".png"}')
    return pictures


def labels_of(picture: Path) -> Path:
    """Return the path of the label map beside a picture."""
    return picture.with_name(f'{picture.stem}_labels.png')


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the predictions for the images that the command line names, and return the exit code."""
    args = build_parser().parse_args(command_line.expand_published(argv))
    with command_line.report_errors(ValueError, OSError):
        if not 0 <= args.score_thr <= 1:
            raise UserError(f'--score-thr {args.score_thr}: allowed is a number from 0 to 1.')
        images = find_images(args.images)
        pictures = name_pictures(images, args.out_dir)
        check_outputs([*pictures, *map(labels_of, pictures if args.slice else ())], args.force, images)
        from mmengine.logging import MMLogger

        from .. import inference  # its import takes seconds, in which a mistake above can be named
        MMLogger.get_current_instance().setLevel('WARNING')
        model = inference.load(args.config, args.checkpoint, device=args.device, cfg_options=args.options,
                               runtime=args.runtime, amp=args.amp)
        args.out_dir.mkdir(parents=True, exist_ok=True)
    failed = []
    for path, out in zip(images, pictures):
        try:
            summary = draw_one(args, model, path, out)
        except Exception as error:  # whatever a decoder or a network raises: the others are drawn
            command_line.show_traceback()
            failed.append(printable(path))
            summary = f'failed, {" ".join(str(error).split())[:300]}'
        print(printable(f'{path} -> {out}: {summary}'), flush=True)
    if failed:
        print(f'error: {len(failed)} of {len(images)} images failed, such as {listed(failed)}', file=sys.stderr)
    return 1 if failed else 0


def draw_one(args: argparse.Namespace, model: 'Model', path: Path, out: Path) -> str:
    """Write the picture of an image, and with ``--slice`` its label map; return the prediction as a line of text."""
    from ..inference import predict
    from ..inference.model import reduces_zero_label
    from ..report.pictures import draw, save
    image = model.read(path, by_window=args.slice is not None)
    prediction = predict(model, image, slice=args.slice, overlap=args.overlap, score_thr=args.score_thr)
    picture, summary = draw(model, image, prediction, args.score_thr)
    save(picture, out)
    if model.task == 'segmentation' and args.slice:
        # With reduce_zero_label, the classes of the label maps of the data count from 1.
        label_map = prediction.astype(np.uint16) + int(reduces_zero_label(model.cfg))
        save(label_map.astype(np.uint8 if len(model.classes) < 256 else np.uint16), labels_of(out))
    return summary
