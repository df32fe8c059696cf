"""Draws the attention of images: where the CLS token and chosen points attend to, rollout, distance, entropy.

    python tools/attention.py configs/cvt13_in1k.py cvt13.pth cat.jpg --point 320,200 --cam

Writes one PNG an image, and attention.json with the numbers of every block and head. The whole image goes through
the network, resized to the short side that the config tests with, not cropped or cut into windows.
"""
import argparse
import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from _attention_figure import Panel, draw, extent_of
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import TRANSFORMS
from mmengine.structures import BaseDataElement
from PIL import Image
from predict import find_images, name_pictures
from torch import Tensor

from cvt_dense.analysis import (
    attention_distance,
    attention_entropy,
    attention_map,
    class_activation,
    effective_rank,
    find_cvt,
    record_attention,
    recordable_blocks,
    rollout,
)
from cvt_dense.analysis.observe import block_names
from cvt_dense.datasets import open_image
from cvt_dense.errors import UserError
from cvt_dense.fileio import atomic_path, write_atomically
from cvt_dense.inference import Model, load
from cvt_dense.launch import command_line
from cvt_dense.launch.outputs import add_force_argument, check_outputs
from cvt_dense.models import ImageClassifier
from cvt_dense.nodes import dicts, type_name

SAMPLE = 256  # queries of a block over which distance, entropy and rank are computed
SHAPES = ('img_shape', 'ori_shape', 'pad_shape', 'batch_input_shape')  # of an image, as mmseg's heads read them
Run = Callable[[Tensor], Tensor]


def parse_point(text: str) -> tuple[float, float]:
    """Parse 'X,Y', a position in pixels."""
    x, _, y = text.partition(',')
    try:
        return float(x), float(y)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f'{text}: give X,Y in pixels of the image, e.g. 320,200') from error


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('config', help='config file')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('images', nargs='+', metavar='IMAGE', help='image file, or folder of images')
    parser.add_argument('--point', type=parse_point, action='append', default=[], metavar='X,Y',
                        help='show where this pixel attends to in each stage; may be given several times')
    parser.add_argument('--out-dir', default='attention', metavar='DIR', help='folder of the pictures and of '
                        'attention.json (default: %(default)s)')
    parser.add_argument('--short-side', type=int, metavar='N',
                        help='pixels to which images are resized (default: as the config tests)')
    parser.add_argument('--cam', nargs='?', const='', metavar='CLASS',
                        help='the class activation map too, of the predicted class or of this one (a name or number); '
                        "classifiers and segmentors; needs pip install -e '.[analysis]'")
    parser.add_argument('--device', default='cuda' if torch.cuda.is_available() else 'cpu',
                        help='where to run (default here: %(default)s)')
    add_force_argument(parser)
    command_line.add_config_arguments(parser)
    return parser


def build(args: argparse.Namespace) -> Model:
    """Load the model of the command line.

    Raises:
        UserError, ValueError: config and checkpoint do not fit each other, or the backbone is no CvT of three channels.
    """
    model = load(args.config, args.checkpoint, device=args.device, cfg_options=args.cfg_options)
    channels = find_cvt(model.network).in_channels
    if channels != 3:
        raise UserError(f'{args.config}: model.backbone.in_channels={channels}, and this tool draws on photos, which '
                        'have 3.')
    return model


def short_side_of(cfg: Config) -> int | None:
    """Return the short side to which the config's test images are resized; None if they are not."""
    for node in dicts((cfg.get('test_dataloader') or {}).get('dataset')):
        size = node.get('input_size') or (node.get('scale') if type_name(node) == 'Resize' else None)
        if isinstance(size, (list, tuple)) and size:
            return int(min(size[-2:]))
        if isinstance(size, int):
            return size
    return None


def scores_of(model: BaseModel) -> Run:
    """Return the function that computes a class's scores for ``--cam``.

    Raises:
        UserError: the model has no such scores, or the package is missing.
    """
    if importlib.util.find_spec('pytorch_grad_cam') is None:
        raise UserError("--cam needs the package grad-cam: pip install grad-cam, or pip install -e '.[analysis]' in "
                        "cvt_dense's checkout.")
    if isinstance(model, ImageClassifier):
        return model
    if hasattr(model, 'encode_decode'):
        return lambda x: model.encode_decode(x, [dict.fromkeys(SHAPES, tuple(x.shape[2:]))])
    raise UserError(f'--cam needs a classifier or a segmentor; {type(model).__name__} has scores of boxes.')


