"""Measures the time and memory of backbones beside each other, in inference or in training steps.

    python benchmarks/speed.py cvt-13 cvt-13+fused configs/maskrcnn_cvt13_coco_win.py+fused convnext_tiny \\
        --size 800x1344 --batch 1 --dtype bfloat16
    python benchmarks/speed.py CvT-13=cvt-13 'CvT-13 of transformers=transformers' --size 512 --batch 2 --train \\
        --json benchmarks/speed.json --machine 'AMD EPYC (Zen 5)'

A network is an architecture of CvT, a config, whose backbone is measured, 'transformers' for the CvT-13 of that
library, or a network of timm. '+fused' folds BatchNorm, '+compiled' uses torch.compile, and '+openvino' and
'+onnxruntime' run the exported file. The networks run in turns, one round after the other. Memory is the peak of
weights, activations and gradients, without an optimizer: on a CPU the growth of a fresh process.
"""
import argparse
import json
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import timm
import torch
from mmcv.cnn import fuse_conv_bn
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, DefaultScope
from torch import Tensor, nn

from cvt_dense.atomic import write_atomically
from cvt_dense.cli.command_line import parse_size
from cvt_dense.deploy.export import Exporter
from cvt_dense.deploy.runtime import open_exported
from cvt_dense.models import CvT

RUNTIMES = dict(openvino='.xml', onnxruntime='.onnx')
FEATURES = ('avx2', 'avx_vnni', 'avx512f', 'avx512_vnni', 'avx512_bf16', 'amx_bf16', 'amx_int8')  # Linux's names
STATUS = Path('/proc/self/status')  # of Linux


def environment(device: str) -> dict[str, Any]:
    """Return the versions, the load and the name of a device ('cpu' or 'cuda') of this machine."""
    info = Path('/proc/cpuinfo')
    cpu = dict(re.findall(r'^(model name|flags)\s*: (.*)', info.read_text(), re.M)) if info.exists() else {}
    name = torch.cuda.get_device_name() if device == 'cuda' else cpu.get('model name') or platform.machine()
    return dict(device=name, features=[feature for feature in FEATURES if feature in cpu.get('flags', '').split()],
                threads=torch.get_num_threads(), torch=torch.__version__, timm=timm.__version__,
                python=platform.python_version(), load_of_last_minutes=os.getloadavg())


def build(name: str, size: tuple[int, int], train: bool) -> nn.Module:
    """Build a network with random weights on the CPU, without its options but '+fused'.

    Args:
        name: network, see the top of this file.
        size: (H, W) of the images in pixels.
        train: training mode.
    """
    network, *options = name.split('+')
    torch.manual_seed(0)
    if network in CvT.arch_zoo:
        model = CvT(network)
    elif network == 'transformers':
        from transformers import CvtConfig, CvtModel
        model = CvtModel(CvtConfig())
    elif network.endswith('.py'):
        cfg = Config.fromfile(network)
        with DefaultScope.overwrite_default_scope(cfg.get('default_scope') or 'mmengine'):
            model = revert_sync_batchnorm(MODELS.build(dict(cfg.model.backbone, init_cfg=None)))
    else:
        img_size = dict(img_size=size) if network.startswith('swin') else {}
        model = timm.create_model(network, features_only=True, **img_size)
    model.train(train)
    return fuse_conv_bn(model) if 'fused' in options else model


def export(name: str, args: argparse.Namespace, folder: Path) -> Path | None:
    """Write the exported file of a network with '+openvino' or '+onnxruntime' into a folder; None for another one."""
    runtime = next((option for option in name.split('+')[1:] if option in RUNTIMES), None)
    if runtime is None:
        return None
    model = nn.Module()
    model.backbone, model.data_preprocessor = build(name, args.size, args.train), nn.Identity()
    exporter = Exporter(model, args.size, dict(classes=None, config=name, config_hash=''), part='backbone',
                        report=partial(print, file=sys.stderr))
    file = folder / f'{runtime}{RUNTIMES[runtime]}'
    if not exporter.export(file, 'bf16' if args.dtype == 'bfloat16' else 'fp32'):
        sys.exit(f'{name}: the exported file differs from PyTorch.')
    return file


def prepare(name: str, args: argparse.Namespace, file: Path | None) -> Callable[[], Any]:
    """Return the function that runs one step of a network, or of its exported file."""
    images = torch.rand(args.batch, 3, *args.size, device=args.device)
    if file is not None:
        return partial(open_exported(file), images)
    model = build(name, args.size, args.train).to(args.device)
    if 'compiled' in name.split('+'):
        model.compile(dynamic=False)
    return partial(step, model, images, args)


