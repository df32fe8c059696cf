"""Draws what a checkpoint predicts: the best classes, boxes and masks, or a label map over the image.

    python tools/predict.py configs/maskrcnn_cvt21_coco.py work_dirs/maskrcnn_cvt21_coco/epoch_12.pth a.jpg

Writes one PNG an image and prints one line an image; of several, an overview too. Small images are drawn enlarged.
With --ground-truth the annotation stands beside each prediction.
"""
import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmengine.config import Config

from cvt_dense.console import before_the_log, quiet_packages
from cvt_dense.errors import UserError
from cvt_dense.launch import command_line
from cvt_dense.launch.read import read_config
from cvt_dense.nodes import type_name

if TYPE_CHECKING:  # their import takes seconds, in which a mistake could have been named
    from _predictors import Predictor, Reader

IMAGE_SUFFIXES = ('.bmp', '.jpeg', '.jpg', '.npy', '.png', '.tif', '.tiff', '.webp')
OVERVIEW = 'overview.png'


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description='Draws what a checkpoint predicts: classes, boxes and masks, or a label map.')
    parser.add_argument('config', help='config file')
    parser.add_argument('checkpoint', help='checkpoint file, or whole model of tools/export.py (.onnx, .xml, .pt2)')
    parser.add_argument('images',
                        nargs='+',
                        metavar='IMAGE',
                        help='image file, folder of images, or folder of class folders')
    parser.add_argument('--out-dir', default='predictions', metavar='DIR', help='folder of the pictures '
                        '(default: %(default)s)')
    parser.add_argument('--score-thr', type=float, default=0.3, metavar='SCORE',
                        help='detections below this score are not drawn (default: %(default)s)')
    parser.add_argument('--ground-truth', action='store_true',
                        help="put each image's annotation, from the config's test, val or train data, beside it")
    parser.add_argument('--data-root', metavar='DIR', help="folder of that data instead of the config's data_root")
    parser.add_argument('--device', help='where to run (default: cuda, without a GPU cpu)')
    command_line.add_config_arguments(parser)
    command_line.add_inference_arguments(parser)
    return parser.parse_args()


def find_images(names: Sequence[str]) -> list[Path]:
    """The files and the folders' images, in the order given; of a folder without images those of the folders in it.

    Raises:
        UserError: something does not exist, or a folder holds no image.
    """
    images = []
    for path in map(Path, names):
        if path.is_dir():
            found = _images_in(path) or [image for folder in sorted(path.iterdir()) if folder.is_dir()
                                         for image in _images_in(folder)]  # class folders
            if not found:
                raise UserError(f'the folder {path} holds no image ({", ".join(IMAGE_SUFFIXES)}), nor do the folders '
                                'in it; deeper ones are not searched: name them.')
            images += found
        elif path.is_file():
            images.append(path)
        else:
            raise UserError(f'image {path} does not exist.')
    return images


def _images_in(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)
    return [path for path in found if path.suffix.lower() != '.npy'] or found  # beside images they are something else


def name_pictures(images: Sequence[Path], out_dir: Path) -> list[Path]:
    """One file in ``out_dir`` for each image: ``<stem>.png``, or ``<folder>_<stem>.png`` where several have that stem.

    A number follows where that is taken too: ``<folder>_<stem>_2.png``.

    Raises:
        UserError: a picture would replace an image, or ``out_dir`` cannot be a folder.
    """
    if out_dir.exists() and not out_dir.is_dir():
        raise UserError(f'--out-dir {out_dir} is a file: name a folder.')
    pictures: list[Path] = []
    stems = Counter(image.stem for image in images)
    taken = {OVERVIEW}
    for image in images:
        stem = image.stem if stems[image.stem] == 1 else f'{image.resolve().parent.name}_{image.stem}'
        name, count = f'{stem}.png', 1
        while name in taken:
            count += 1
            name = f'{stem}_{count}.png'
        taken.add(name)
        pictures.append(out_dir / name)
    replaced = {p.resolve() for p in [*pictures, out_dir / OVERVIEW]} & {p.resolve() for p in images}
    if replaced:
        raise UserError(f'the picture {sorted(replaced)[0]} would replace an image: name another --out-dir.')
    return pictures


