"""Draws what a checkpoint predicts: the best classes, boxes and masks, or a label map over the image.

    python tools/predict.py configs/maskrcnn_cvt21_coco.py work_dirs/maskrcnn_cvt21_coco/epoch_12.pth a.jpg

Writes one PNG an image and prints one line an image. Small images are drawn enlarged.
"""
import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import mmcv
import numpy as np
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import load_checkpoint
from mmengine.structures import InstanceData, PixelData
from PIL import Image, ImageDraw, ImageFont

from cvt_dense.datasets import open_image
from cvt_dense.errors import UserError
from cvt_dense.launch import check_weights, command_line, settings
from cvt_dense.launch.check_values import SHARE, check_value
from cvt_dense.nodes import type_name

IMAGE_SUFFIXES = ('.bmp', '.jpeg', '.jpg', '.png', '.tif', '.tiff', '.webp')
DRAWN_SIDE = 480  # pixels; a shorter side below this is enlarged by a whole factor
LEGEND_ROWS = 8  # of the largest classes of a label map

# Reads a file as the task's data sets do: (H, W, 3), uint8, BGR, upright as EXIF says; None: unreadable.
Reader = Callable[[Path], np.ndarray | None]
# Takes an image (H, W, 3), uint8, BGR; returns its picture, RGB, and the line to print.
Predictor = Callable[[np.ndarray], tuple[np.ndarray, str]]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description='Draws what a checkpoint predicts: classes, boxes and masks, or a label map.')
    parser.add_argument('config', help='config file')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('images',
                        nargs='+',
                        metavar='IMAGE',
                        help='image file, or folder of images (not searched '
                        'deeper)')
    parser.add_argument('--out-dir', default='predictions', metavar='DIR', help='folder of the pictures '
                        '(default: %(default)s)')
    parser.add_argument('--score-thr', type=float, default=0.3, metavar='SCORE',
                        help='detections below this score are not drawn (default: %(default)s)')
    parser.add_argument('--device', default='cuda' if torch.cuda.is_available() else 'cpu',
                        help='where to run (default here: %(default)s)')
    command_line.add_config_arguments(parser)
    return parser.parse_args()


# -- files -----------------------------------------------------------------------------------------


def find_images(names: Sequence[str]) -> list[Path]:
    """The files and the folders' images, in the order given.

    Raises:
        UserError: something does not exist, or a folder holds no image.
    """
    images = []
    for path in map(Path, names):
        if path.is_dir():
            found = sorted(p for p in path.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)
            if not found:
                raise UserError(f'the folder {path} holds no image ({", ".join(IMAGE_SUFFIXES)}).')
            images += found
        elif path.is_file():
            images.append(path)
        else:
            raise UserError(f'image {path} does not exist.')
    return images


def name_pictures(images: Sequence[Path], out_dir: Path) -> list[Path]:
    """One file in ``out_dir`` for each image: ``<stem>.png``, then ``<stem>_2.png`` where that is taken.

    Raises:
        UserError: a picture would replace an image, or ``out_dir`` cannot be a folder.
    """
    if out_dir.exists() and not out_dir.is_dir():
        raise UserError(f'--out-dir {out_dir} is a file: name a folder.')
    pictures: list[Path] = []
    taken = set()
    for image in images:
        name, count = f'{image.stem}.png', 1
        while name in taken:
            count += 1
            name = f'{image.stem}_{count}.png'
        taken.add(name)
        pictures.append(out_dir / name)
    replaced = {p.resolve() for p in pictures} & {p.resolve() for p in images}
    if replaced:
        raise UserError(f'the picture {sorted(replaced)[0]} would replace an image: name another --out-dir.')
    return pictures


# -- the three tasks -------------------------------------------------------------------------------


def _enlarge(image: np.ndarray) -> tuple[np.ndarray, int]:
    """The image in RGB, enlarged if it is small, and the factor."""
    height, width = image.shape[:2]
    factor = max(1, round(DRAWN_SIDE / min(height, width)))
    image = mmcv.imresize(image, (width * factor, height * factor), interpolation='bicubic')
    return mmcv.bgr2rgb(image), factor


def read_for_classification(path: Path) -> np.ndarray | None:
    try:
        return np.asarray(open_image(path))[..., ::-1]
    except Exception:  # Pillow raises anything from SyntaxError to struct.error on broken files
        return None


