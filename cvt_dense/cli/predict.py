"""Draws the predictions of a checkpoint: the best classes, boxes and masks, or a label map over the image.

    python tools/predict.py configs/maskrcnn_cvt21_coco.py work_dirs/maskrcnn_cvt21_coco/epoch_12.pth a.jpg

Writes a picture and prints one line for each image, and an overview of several. Small images are drawn enlarged. With
--slice large images are predicted in slices, and label maps are written in full size. With --save the predictions
become annotations to correct and to train on. An image that cannot be read or predicted is named, the others are
drawn, and the exit code is 1. cvt_dense.inference has the same predictions for programs, such as those that draw
videos; tools/diagnose.py draws annotations beside predictions.
"""
import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from ..annotations.names import is_rubbish
from ..console import printable
from ..errors import UserError, listed
from ..images import SUFFIXES, is_image
from ..launch.runs import TestRun
from . import command_line
from .outputs import add_force_argument, check_folder, check_outputs

if TYPE_CHECKING:
    from ..annotations.predictions import PredictionWriter
    from ..inference import Model

OVERVIEW, OVERVIEW_ROWS, OVERVIEW_COLUMNS = 'overview.png', 5, 3
SHOWN = 1200  # pixels that the overview shows of a side
JPEG = '.jpg', '.jpeg', '.jfif'
UNLABELLED = 'unlabelled'  # class 0 of label maps whose classes count from 1 (reduce_zero_label)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], usage='%(prog)s '
                                     '{CONFIG CHECKPOINT | PUBLISHED_MODEL} IMAGE [IMAGE ...] [--FLAG ...]')
    parser.add_argument('config', help='config file (a published model takes the place of config and checkpoint)')
    parser.add_argument('checkpoint', help='checkpoint file, or whole model of tools/export.py (.onnx, .xml, .pt2)')
    parser.add_argument('images', nargs='+', metavar='IMAGE',
                        help='image file, folder of images, or folder of class folders')
    parser.add_argument('--out-dir', type=Path, default='predictions', metavar='DIR',
                        help='folder of the pictures (default: %(default)s)')
    add_force_argument(parser)
    parser.add_argument('--score-thr', type=float, metavar='SCORE',
                        help='detections below this score are neither drawn nor saved (default: 0.3)')
    parser.add_argument('--save', choices=('coco', 'masks'), metavar='FORMAT',
                        help='also write images and predictions as annotated data into the folder DIR/FORMAT: coco '
                        'for detectors, which tools/convert_data.py reads, masks (label maps) for segmentors')
    command_line.add_settings(parser, TestRun, 'slice', 'overlap')
    parser.add_argument('--device', help='where to run (default: cuda if there is a GPU, otherwise cpu)')
    command_line.add_settings(parser, TestRun, 'options', 'runtime', 'amp')
    return parser


def find_images(names: Sequence[str]) -> list[Path]:
    """Return files and the images of folders in the order given; of a folder without images those of its folders.

    Raises:
        UserError: a path does not exist, or a folder holds no image.
    """
    images = []
    for path in map(Path, names):
        if path.is_dir():
            folders = [folder for folder in sorted(path.iterdir()) if folder.is_dir() and not is_rubbish(folder.name)]
            inside = _images_in(path) or [image for folder in folders for image in _images_in(folder)]  # class folders
            if not inside:
                raise UserError(f'The folder {path} and the folders in it hold no image ({", ".join(SUFFIXES)}).')
            images += inside
        elif path.is_file():
            images.append(path)
        else:
            raise UserError(f'The image {path} does not exist. Give files or folders of images.')
    return images


def _images_in(folder: Path) -> list[Path]:
    shown = sorted(path for path in folder.iterdir() if not is_rubbish(path.name))
    files = [path for path in shown if path.is_file()]
    # Arrays beside images have another meaning.
    images = list(filter(is_image, files)) or [path for path in files if path.suffix.lower() == '.npy']
    if images and len(images) < len(shown):
        print(printable(
            f'{folder}: {len(shown) - len(images)} folders and files without the suffix of an image were left out.'))
    return images


def name_pictures(images: Sequence[Path], out_dir: Path) -> list[Path]:
    """Return a file in ``out_dir`` for each image: ``<stem>.png``, or ``<folder>_<stem>.png`` for all if two are equal.

    Of a JPEG photograph it is ``<stem>.jpg``, because its PNG would take longer than the prediction. ``_2`` follows the
    stem where a picture, or the label map beside one, has that name too.
    """
    taken, pictures, unique = {Path(OVERVIEW).stem}, [], len({image.stem for image in images}) == len(images)
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
        if not 0 <= (args.score_thr or 0) <= 1:
            raise UserError(f'--score-thr {args.score_thr}: allowed is a number from 0 to 1.')
        images = find_images(args.images)
        pictures = name_pictures(images, args.out_dir)
        beside = [*map(labels_of, pictures if args.slice else ()), *([args.out_dir / OVERVIEW] * (len(images) > 1))]
        check_outputs([*pictures, *beside], args.force, images)
        from mmengine.logging import MMLogger

        from .. import inference  # its import takes seconds, in which a mistake above can be named
        from ..inference.prediction import check_settings
        MMLogger.get_current_instance().setLevel('WARNING')
        model = inference.load(args.config, args.checkpoint, device=args.device, cfg_options=args.options,
                               runtime=args.runtime, amp=args.amp)
        if args.score_thr is None:
            args.score_thr = 0.3 if model.task == 'detection' else 0.
        check_settings(model, args.slice, args.overlap, args.score_thr)
        writer = prepare_saving(args, model, images) if args.save else None
        args.out_dir.mkdir(parents=True, exist_ok=True)
    try:
        failed = draw_all(args, model, images, pictures, writer)
    finally:  # of an interrupted run, too
        if writer:
            writer.write()
    if writer and writer.data.samples:
        report_saved(args, writer)
    return 1 if failed else 0