def build_predictor(args: argparse.Namespace, cfg: Config) -> 'tuple[Reader, Predictor]':
    """What reads images for the config's task, and the predictor.

    Raises:
        UserError: config or checkpoint do not exist or do not fit each other, or the task is unknown.
    """
    import mmcv
    import torch
    from _predictors import (
        classification_predictor,
        detection_predictor,
        masked_predictor,
        read_for_classification,
        read_for_segmentation,
        segmentation_predictor,
    )
    from mmengine.registry import init_default_scope

    from cvt_dense.launch.checks.weights import check_checkpoint
    from cvt_dense.launch.inference import set_inference
    from cvt_dense.weights import register_safe_loading
    device = args.device or ('cuda' if torch.cuda.is_available() else 'cpu')
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f'--device {device!r} cannot be used here: {str(error).splitlines()[0]}') from error
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    scope, kind = cfg.get('default_scope') or 'mmengine', type_name(cfg.model)
    cfg.load_from = args.checkpoint
    set_inference(cfg, args)
    register_safe_loading()
    if cfg.load_from:
        check_checkpoint(cfg, cfg.load_from, strict=True)
    if scope == 'mmdet':
        return mmcv.imread, detection_predictor(cfg, cfg.load_from, device, args.score_thr, args.compile)
    if scope == 'mmseg':
        return read_for_segmentation(cfg), segmentation_predictor(cfg, cfg.load_from, device, args.compile)
    if kind == 'ImageClassifier':
        return read_for_classification, classification_predictor(cfg, cfg.load_from, device, args.compile)
    if kind == 'MaskedImageModel':
        if args.compile:
            raise UserError('--compile is for classifiers, detectors and segmentors: leave it out.')
        return read_for_classification, masked_predictor(cfg, cfg.load_from, device)
    raise UserError(
        f"{args.config}: default_scope={scope!r} with model.type={kind!r} is no task of this tool: allowed are the "
        "scopes 'mmdet' and 'mmseg', and the models cvt_dense.ImageClassifier and cvt_dense.MaskedImageModel.")


def load_config(args: argparse.Namespace) -> Config:
    """The complete config.

    Raises:
        UserError: --score-thr is no score; see ``read_config``.
    """
    command_line.check_value('--score-thr', args.score_thr, 0, 1)
    return read_config(args)


def main() -> None:
    args = parse_args()
    out_dir = Path(args.out_dir)
    with command_line.report_errors(*command_line.SETUP_ERRORS):
        images = find_images(args.images)
        pictures = name_pictures(images, out_dir)
        command_line.check_exists(args.checkpoint)
        with quiet_packages():
            cfg = load_config(args)
        with before_the_log(main_process=True):
            annotations = [None] * len(images)
            if args.ground_truth:
                from _annotations import find_annotations
                annotations = find_annotations(cfg, images)
            read, predict = build_predictor(args, cfg)
    from _pictures import SHEET_ROWS, overview, thumbnail
    from PIL import Image
    # A class stands in the panel below, any other annotation beside the picture.
    columns = 2 if args.ground_truth and type_name(cfg.model) != 'ImageClassifier' else 3
    number = min(len(images), columns * SHEET_ROWS)
    shown = {i * len(images) // number for i in range(number)}
    unreadable, sheet = [], []
    with command_line.report_errors(UserError, OSError):
        out_dir.mkdir(parents=True, exist_ok=True)
        for i, (path, annotation, out) in enumerate(zip(images, annotations, pictures)):
            image = read(path)
            if image is None:
                unreadable.append(str(path))
                continue
            picture, summary = predict(image, annotation and annotation(image.shape[:2]))
            Image.fromarray(picture).save(out)
            if i in shown:
                sheet.append((out.stem, thumbnail(picture, columns)))
            print(f'{path} -> {out}: {summary}', flush=True)
        if len(sheet) > 1:
            overview(sheet, columns).save(out_dir / OVERVIEW)
            print(f'{len(sheet)} of {len(images)} pictures -> {out_dir / OVERVIEW}')
        if unreadable:
            raise UserError(
                f'{len(unreadable)} of {len(images)} images cannot be read: {", ".join(unreadable[:5])}'
                f'{", ..." if len(unreadable) > 5 else ""}. The others were drawn.')


if __name__ == '__main__':
    main()
