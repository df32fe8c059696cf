"""Draws the predictions of a checkpoint: the best classes, boxes and masks, or a label map over the image.

    python tools/predict.py configs/maskrcnn_cvt21_coco.py work_dirs/maskrcnn_cvt21_coco/epoch_12.pth a.jpg

Writes one PNG and prints one line for each image, and an overview of several. Small images are drawn enlarged. With
--slice large images are predicted in slices, and label maps are written in full size. With --save the predictions
become annotations to correct and to train on. An image that cannot be read or predicted is named, the others are
drawn, and the exit code is 1. cvt_dense.inference has the same predictions for programs; tools/diagnose.py draws
annotations beside predictions.
"""
import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError, listed
from ..images import SUFFIXES, is_hidden, is_image
from ..launch import command_line
from ..launch.outputs import add_force_argument, check_folder, check_outputs

if TYPE_CHECKING:
    from ..annotations.convert import Data, Sample
    from ..inference import Model

VIDEO_SUFFIXES = ('.avi', '.m4v', '.mkv', '.mov', '.mp4', '.mpeg', '.mpg', '.ts', '.webm', '.wmv')
OVERVIEW, OVERVIEW_ROWS, OVERVIEW_COLUMNS = 'overview.png', 5, 3
UNLABELLED = 'unlabelled'  # class 0 of label maps whose classes count from 1 (reduce_zero_label)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('config', help='config file (a published model takes the place of config and checkpoint)')
    parser.add_argument('checkpoint', help='checkpoint file, or whole model of tools/export.py (.onnx, .xml, .pt2)')
    parser.add_argument('images', nargs='+', metavar='IMAGE',
                        help='image file, folder of images, folder of class folders, or video file')
    parser.add_argument('--out-dir', type=Path, default='predictions', metavar='DIR',
                        help='folder of the pictures (default: %(default)s)')
    add_force_argument(parser)
    parser.add_argument('--score-thr', type=float, default=0.3, metavar='SCORE',
                        help='detections below this score are not drawn (default: %(default)s)')
    parser.add_argument('--save', choices=('coco', 'masks'), metavar='FORMAT',
                        help='also write images and predictions as annotated data into the folder DIR/FORMAT, which '
                        'tools/convert_data.py reads: coco for detectors, masks (label maps) for segmentors too')
    command_line.add_slice_arguments(parser)
    parser.add_argument('--device', help='where to run (default: cuda if there is a GPU, otherwise cpu)')
    command_line.add_config_arguments(parser)
    command_line.add_inference_arguments(parser)
    return parser


def find_images(names: Sequence[str]) -> list[Path]:
    """Return files and the images of folders in the order given; of a folder without images those of its folders.

    Raises:
        UserError: a path does not exist, or a folder holds no image.
    """
    images = []
    for path in map(Path, names):
        if path.is_dir():
            folders = [folder for folder in sorted(path.iterdir()) if folder.is_dir() and not is_hidden(folder.name)]
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
    shown = sorted(path for path in folder.iterdir() if not is_hidden(path.name))
    files = [path for path in shown if path.is_file()]
    # Arrays beside images have another meaning.
    images = list(filter(is_image, files)) or [path for path in files if path.suffix.lower() == '.npy']
    if images and len(images) < len(shown):
        print(f'{folder}: {len(shown) - len(images)} folders and files without the suffix of an image were left out.')
    return images


def name_pictures(images: Sequence[Path], out_dir: Path) -> list[Path]:
    """Return a file in ``out_dir`` for each image: ``<stem>.png``, or ``<folder>_<stem>.png`` for all if two are equal.

    The file of a video has the suffix .mp4. ``_2`` follows the stem where that is taken too.
    """
    taken, pictures, unique = {Path(OVERVIEW).stem}, [], len({image.stem for image in images}) == len(images)
    for image in images:
        stem = image.stem if unique else f'{image.resolve().parent.name}_{image.stem}'
        while stem in taken:
            stem += '_2'
        taken.add(stem)
        pictures.append(out_dir / f'{stem}{".mp4" if image.suffix.lower() in VIDEO_SUFFIXES else ".png"}')
    return pictures