def classification_predictor(cfg: Config, checkpoint: str, device: str) -> Predictor:
    from timm.data import create_transform
    transform = cfg.get('test_dataloader', {}).get('dataset', {}).get('transform')
    if transform is None:
        raise UserError(
            f'{cfg.filename} has no test_dataloader.dataset.transform, which prepares the images.')
    transform = create_transform(**transform, use_prefetcher=True)
    model = MODELS.build(cfg.model)
    meta = load_checkpoint(model, checkpoint, map_location='cpu').get('meta', {})
    model.to(device).eval()
    names = list((meta.get('dataset_meta') or {}).get('classes') or [])
    classes = [*names, *range(len(names), model.num_classes)]  # trained with more outputs than names: by number

    def predict(image: np.ndarray) -> tuple[np.ndarray, str]:
        inputs = torch.as_tensor(transform(Image.fromarray(image[..., ::-1])))[None]
        with torch.no_grad():
            scores = model.test_step(dict(inputs=inputs))[0]['logits'].softmax(0)
        top = [(str(classes[i]), float(scores[i])) for i in scores.topk(min(5, len(scores))).indices]
        rows = [(name, f'{score:.2f}', score, (142, 202, 230)) for name, score in top]
        return _draw_panel(_enlarge(image)[0], rows), ', '.join(f'{name} {score:.2f}' for name, score in top)

    return predict


