"""Runs training steps on a GPU that is not there: which kernels, data types and devices they use, and their memory.

    python benchmarks/fake_cuda.py configs/maskrcnn_cvt13_coco.py --size 800x1280 --options windowed,dropout

Needs PyTorch's CUDA build, gcc and the headers of a CUDA toolkit ($CUDA_HOME), but no driver, for which ``fake_cuda.c``
answers, and this package, installed by ``pip install -e .`` or named by PYTHONPATH. Fake tensors are on 'cuda': the
operators are those that an H100 would get, none is computed, and there is neither a value, nor a speed, nor NCCL. What
depends on values is left out as in ``plan.py``, and networks with deformable attention, which reads values on the GPU,
do not run. The last columns are the graphs and breaks of ``torch.compile``.
"""
import argparse
import os
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WINDOWS = dict(type='cvt_dense.WindowedAttention', window_size=28)
OPTIONS = dict(
    dropout=dict(attn_drop_rate=0.1),
    windowed=dict(attn_cfg=[WINDOWS, WINDOWS, None]),
    with_cp=dict(with_cp=True))


def preload() -> None:
    """Build the library, and start this script again with it in front of CUDA's."""
    folder = Path(mkdtemp())
    toolkit = Path(os.environ.get('CUDA_HOME', '/usr/local/cuda'))
    subprocess.run(['gcc', '-shared', '-fPIC', '-w', f'-I{toolkit}/include', Path(__file__).with_suffix('.c'), '-o',
                    folder / 'libcuda.so.1'], check=True)
    os.environ.update(LD_PRELOAD=str(folder / 'libcuda.so.1'), LD_LIBRARY_PATH=str(folder))
    os.execv(sys.executable, [sys.executable, *sys.argv])


class Seen(TorchDispatchMode):
    """Counts the operators, those of floating point that compute in float32, and tensors that are not on CUDA."""

    def __init__(self):
        super().__init__()
        self.operators, self.float32, self.elsewhere = Counter(), Counter(), Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        self.operators[name] += 1
        leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.elsewhere[name] += sum(leaf.device.type != 'cuda' for leaf in leaves)
        if leaves and leaves[0].dtype == torch.float32 and leaves[0].numel() > 1e5 and not function.is_view:
            self.float32[name] += name not in ('_to_copy', 'randn')
        return result


def seen(path: str, batch: int, size: tuple[int, int], dtype: torch.dtype, **backbone: Any) -> list[str]:
    """Return what one training step of a config uses: attention, operators in float32 and on the CPU, and GiB.

    Args:
        path: config.
        batch: number of images.
        size: their (H, W) in pixels.
        dtype: autocast's, or float32.
        backbone: settings of the backbone to override.
    """
    from plan import step

    from cvt_dense.cli.get_flops import build_model
    with torch.device('meta'):
        model = build_model(path, **backbone).train()
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device('cuda'):
        model.to_empty(device='cuda')
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        memory = MemTracker()
        memory.track_external(model, optimizer)
        with memory, Seen() as forward:
            with torch.autocast('cuda', dtype, enabled=dtype != torch.float32):
                loss = step(model, batch, size)
            with Seen() as backward:
                loss.backward()
                optimizer.step()
    peak = memory.get_tracker_snapshot('peak')[torch.device('cuda:0')]['Total']
    attention = Counter({name.removeprefix('_scaled_dot_product_'): number for name, number
                         in (forward.operators - backward.operators).items() if 'attention' in name})
    float32 = forward.float32 - backward.float32 if dtype != torch.float32 else {}
    return [_list(attention), _list(float32), _list(+(forward.elsewhere + backward.elsewhere)), f'{peak / 2**30:.1f}']


def _list(numbers: Any) -> str:
    return ', '.join(f'{number} {name}' for name, number in sorted(numbers.items(), key=lambda pair: -pair[1]))


def compiled(path: str, **backbone: Any) -> list[str]:
    """Return how many graphs ``torch.compile`` makes of a network with its heads, and why it breaks them."""
    from plan import outputs

    from cvt_dense.cli.get_flops import build_model
    model = build_model(path, **backbone).train()
    about = torch._dynamo.explain(lambda images: outputs(model, images))(
        torch.randn(2, model.backbone.in_channels, 64, 64))
    return [str(about.graph_count), '; '.join(reason.reason.partition('\n')[0] for reason in about.break_reasons)]


def main() -> None:
    """Print the table of the configs, precisions and options that the command line names."""
    if 'libcuda.so.1' not in os.environ.get('LD_PRELOAD', ''):
        preload()
    from mmengine.config import Config
    from mmengine.logging import MMLogger
    from plan import training_size

    from cvt_dense.cli.get_flops import parse_size
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('configs', nargs='+', metavar='CONFIG', help='config file')
    parser.add_argument('--size', type=parse_size, metavar='HxW', help="training image (the config's crop)")
    parser.add_argument('--options', default='', help=f"options of the backbone: {', '.join(OPTIONS)}")
    args = parser.parse_args()
    MMLogger.get_current_instance().setLevel('WARNING')
    print('| config | option | precision | attention | in float32 | not on the GPU | GiB | graphs | breaks |\n'
          + 9 * '|---' + '|')
    options = ['', *filter(None, args.options.split(','))]
    for path, option, dtype in product(args.configs, options, ('float32', 'bfloat16')):
        cfg = Config.fromfile(path)
        cells = seen(path, cfg.train_dataloader.batch_size, args.size or training_size(cfg), getattr(torch, dtype),
                     **OPTIONS.get(option, {})) + compiled(path, **OPTIONS.get(option, {}))
        print(f'| {Path(path).stem} | {option} | {dtype} | {" | ".join(cells)} |', flush=True)


if __name__ == '__main__':
    main()