def labels_of(picture: Path) -> Path:
    """Return the path of the label map beside a picture."""
    return picture.with_name(f'{picture.stem}_labels.png')


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the predictions for the images that the command line names, and return the exit code."""
    args = build_parser().parse_args(command_line.expand_published(argv))
    with command_line.report_errors(ValueError):
        if not 0 <= args.score_thr <= 1:
            raise UserError(f'--score-thr {args.score_thr}: allowed is a number from 0 to 1.')
        images = find_images(args.images)
        pictures = name_pictures(images, args.out_dir)
        beside = [*map(labels_of, pictures if args.slice else ()), *([args.out_dir / OVERVIEW] * (len(images) > 1))]
        check_outputs([*pictures, *beside], args.force, images)
        from mmengine.logging import MMLogger

        from .. import inference  # its import takes seconds, in which a mistake above can be named
        MMLogger.get_current_instance().setLevel('WARNING')
        model = inference.load(args.config, args.checkpoint, device=args.device, cfg_options=args.cfg_options,
                               runtime=args.runtime, amp=args.amp)
        data = prepare_saving(args, model, images) if args.save else None
        args.out_dir.mkdir(parents=True, exist_ok=True)
    failed = draw_all(args, model, images, pictures, data)
    if data:
        with command_line.report_errors(ValueError):
            save_annotations(args, data)
    return failed


def prepare_saving(args: argparse.Namespace, model: 'Model', images: Sequence[Path]) -> 'Data':
    """Return data without objects for ``--save``.

    Args:
        args: command line.
        model: result of :func:`cvt_dense.inference.load`.
        images: files to read.

    Raises:
        UserError: the format is not for this model, two images have one name, or the result's folder holds files.
    """
    from ..annotations import convert
    allowed = dict(detection=convert.TARGETS, segmentation=('masks', )).get(model.task, ())
    if args.save not in allowed:
        raise UserError(f'--save {args.save}: for {model.task} allowed is {" or ".join(allowed) or "no --save"}.')
    unlabelled = [UNLABELLED] * (model.task == 'segmentation' and first_label(model))
    data = convert.Data([*unlabelled, *model.classes], [convert.Sample(path) for path in images])
    convert.check_target(data, args.save)
    check_folder(args.out_dir / args.save, args.force)
    return data


def first_label(model: 'Model') -> int:
    """Return the number of a segmentor's first class in the label maps of its data: 1 with ``reduce_zero_label``."""
    from ..config.settings import reduces_zero_label
    return int(reduces_zero_label(model.cfg))


def add_annotations(data: 'Data', sample: 'Sample', shape: Sequence[int], prediction: Any) -> None:
    """Add a prediction to a sample of :func:`prepare_saving`, without objects whose mask is empty.

    Args:
        data, sample: changed in place.
        shape: shape of the image's array, (H, W, ...).
        prediction: label map (H, W) of the data's numbers, or ``supervision.Detections``.
    """
    import numpy as np

    from ..annotations.coco import Fault
    sample.height, sample.width = shape[:2]
    if isinstance(prediction, np.ndarray):
        sample.label_map = prediction
        return
    if prediction.mask is not None:
        filled = np.array([np.any(mask) for mask in prediction.mask], bool)
        data.notes[Fault.EMPTY_MASK] += [str(sample.path)] * int((~filled).sum())
        prediction = prediction[filled]
    sample.add_detections(prediction)


def save_annotations(args: argparse.Namespace, data: 'Data') -> None:
    """Write the predictions of ``--save``, if there is an image that did not fail.

    Args:
        args: command line.
        data: result of :func:`prepare_saving`, the samples with their objects.
    """
    from ..annotations import convert
    from ..recipes import command
    data.samples = [sample for sample in data.samples if sample.width]  # without images that failed
    if not data.samples:
        return
    folder = args.out_dir / args.save
    convert.write(data, folder, args.save)
    (folder / 'README.txt').write_text(f'Predictions of {args.checkpoint} with --score-thr {args.score_thr}\n', 'utf-8')
    convert.print_notes(data)
    print(f'{len(data.samples)} images -> {folder}')
    if args.save != 'masks':
        print(f'When they are corrected: {command("convert_data")} {folder} DST --from {args.save} --to coco')


def draw_all(args: argparse.Namespace, model: 'Model', images: Sequence[Path], pictures: Sequence[Path],
             data: 'Data | None') -> int:
    """Draw each image and the overview, and return the exit code.

    Args:
        args: command line.
        model: result of :func:`cvt_dense.inference.load`.
        images: files to read.
        pictures: files to write.
        data: gets the predictions as objects of its samples, one for each image, or None.
    """
    import numpy as np

    from ..inference import predict
    from ..report.pictures import draw, grid, save
    from ..report.video import annotate_video
    number = min(len(images), OVERVIEW_COLUMNS * OVERVIEW_ROWS)
    shown = {i * len(images) // number for i in range(number)}
    overview, failed = [], []
    first = first_label(model) if model.task == 'segmentation' else 0
    for i, (path, out) in enumerate(zip(images, pictures)):
        try:
            if out.suffix == '.mp4':
                print(f'{path} -> {out}: {annotate_video(model, path, out, args)}', flush=True)
                continue
            image = model.read(path, by_window=args.slice is not None)
            prediction = predict(model, image, slice=args.slice, overlap=args.overlap, score_thr=args.score_thr)
            picture, summary = draw(model, image, prediction, args.score_thr)
            save(picture, out)
            if model.task == 'segmentation' and (args.slice or data):
                prediction = prediction.astype(np.uint16) + first
                if args.slice:
                    save(prediction.astype(np.uint8 if len(model.classes) < 256 else np.uint16), labels_of(out))
            if data:
                add_annotations(data, data.samples[i], image.shape, prediction)
            if i in shown:
                overview.append((out.stem, picture))
        except (UserError, ValueError, RuntimeError, OSError, MemoryError) as error:
            if os.environ.get(command_line.TRACEBACK):
                raise
            failed.append(str(path))
            summary = f'failed, {" ".join(str(error).split())[:300]}'
        print(f'{path} -> {out}: {summary}', flush=True)
    if len(overview) > 1:
        save(grid(overview, OVERVIEW_COLUMNS), args.out_dir / OVERVIEW)
        print(f'{len(overview)} of {len(images)} pictures -> {args.out_dir / OVERVIEW}')
    if failed:
        print(f'error: {len(failed)} of {len(images)} images failed, such as {listed(failed)}', file=sys.stderr)
    return 1 if failed else 0