def _font(picture: Image.Image) -> ImageFont.FreeTypeFont:
    """Large enough to be read where the whole picture is looked at."""
    return ImageFont.load_default(max(15, min(picture.size) // 26))


def _draw_panel(image: np.ndarray, rows: Sequence[tuple[str, str, float, tuple]]) -> np.ndarray:
    """The image with a panel below it: a row has a name, its value in words, the length of its bar, its colour."""
    height, width = image.shape[:2]
    line = max(22, width // 18)
    picture = Image.new('RGB', (width, height + line * len(rows) + line // 2), 'white')
    picture.paste(Image.fromarray(image))
    draw = ImageDraw.Draw(picture)
    font = ImageFont.load_default(line * 0.72)
    for i, (name, value, share, colour) in enumerate(rows):
        y = height + line // 4 + i * line
        draw.rectangle((0, y + 1, share * width, y + line - 2), fill=tuple((c + 255) // 2 for c in colour))
        draw.rectangle((0, y + 1, line // 3, y + line - 2), fill=colour)
        draw.text((line * 0.6, y + line / 2), name, 'black', font, anchor='lm')
        draw.text((width - line // 3, y + line / 2), value, 'black', font, anchor='rm')
    return np.asarray(picture)


def _draw_detections(image: np.ndarray, found: InstanceData, names: Sequence[str],
                     colours: Sequence[tuple]) -> np.ndarray:
    """Masks, boxes and labels; the best last, so that it stays readable. ``found`` is in the image's pixels."""
    image = image.astype(np.float32)
    order = found.scores.argsort().tolist()
    for i in order if 'masks' in found else ():
        mask = found.masks[i].numpy().astype(bool)
        image[mask] = 0.55 * image[mask] + 0.45 * np.array(colours[i], np.float32)
    picture = Image.fromarray(image.astype(np.uint8))
    draw, font = ImageDraw.Draw(picture), _font(picture)
    width = max(2, min(picture.size) // 200)
    for i in order:
        draw.rectangle(found.bboxes[i].tolist(), outline=colours[i], width=width)
    for i in order:
        left, top = found.bboxes[i].tolist()[:2]
        _, _, right, bottom = draw.textbbox((0, 0), names[i], font)
        left, top = (max(0, min(v, limit)) for v, limit in (
            (left, picture.width - right - 6), (top - bottom - 5, picture.height - bottom - 5)))
        draw.rectangle((left, top, left + right + 6, top + bottom + 5), fill=colours[i])
        dark = sum(colours[i]) < 384
        draw.text((left + 3, top + 2), names[i], 'white' if dark else 'black', font)
    return np.asarray(picture)


def detection_predictor(cfg: Config, checkpoint: str, device: str, score_thr: float) -> Predictor:
    from mmdet.apis import inference_detector, init_detector
    from mmdet.visualization import get_palette
    model = init_detector(cfg, checkpoint, device=device)
    classes = model.dataset_meta['classes']
    palette = get_palette(model.dataset_meta.get('palette') or 'coco', len(classes))

    def predict(image: np.ndarray) -> tuple[np.ndarray, str]:
        found = inference_detector(model, image).cpu().pred_instances
        found = found[found.scores >= score_thr]
        picture, factor = _enlarge(image)
        names = [f'{classes[label]} {score:.2f}' for label, score in zip(found.labels, found.scores)]
        found.bboxes *= factor
        if 'masks' in found:
            found.masks = found.masks.repeat_interleave(factor, 1).repeat_interleave(factor, 2)
        picture = _draw_detections(picture, found, names, [tuple(palette[label]) for label in found.labels])
        return picture, ', '.join(names) or f'nothing with a score of {score_thr:g} or more'

    return predict


def segmentation_predictor(cfg: Config, checkpoint: str, device: str) -> Predictor:
    from mmseg.apis import inference_model, init_model
    from mmseg.visualization import SegLocalVisualizer
    cfg.setdefault('test_pipeline', cfg.get('test_dataloader', {}).get('dataset', {}).get('pipeline'))
    model = init_model(cfg, checkpoint, device=device)
    classes = model.dataset_meta['classes']
    visualizer = SegLocalVisualizer(name='predict', alpha=0.6)
    visualizer.set_dataset_meta(classes, model.dataset_meta.get('palette'))

    def predict(image: np.ndarray) -> tuple[np.ndarray, str]:
        sample = inference_model(model, image).cpu()
        labels = sample.pred_sem_seg.data
        share = torch.bincount(labels.flatten(), minlength=len(classes)) / labels.numel()
        order = [i for i in share.argsort(descending=True).tolist() if share[i] > 0]
        summary = ', '.join(f'{classes[i]} {share[i]:.1%}' for i in order)
        picture, factor = _enlarge(image)
        sample.pred_sem_seg = PixelData(data=labels.repeat_interleave(factor, 1).repeat_interleave(factor, 2))
        visualizer.add_datasample('', picture, sample, draw_gt=False, with_labels=False)
        palette = visualizer.dataset_meta['palette']
        rows = [(classes[i], f'{share[i]:.1%}', float(share[i]), tuple(palette[i])) for i in order[:LEGEND_ROWS]]
        return _draw_panel(visualizer.get_image(), rows), summary

    return predict


def build_predictor(args: argparse.Namespace) -> tuple[Reader, Predictor]:
    """What reads images for the config's task, and the predictor.

    Raises:
        UserError: config or checkpoint do not exist or do not fit each other, or the task is unknown.
    """
    cfg = settings.load_config(args)
    try:
        torch.empty(0, device=args.device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f'--device {args.device!r} cannot be used here: {str(error).splitlines()[0]}') from error
    scope = cfg.get('default_scope') or 'mmengine'
    init_default_scope(scope)
    check_weights.check_checkpoint(cfg, args.checkpoint, strict=True)
    if scope == 'mmdet':
        return mmcv.imread, detection_predictor(cfg, args.checkpoint, args.device, args.score_thr)
    if scope == 'mmseg':
        return mmcv.imread, segmentation_predictor(cfg, args.checkpoint, args.device)
    if type_name(cfg.model) == 'ImageClassifier':
        return read_for_classification, classification_predictor(cfg, args.checkpoint, args.device)
    raise UserError(
        f"{args.config}: default_scope={scope!r} with model.type={type_name(cfg.model)!r} is no task of this "
        "tool: allowed are the scopes 'mmdet' and 'mmseg', and the model cvt_dense.ImageClassifier.")


def main() -> None:
    args = parse_args()
    with command_line.report_errors(*command_line.SETUP_ERRORS):
        check_value('--score-thr', args.score_thr, SHARE)
        images = find_images(args.images)
        pictures = name_pictures(images, Path(args.out_dir))
        read, predict = build_predictor(args)
    unreadable = []
    with command_line.report_errors(UserError, OSError):
        Path(args.out_dir).mkdir(parents=True, exist_ok=True)
        for path, out in zip(images, pictures):
            image = read(path)
            if image is None:
                unreadable.append(str(path))
                continue
            picture, summary = predict(image)
            Image.fromarray(picture).save(out)
            print(f'{path} -> {out}: {summary}', flush=True)
        if unreadable:
            raise UserError(
                f'{len(unreadable)} of {len(images)} images cannot be read: {", ".join(unreadable[:5])}'
                f'{", ..." if len(unreadable) > 5 else ""}. The others were drawn.')


if __name__ == '__main__':
    main()
