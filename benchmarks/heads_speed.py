"""Time whole exported networks beside PyTorch in one run.

    python benchmarks/heads_speed.py FOLDER IMAGE [--threads 2] [--rounds 15]

FOLDER has a checkpoint NAME.pth and files of tools/export.py, NAME_PRECISION.SUFFIX, of every config
benchmarks/heads/NAME.py that is to be timed. PyTorch runs the prediction methods that are in the files, so that all
columns do the same work. IMAGE is resized to the size of the network's files, or if that is free to --size. Calls
alternate, and the medians of their milliseconds are printed as a table.
"""
import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from cvt_dense.deploy.cpu import use_cpu_kernels
from cvt_dense.deploy.fuse import fuse
from cvt_dense.deploy.networks import Network
from cvt_dense.deploy.runtime import open_exported
from cvt_dense.inference import load

FILES = {'ONNX Runtime': 'fp32.onnx', 'ONNX Runtime, int8': 'int8.onnx', 'OpenVINO': 'fp32.xml',
         'OpenVINO, bf16': 'bf16.xml', 'OpenVINO, int8': 'int8.xml'}


def columns(checkpoint: Path) -> dict[str, Callable[[torch.Tensor], object]]:
    """Return a function of a normalised image for PyTorch, PyTorch with fused layers, and each file."""
    model = load(ROOT / f'benchmarks/heads/{checkpoint.stem}.py', checkpoint, device='cpu').network
    fused = copy.deepcopy(model)
    fuse(fused)
    use_cpu_kernels(fused)
    files = {name: checkpoint.with_name(f'{checkpoint.stem}_{file}') for name, file in FILES.items()}
    return {'PyTorch': Network(model), 'PyTorch, fused': Network(fused),
            **{name: open_exported(file) for name, file in files.items()}}


def main() -> None:
    """Print a table with a row for each network."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('folder', type=Path)
    parser.add_argument('image', type=Image.open)
    parser.add_argument('--size', type=int, default=480, help='side of the image for files that take any size')
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--rounds', type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = []
    for path in sorted(args.folder.glob('*.pth')):
        calls = columns(path)
        about = calls['OpenVINO'].metadata
        height, width = about['input_size'] or (args.size, args.size)
        pixels = np.array(args.image.convert('RGB').resize((width, height)))
        image = torch.tensor((pixels - about['mean']) / about['std'], dtype=torch.float32).permute(2, 0, 1)[None]
        rows.append((f'{path.stem}, {height}x{width}', image.contiguous(), calls, {name: [] for name in calls}))
    for _ in range(args.rounds + 2):
        for _, image, calls, times in rows:
            for name, call in calls.items():
                start = time.perf_counter()
                with torch.inference_mode():
                    call(image)
                times[name].append((time.perf_counter() - start) * 1000)
    print(f'| one image, ms, {args.threads} threads | ' + ' | '.join(rows[0][-1]) + ' |')
    print('|---' * (len(rows[0][-1]) + 1) + '|')
    for name, _, _, times in rows:
        medians = [f'{statistics.median(values[2:]):.0f}' for values in times.values()]  # two rounds to warm up
        print(f'| {name} | ' + ' | '.join(medians) + ' |')


if __name__ == '__main__':
    main()