def step(model: nn.Module, images: Tensor, args: argparse.Namespace) -> None:
    """Run one forward pass on images (B, 3, H, W), in training with the backward pass."""
    with (torch.autocast(args.device, torch.bfloat16, enabled=args.dtype == 'bfloat16'),
          torch.inference_mode(not args.train)):
        outputs = model(images)
    if args.train:
        maps = outputs if isinstance(outputs, (tuple, list)) else [outputs.last_hidden_state]
        sum(x.float().mean() for x in maps).backward()
        model.zero_grad(set_to_none=True)


def growth(name: str, args: argparse.Namespace, file: Path | None) -> float:
    """Return the GiB by which this process, which should be a fresh one on Linux, grows in one step."""

    def kib(key: str) -> int:
        return next(int(line.split()[1]) for line in STATUS.read_text().splitlines() if line.startswith(key))

    Path('/proc/self/clear_refs').write_text('5')  # resets the peak, which the imports have raised
    before = kib('VmRSS:')
    prepare(name, args, file)()
    return (kib('VmHWM:') - before) / 2**20


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row for each network: the median milliseconds of a step, and GiB."""
    rows, steps = [], []
    workload = f'{args.batch} x ' * (args.batch > 1 or args.train) + 'x'.join(map(str, args.size))
    workload = f'training step, {workload}' if args.train else f'{workload}, {args.dtype}'
    with TemporaryDirectory() as folder:
        for text in args.networks:
            title, _, name = text.rpartition('=')
            file = export(name, args, Path(folder))
            gib = None
            if args.device == 'cpu' and STATUS.exists():
                with ProcessPoolExecutor(1, mp_context=get_context('spawn')) as pool:
                    gib = pool.submit(growth, name, args, file).result()
            before = torch.cuda.memory_allocated()
            run = prepare(name, args, file)
            for _ in range(2):  # compiles
                run()
            if args.device == 'cuda':
                torch.cuda.reset_peak_memory_stats()
                run()
                gib = (torch.cuda.max_memory_allocated() - before) / 2**30
            title = (title or name) + f', {args.dtype}' * args.train
            rows.append(dict(workload=workload, network=title, machine=args.machine, gib=gib and round(gib, 3)))
            steps.append(run)
        times: list[list[float]] = [[] for _ in steps]
        for _ in range(args.rounds):
            for run, seconds in zip(steps, times):
                start = time.perf_counter()
                run()
                if args.device == 'cuda':
                    torch.cuda.synchronize()
                seconds.append(time.perf_counter() - start)
    for row, seconds in zip(rows, times):
        row['ms'] = round(1000 * statistics.median(seconds), 1)
    return rows


def write(path: Path, rows: list[dict[str, Any]], device: str) -> None:
    """Write rows into a JSON file, in which they replace those of the same workload, network and machine."""
    key = ('workload', 'network', 'machine')
    new = {tuple(row[name] for name in key): row for row in rows}
    old = json.loads(path.read_text())['rows'] if path.exists() else []
    merged = {tuple(row[name] for name in key): row for row in old} | new
    content = dict(environment=environment(device), rows=list(merged.values()))
    write_atomically(path, json.dumps(content, indent=1) + '\n')


def main() -> None:
    """Measure the networks of the command line, and print a table with the ratio of each time to the first."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('networks', nargs='+', metavar='[TITLE=]NETWORK[+OPTION...]', help='see the top of the file')
    parser.add_argument('--size', type=parse_size, default=(224, 224), metavar='HxW', help='images (224x224)')
    parser.add_argument('--batch', type=int, default=8, help='images per step (8)')
    parser.add_argument('--dtype', choices=('float32', 'bfloat16'), default='float32')
    parser.add_argument('--train', action='store_true', help='forward and backward pass instead of inference')
    parser.add_argument('--rounds', type=int, default=11, help='timed rounds (11)')
    parser.add_argument('--device', choices=('cpu', 'cuda'), default='cuda' if torch.cuda.is_available() else 'cpu')
    parser.add_argument('--json', type=Path, metavar='FILE', help='add the rows to this file, such as speed.json')
    parser.add_argument('--machine', default=platform.node(), help="name of the machine in the file (the host's)")
    args = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    rows = measure(args)
    print(f'{rows[0]["workload"]:56}{"ms":>9}{"x first":>9}{"GiB":>9}')
    for row in rows:
        gib = '-' if row['gib'] is None else f'{row["gib"]:.2f}'
        print(f'{row["network"]:56}{row["ms"]:9.1f}{row["ms"] / rows[0]["ms"]:9.2f}{gib:>9}')
    if args.json:
        write(args.json, rows, args.device)


if __name__ == '__main__':
    main()
