"""``benchmark.py parts``: the time of each part of detectors and segmentors.

From normalised images to final boxes, masks or label maps, with random weights, one image a step. ``post`` is what no
module does: decoding boxes, NMS, pasting masks, resizing and choosing classes. 1,000 class scores pass a detector's
threshold, because few do in a trained one; of random scores all or none would.
"""
import argparse
import importlib.util
import statistics
import time
from collections import defaultdict
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.model import BaseModel, revert_sync_batchnorm
from mmengine.registry import MODELS, DefaultScope
from torch import nn

from ...deploy.cpu import use_cpu_kernels
from ...deploy.fuse import fuse
from ...launch import command_line
from ...models import CvT
from ..random_batch import parse_size, random_batch
from .report import write_json

HELP = 'the time of backbone, neck, heads and post-processing of whole detectors and segmentors'
PARTS = ('backbone', 'neck', 'heads', 'post')
CANDIDATES = 1000  # class scores that pass to NMS


def config_file(name: str) -> Path:
    """Return the file of a config; 'mmdet::swin/NAME.py' is a file of an installed package."""
    package, _, path = name.rpartition('::')
    return Path(importlib.util.find_spec(package).origin).parent / '.mim/configs' / path if package else Path(name)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments to a parser."""
    parser.add_argument('configs', nargs='+', metavar='CONFIG',
                        help="config files, or a package's: mmdet::swin/NAME.py")
    parser.add_argument('--size', type=parse_size, metavar='HxW', default=(800, 1344), help='image (800x1344)')
    parser.add_argument('--rounds', type=int, default=11, help='timed rounds; medians are reported (11)')
    parser.add_argument('--fuse', action='store_true', help='fuse models with a CvT, as tools/test.py does')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write every number there')


def build(name: str) -> BaseModel:
    """Return the model of a config with random weights, in evaluation mode."""
    cfg = Config.fromfile(config_file(name))
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope(cfg.get('default_scope') or 'mmengine'):
        return revert_sync_batchnorm(MODELS.build(cfg.model)).eval()


def pass_candidates(model: BaseModel, batch: dict) -> None:
    """Set the score threshold of a detector's second stage, if it has one, so that :data:`CANDIDATES` scores reach it.

    Args:
        model: the model.
        batch: inputs of ``model.predict``.
    """
    if not hasattr(model, 'roi_head'):
        return
    heads, scores = model.roi_head, []
    last = heads.bbox_head[-1] if isinstance(heads.bbox_head, nn.ModuleList) else heads.bbox_head
    hook = last.register_forward_hook(lambda module, inputs, out: scores.append(out[0].softmax(1)[:, :-1].flatten()))
    model.predict(*batch.values())
    hook.remove()
    heads.test_cfg.score_thr = float(scores[0].topk(min(CANDIDATES, len(scores[0]))).values[-1])


class Stopwatch:
    """Adds up the seconds that modules take; those of a nested module count once."""

    def __init__(self, model: BaseModel):
        self.spent: dict[str, float] = defaultdict(float)
        self._inside = 0
        for name, child in model.named_children():
            if name == 'data_preprocessor':
                continue
            part = name if name in PARTS else 'heads'
            for module in child.modules() if part == 'heads' else [child]:  # heads of heads are not called
                module.register_forward_pre_hook(self._enter)
                module.register_forward_hook(lambda *_, part=part: self._leave(part))

    def _enter(self, *_) -> None:
        if not self._inside:
            self._start = time.perf_counter()
        self._inside += 1

    def _leave(self, part: str) -> None:
        self._inside -= 1
        if not self._inside:
            self.spent[part] += time.perf_counter() - self._start


@torch.inference_mode()
def run(args: argparse.Namespace) -> None:
    """Measure the parts of each model and print the table."""
    runs = {}
    with command_line.report_errors(ValueError, FileNotFoundError):
        command_line.check_value('--rounds', args.rounds, 1)
        for name in args.configs:
            model = build(name)
            if args.fuse:
                if isinstance(model.backbone, CvT):
                    fuse(model)
                use_cpu_kernels(model)
            batch = random_batch(model, 1, args.size)
            pass_candidates(model, batch)
            runs[name] = model, batch, Stopwatch(model)
            model.predict(*batch.values())  # warms up
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
    for _ in range(args.rounds):
        for name, (model, batch, watch) in runs.items():
            watch.spent.clear()
            start = time.perf_counter()
            model.predict(*batch.values())  # by position: mmdet and mmseg name them differently
            whole = time.perf_counter() - start
            watch.spent['post'] = whole - sum(watch.spent.values())
            rounds[name].append({'whole': whole, **watch.spent})
    print(f'{"ms, " + "x".join(map(str, args.size)):56}', *(f'{part:>9}' for part in ('whole', *PARTS)))
    rows = []
    for name, spent in rounds.items():
        row = {part: 1e3 * statistics.median(times.get(part, 0.) for times in spent) for part in ('whole', *PARTS)}
        print(f'{name[-56:]:56}', *(f'{value:9.1f}' for value in row.values()))
        rows.append(dict(config=name, **{f'{part}_ms': value for part, value in row.items()}))
    write_json(args, rows, 'cpu')