def prepare_saving(args: argparse.Namespace, model: 'Model', images: Sequence[Path]) -> 'PredictionWriter':
    """Return the writer of ``--save``.

    Args:
        args: command line.
        model: result of :func:`cvt_dense.inference.load`.
        images: files to read.

    Raises:
        UserError: the format is not for this model, two images have one name, or the result's folder holds files.
    """
    from ..annotations.predictions import PredictionWriter
    allowed = dict(detection='coco', segmentation='masks').get(model.task)
    if args.save != allowed:
        raise UserError(f'--save {args.save}: for {model.task} allowed is {allowed or "no --save"}.')
    unlabelled = [UNLABELLED] * (model.task == 'segmentation' and first_label(model))
    folder = args.out_dir / args.save
    check_folder(folder)
    return PredictionWriter(folder, args.save, [*unlabelled, *model.classes], images)


def first_label(model: 'Model') -> int:
    """Return the number of a segmentor's first class in the label maps of its data: 1 with ``reduce_zero_label``."""
    from ..inference.model import reduces_zero_label
    return int(reduces_zero_label(model.cfg))


def report_saved(args: argparse.Namespace, writer: 'PredictionWriter') -> None:
    """Print what ``--save`` has written, and what comes next."""
    from ..recipes import command
    print(f'{len(writer.data.samples)} images -> {writer.folder}')
    if args.save != 'masks':
        print(f'When they are corrected: {command("convert_data")} {writer.folder} DST --from {args.save} --to coco')


def draw_all(args: argparse.Namespace, model: 'Model', images: Sequence[Path], pictures: Sequence[Path],
             writer: 'PredictionWriter | None') -> list[str]:
    """Draw each image and the overview, and return the names of the images that failed.

    Args:
        args: command line.
        model: result of :func:`cvt_dense.inference.load`.
        images: files to read.
        pictures: files to write.
        writer: of ``--save``.
    """
    from ..report.pictures import grid, save
    number = min(len(images), OVERVIEW_COLUMNS * OVERVIEW_ROWS)
    shown = {i * len(images) // number for i in range(number)}
    overview, failed = [], []
    for i, (path, out) in enumerate(zip(images, pictures)):
        try:
            picture, summary = draw_one(args, model, path, out, writer)
            if i in shown:
                small = Image.fromarray(picture)
                small.thumbnail((SHOWN, SHOWN))  # as it comes: a page of whole photographs fills the memory
                overview.append((printable(out.stem), np.asarray(small)))
        except Exception as error:  # whatever a decoder or a network raises: the others are drawn
            command_line.show_traceback()
            failed.append(printable(path))
            summary = f'failed, {" ".join(str(error).split())[:300]}'
        print(printable(f'{path} -> {out}: {summary}'), flush=True)
    if len(overview) > 1:
        save(grid(overview, OVERVIEW_COLUMNS), args.out_dir / OVERVIEW)
        print(f'{len(overview)} of {len(images)} pictures -> {args.out_dir / OVERVIEW}')
    if failed:
        print(f'error: {len(failed)} of {len(images)} images failed, such as {listed(failed)}', file=sys.stderr)
    return failed


def draw_one(args: argparse.Namespace, model: 'Model', path: Path, out: Path,
             writer: 'PredictionWriter | None') -> tuple[np.ndarray, str]:
    """Write the picture of an image, with ``--slice`` its label map, and what ``--save`` asks for.

    Returns:
        The picture (H, W, 3), RGB, and a line of text that sums the prediction up.
    """
    from ..inference import predict
    from ..report.pictures import draw, save
    image = model.read(path)
    prediction = predict(model, image, slice=args.slice, overlap=args.overlap, score_thr=args.score_thr)
    picture, summary = draw(model, image, prediction, args.score_thr)
    save(picture, out)
    if model.task == 'segmentation' and (args.slice or writer):
        prediction = prediction.astype(np.uint16) + first_label(model)
        if args.slice:
            save(prediction.astype(np.uint8 if len(model.classes) < 256 else np.uint16), labels_of(out))
    if writer:
        writer.add(path, image.shape, prediction)
    return picture, summary
