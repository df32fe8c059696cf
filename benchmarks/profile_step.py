"""Say which operators a training step of CvT-13 spends its time in: ``python benchmarks/profile_step.py [THREADS]``.

The step is that of ``tools/benchmark.py model cvt-13 --mode train --size 512 --batch 2``.
"""
import sys
from collections import Counter
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cvt_dense import CvT

STEPS = 3
GROUPS = {  # kind, and what the names of its operators contain
    'matrix products (linear layers)': ('addmm', 'aten::mm', 'bmm', 'linear'),
    'attention': ('attention', 'scaled_dot_product', 'softmax'),
    'convolutions': ('conv', ),
    'normalisation': ('norm', ),
    'GELU': ('gelu', ),
    'copies and layouts': ('copy', 'contiguous', 'clone', 'cat', 'pad', 'index', 'fill', 'zero'),
    'sums': ('add', 'sum', 'mul', 'div'),
}


def main() -> None:
    """Print a table."""
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    torch.manual_seed(0)
    model, images = CvT('cvt-13').train(), torch.rand(2, 3, 512, 512)

    def step() -> None:
        model.zero_grad()
        sum(y.mean() for y in model(images)).backward()

    step()
    times: Counter[str] = Counter()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(STEPS):
            step()
    for event in profiler.key_averages():
        times[_kind(event.key)] += event.self_cpu_time_total / 1000 / STEPS
    total = sum(times.values())
    print('| kind of operator | ms | share |\n|---|---|---|')
    for kind, milliseconds in times.most_common():
        print(f'| {kind} | {milliseconds:.0f} | {milliseconds / total:.0%} |')


def _kind(operator: str) -> str:
    return next((kind for kind, names in GROUPS.items() if any(name in operator for name in names)), 'others')


if __name__ == '__main__':
    main()