def find_class(name: str, classes: Sequence[str], scores: Tensor) -> int:
    """Return the number of a class.

    Args:
        name: name or number of the class; '' chooses the predicted or most frequent class.
        classes: all names.
        scores: (1, classes, ...).

    Raises:
        UserError: there is no such class.
    """
    number = scores.shape[1]
    if not name:
        return int(scores.argmax(dim=1).flatten().bincount(minlength=number).argmax())
    if name in classes:
        return classes.index(name)
    if name.isdigit() and int(name) < number:
        return int(name)
    known = f'{", ".join(map(str, classes[:8]))}{", ..." if len(classes) > 8 else ""}, or ' if classes else ''
    raise UserError(f'--cam {name}: no such class. Give {known}a number from 0 to {number - 1}.')


def network_input(model: BaseModel, cfg: Config, image: np.ndarray) -> Tensor:
    """Return (1, 3, H, W), normalised as the test pipeline and the model's data preprocessor do it.

    Args:
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


class Analysis:
    """Draws the attention of one model on images, and measures it.

    Args:
        model: result of :func:`build`.
        args: the command line.
        scores: the function of :func:`scores_of` with ``--cam``.

    Raises:
        UserError: no block's attention can be recorded.
    """

    def __init__(self, model: Model, args: argparse.Namespace, scores: Run | None):
        self.model, self.cfg, self.classes, self.args, self.scores = (
            model.network, model.cfg, model.classes, args, scores)
        self.side = args.short_side or short_side_of(model.cfg)
        self.backbone = find_cvt(model.network)
        self.blocks = recordable_blocks(self.backbone)
        self.last = f'stage{len(self.backbone.depths) - 1}'
        if not self.blocks:
            raise UserError(f'The attention of no block can be recorded. {self.left_out()} Choose another '
                            'model.backbone.attn_cfg.')

    def left_out(self) -> str:
        """Return a sentence with the blocks whose attention cannot be recorded and its types; '' if there are none."""
        names = [name for name in block_names(self.backbone) if name not in self.blocks]
        types = {type(self.backbone.get_submodule(name).attn).__name__ for name in names}
        return (f'This tool does not know the weights of {", ".join(sorted(types))} with the settings of '
                f'{", ".join(names)}.') if names else ''

    def __call__(self, path: Path, out: Path) -> dict[str, Any]:
        """Draw one image and return its numbers."""
        photo = open_image(path).convert('RGB')
        factor = self.side / min(photo.size) if self.side else 1
        size = tuple(max(16, round(side * factor)) for side in photo.size)
        image = np.asarray(photo.resize(size, Image.Resampling.BICUBIC))
        points = [(x * (size[0] / photo.width), y * (size[1] / photo.height)) for x, y in self.args.point]
        x = network_input(self.model, self.cfg, image)
        last_stage = [name for name in self.blocks if name.startswith(self.last)]
        with torch.no_grad(), record_attention(self.model, self.blocks, ['cls', *points, SAMPLE]) as records, \
                record_attention(self.model, last_stage, 'all', average_heads=True) as stage:
            self.backbone(x)
        blocks = {}
        for name, record in records.items():
            record = record.select(SAMPLE)
            blocks[name] = {key: [round(value, 4) for value in measure(record).tolist()] for key, measure in (
                ('distance_px', attention_distance), ('entropy', attention_entropy), ('rank', effective_rank))}
        first = [Panel('input', points=points)]
        if len(last_stage) == self.backbone.depths[-1]:
            first += self._overview(records, list(stage.values()))
        if self.scores is not None:
            first.append(self._cam(x))
        rows = [first, *(self._point(records, point) for point in points)]
        with atomic_path(out) as partial:
            draw(image, rows, blocks, path.name, partial)
        return dict(size=list(image.shape[:2]), sampled_queries=SAMPLE, blocks=blocks)

    def _overview(self, records: dict, stage: list) -> list[Panel]:
        last, cls_row = stage[-1], int(self.backbone.out_type == 'cls_token')
        panels = []
        if last.num_cls:
            record = records[last.block].select('cls')
            panels.append(self._panel(f'CLS attention, {last.block}', attention_map(record)[0, :, 0].mean(0),
                                      record.key_places[record.num_cls:]))
        start = torch.zeros(1, len(last.queries))
        if cls_row:
            start[0, 0] = 1.
        else:
            start[0, last.num_cls:] = 1 / (len(last.queries) - last.num_cls)
        rolled = rollout(stage, start)[0, 0, last.num_cls:].unflatten(0, last.hw_shape)
        title = f'rollout in {self.last}, of ' + ('CLS' if cls_row else "the map's mean")
        return [*panels, self._panel(title, rolled, last.token_places[last.num_cls:])]

    def _point(self, records: dict, point: tuple[float, float]) -> list[Panel]:
        panels = []
        for i, depth in enumerate(self.backbone.depths):
            name = f'stage{i}.blocks.{depth - 1}'
            if name not in records:
                continue
            record = records[name].select(point)
            heat = attention_map(record)[0, :, 0].mean(0)
            places = record.key_places[record.num_cls:]
            panels.append(self._panel(f'the point in {record.block}', heat, places, [point]))
        return panels

    @staticmethod
    def _panel(title: str, heat: Tensor, places: Tensor, points: Any = ()) -> Panel:
        return Panel(title, heat.cpu().numpy(), extent_of(places.numpy(), tuple(heat.shape)), points)

    def _cam(self, x: Tensor) -> Panel:
        with torch.no_grad():
            index = find_class(self.args.cam, self.classes, self.scores(x))
        heat = class_activation(self.model, x, self.scores, index).numpy()
        name = self.classes[index] if index < len(self.classes) else index
        return Panel(f'Grad-CAM of {name}', heat, (-0.5, heat.shape[1] - 0.5, heat.shape[0] - 0.5, -0.5))


def check_points(points: list[tuple[float, float]], images: list[Path]) -> None:
    """Raise a UserError if an image cannot be read, or a point is outside of one."""
    for path in images:
        try:
            width, height = open_image(path).size
        except Exception as error:  # Pillow raises anything from SyntaxError to struct.error on broken files
            raise UserError(f'image {path} cannot be read: {" ".join(str(error).split())}') from error
        for x, y in points:
            if not (0 <= x < width and 0 <= y < height):
                raise UserError(f'--point {x:g},{y:g} is outside of {path}, which is {width} pixels wide and {height} '
                                f'high: give 0,0 to {width - 1},{height - 1}.')


def main(argv: Sequence[str] | None = None) -> None:
    """Draw where the network of the command line attends to."""
    args = build_parser().parse_args(argv)
    out_dir = Path(args.out_dir)
    with command_line.report_errors(ValueError):  # find_cvt raises it
        images = find_images(args.images)
        pictures = name_pictures(images, out_dir)
        check_outputs([*pictures, out_dir / 'attention.json'], args.force, images)
        check_points(args.point, images)
        if args.short_side is not None:
            command_line.check_value('--short-side', args.short_side, 1)
        model = build(args)
        analysis = Analysis(model, args, scores_of(model.network) if args.cam is not None else None)
        if analysis.left_out():
            print(analysis.left_out())
    with command_line.report_errors(OSError):
        numbers = {}
        for path, out in zip(images, pictures):
            numbers[str(path)] = found = analysis(path, out)
            means = {key: np.mean([np.mean(block[key]) for block in found['blocks'].values()])
                     for key in ('distance_px', 'entropy')}
            print(f'{path} -> {out}: mean attention distance {means["distance_px"]:.1f} pixels, entropy '
                  f'{means["entropy"]:.2f} of log(keys)', flush=True)
        write_atomically(out_dir / 'attention.json', json.dumps(dict(
            config=args.config, checkpoint=args.checkpoint, images=numbers), indent=1) + '\n')
        print(f'numbers of every block and head -> {out_dir / "attention.json"}')


if __name__ == '__main__':
    main()
