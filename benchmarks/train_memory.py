"""Estimates the memory of a detector's training step without computing it, by PyTorch's fake tensors.

    python benchmarks/train_memory.py configs/maskrcnn_cvtw24_coco.py --size 800x1333 --batch 1,2 --out FILE.json

Fake tensors have a size and no content; :class:`Alive` adds up those that are alive, as
``torch.distributed._tools.mem_tracker`` does in time that grows with the square of their number. A step is: backbone,
neck and heads forward, backward, and AdamW. The region heads get 512 regions an image, 128 of them with masks, as Mask
R-CNN trains. Left out are what has no fixed size (targets, losses, proposals), the allocator's unused memory and
cuDNN's workspaces. The rows are without and with ``with_cp``, and with windows, in float32 and under autocast to
bfloat16.
"""
import argparse
import json
import sys
import weakref
from pathlib import Path

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / 'tools'), str(ROOT)]
from mmengine.logging import MMLogger

from cvt_dense.atomic import write_atomically
from cvt_dense.cli.random_batch import build_model, parse_size

WINDOWS = dict(type='cvt_dense.WindowedAttention', window_size=28)
VARIANTS = {'plain': dict(with_cp=False), 'windows': dict(with_cp=False, attn_cfg=WINDOWS),
            'with_cp': dict(with_cp=True), 'with_cp, windows': dict(with_cp=True, attn_cfg=WINDOWS)}


class Alive(TorchDispatchMode):
    """Counts the bytes of the storages that operations allocate until they are freed.

    Attributes:
        bytes: those that are alive now.
        peak: the most that were alive at once.
    """

    def __init__(self):
        super().__init__()
        self.bytes = self.peak = 0
        self.known = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.count(tensor)
        self.peak = max(self.peak, self.bytes)
        return result

    def count(self, tensor: torch.Tensor) -> None:
        """Count a tensor's storage, once, until it is freed."""
        storage = tensor.untyped_storage()
        if id(storage) not in self.known:
            self.known.add(id(storage))
            self.bytes += storage.nbytes()
            weakref.finalize(storage, self._free, id(storage), storage.nbytes()).atexit = False

    def _free(self, name: int, size: int) -> None:
        self.known.remove(name)
        self.bytes -= size


def outputs(model: torch.nn.Module, images: torch.Tensor) -> list[torch.Tensor]:
    """Return what the detector's losses are computed from, of images (N, 3, H, W)."""
    maps = model.extract_feat(images)
    found = [*maps]
    if hasattr(model, 'rpn_head'):
        found += [map for level in model.rpn_head(maps) for map in level]
    if hasattr(model, 'roi_head'):
        channels, n = maps[0].shape[1], len(images)
        found += model.roi_head.bbox_head(torch.randn(512 * n, channels, 7, 7, requires_grad=True))
        found += [model.roi_head.mask_head(torch.randn(128 * n, channels, 14, 14, requires_grad=True))]
    return found


def memory(config: str, size: tuple[int, int], batch: int, amp: bool, **backbone: object) -> dict[str, float]:
    """Return the GiB of a training step and of parts of it.

    ``states`` are weights and AdamW's averages, ``neck`` is what the neck's forward pass keeps, and ``peak`` is the
    most that is alive at once.

    Args:
        config: config file of a detector.
        size: (H, W) of the images in pixels.
        batch: number of images.
        amp: whether the forward pass runs under autocast to bfloat16.
        backbone: settings of the backbone to override.
    """
    with torch.device('meta'):
        model = build_model(config, **backbone).train()
    with FakeTensorMode(allow_non_fake_inputs=True):
        model.to_empty(device='cpu')
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()  # creates the averages
        optimizer.zero_grad()
        with Alive() as alive:
            for tensor in [*model.state_dict().values(), *tree_leaves(optimizer.state_dict()['state'])]:
                alive.count(tensor)
            states = alive.bytes
            marks = []
            model.neck.register_forward_pre_hook(lambda *_: marks.append(alive.bytes))
            model.neck.register_forward_hook(lambda *_: marks.append(alive.bytes))
            images = torch.randn(batch, 3, *size)
            with torch.autocast('cpu', torch.bfloat16, enabled=amp):
                found = outputs(model, images)
                loss = sum(output.float().mean() for output in found)
            loss.backward()
            optimizer.step()
    parts = dict(states=states, neck=marks[1] - marks[0], peak=alive.peak)
    return {name: round(number / 2**30, 2) for name, number in parts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config')
    parser.add_argument('--size', type=parse_size, default=(800, 1333))
    parser.add_argument('--batch', type=lambda text: [int(part) for part in text.split(',')], default=[1, 2])
    parser.add_argument('--out', required=True)
    args = parser.parse_args()
    MMLogger.get_current_instance().setLevel('WARNING')
    rows = []
    for name, settings in VARIANTS.items():
        for amp in (False, True):
            for batch in args.batch:
                rows.append(dict(variant=name, amp='bf16' if amp else 'fp32', images=batch,
                                 **memory(args.config, args.size, batch, amp, **settings)))
                print(rows[-1], flush=True)
    write_atomically(Path(args.out), json.dumps(dict(
        config=args.config, size=args.size, torch=torch.__version__, rows=rows), indent=1) + '\n')


if __name__ == '__main__':
    main()
