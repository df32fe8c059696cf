"""Draws the attention of images: where the CLS token and chosen points attend to.

    python tools/attention.py configs/cvt13_in1k.py cvt13.pth cat.jpg --point 320,200

Writes one PNG an image. The whole image goes through the network, resized to the short side that the config tests
with, not cropped or cut into windows.
"""
import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import TRANSFORMS
from mmengine.structures import BaseDataElement
from PIL import Image
from torch import Tensor

from ..atomic import atomic_path
from ..config.walk import dicts, type_name
from ..errors import UserError
from ..inference import Model, load
from ..launch import command_line
from ..launch.outputs import add_force_argument, check_outputs
from ..pretraining import ImageClassifier, open_image
from ..report.attention import AttentionRecord, Query, attention_map, find_cvt, record_attention, recordable_blocks
from ..report.attention_figure import Panel, draw_panels
from .predict import find_images, name_pictures

Point = tuple[float, float]


def parse_point(text: str) -> Point:
    """Parse 'X,Y', a position in pixels."""
    x, y = text.split(',')
    return float(x), float(y)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('config', help='config file')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('images', nargs='+', metavar='IMAGE', help='image file, or folder of images')
    parser.add_argument('--point', type=parse_point, action='append', default=[], metavar='X,Y',
                        help='show where this pixel attends to in each stage; may be given several times')
    parser.add_argument('--out-dir', type=Path, default=Path('attention'), metavar='DIR',
                        help='folder of the pictures (default: %(default)s)')
    parser.add_argument('--device', default='cuda' if torch.cuda.is_available() else 'cpu',
                        help='where to run (default here: %(default)s)')
    add_force_argument(parser)
    command_line.add_config_arguments(parser)
    return parser


def short_side_of(cfg: Config, default: int) -> int:
    """Return the short side to which the config's test images are resized; ``default`` if they are not."""
    sizes = [node.get('input_size') or (node.get('scale') if type_name(node) == 'Resize' else None)
             for node in dicts(cfg.test_dataloader.dataset)]
    size = next(filter(None, sizes), default)
    return min(size[-2:]) if isinstance(size, (list, tuple)) else size


def network_input(model: BaseModel, cfg: Config, image: np.ndarray) -> Tensor:
    """Return (1, 3, H, W), normalised as the test pipeline and the model's data preprocessor do it.

    Args:
        model: classifier, detector or segmentor.
        cfg: its config.
        image: (H, W, 3), uint8, RGB.
    """
    if isinstance(model, ImageClassifier):
        inputs = torch.tensor(image).permute(2, 0, 1)[None]
    else:  # mmdet and mmseg read BGR and take a list of images
        image = image[..., ::-1]
        for node in dicts(cfg.test_dataloader.dataset):
            if type_name(node) == 'Normalize':
                image = TRANSFORMS.build(node)(dict(img=image.astype(np.float32)))['img']
        inputs = [torch.tensor(np.ascontiguousarray(image)).permute(2, 0, 1)]
    x = model.data_preprocessor(dict(inputs=inputs, data_samples=[BaseDataElement()]), False)['inputs']
    return x[..., :image.shape[0], :image.shape[1]]  # without padding


def attention_panel(title: str, record: AttentionRecord, query: Query) -> Panel:
    """Return the panel of a query, the mean over the heads."""
    heat = attention_map(record, query)[0].mean(0).cpu().numpy()
    points = [] if query == 'cls' else [query]
    return Panel(f'{title} {record.block}', heat, record.extent, points)


def draw_attention(model: Model, path: Path, out: Path, points: Sequence[Point]) -> None:
    """Draw one image.

    Args:
        model: what :func:`cvt_dense.inference.load` returns.
        path: the image.
        out: picture to write.
        points: (x, y) in pixels of the image.
    """
    photo = open_image(path).convert('RGB')
    factor = short_side_of(model.cfg, min(photo.size)) / min(photo.size)
    size = tuple(max(16, round(side * factor)) for side in photo.size)
    image = np.asarray(photo.resize(size, Image.Resampling.BICUBIC))
    points = [(x * size[0] / photo.width, y * size[1] / photo.height) for x, y in points]
    x = network_input(model.network, model.cfg, image)
    with torch.no_grad(), record_attention(model.network, queries=['cls', *points]) as records:
        find_cvt(model.network)(x)
    last_of_stages = list({name.split('.')[0]: record for name, record in records.items()}.values())
    rows = [[Panel('input', points=[point]), *(
        attention_panel('the point in', record, point) for record in last_of_stages)] for point in points]
    if last_of_stages[-1].num_cls or not rows:
        rows.insert(0, [Panel('input', points=points), *(
            attention_panel('CLS attention,', record, 'cls') for record in last_of_stages[-1:] if record.num_cls)])
    with atomic_path(out) as partial:
        draw_panels(image, rows, path.name, partial)


def main(argv: Sequence[str] | None = None) -> None:
    """Draw where the network of the command line attends to."""
    args = build_parser().parse_args(argv)
    with command_line.report_errors(ValueError, OSError):  # of find_cvt, and of broken images
        images = find_images(args.images)
        pictures = name_pictures(images, args.out_dir)
        check_outputs(pictures, args.force, images)
        model = load(args.config, args.checkpoint, device=args.device, cfg_options=args.cfg_options)
        blocks = recordable_blocks(find_cvt(model.network))
        if not blocks:
            raise UserError('The attention of no block can be recorded: set another model.backbone.attn_cfg.')
        print(f'Blocks whose attention can be recorded: {", ".join(blocks)}')
        for path, out in zip(images, pictures):
            draw_attention(model, path, out, args.point)
            print(f'{path} -> {out}', flush=True)


if __name__ == '__main__':
    raise SystemExit(main())
