"""A full-size detector beside MMDetection's Swin-T on real images: seconds, memory and loss of training iterations.

    PYTHONPATH=. python benchmarks/beside_swin.py DATA_ROOT OUT [--scale 512,320] [--batch 2] [--iterations 20]

DATA_ROOT is laid out as COCO's. Both train from scratch on the same batches, of maskrcnn_cvt13_coco_win's pipeline,
with their own configs' optimizers and the same heads, each in a process of its own with all cores. They take turns, an
iteration each, so that a slow minute of the machine is slow for both. Writes OUT/beside_swin.json and prints a table.
"""
import argparse
import json
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path

OURS = 'maskrcnn_cvt13_coco_win'
CONFIGS = {OURS: f"__import__('cvt_dense').recipe('{OURS}.py')",
           'mask-rcnn_swin-t-p4-w7_fpn_1x_coco': "'mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py'"}


def gib(key: str) -> float:
    """Return VmRSS or VmHWM of this process in GiB."""
    lines = Path('/proc/self/status').read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 2**20


def train(name: str, data_root: str, scale: tuple[int, int], batch: int, turns: Connection) -> None:
    """Train an iteration for each message, and answer with its seconds, its loss and the memory so far."""
    from mmengine.config import Config
    from mmengine.logging import MMLogger
    from mmengine.optim import build_optim_wrapper
    from mmengine.registry import MODELS, init_default_scope
    from mmengine.runner import Runner, set_random_seed
    MMLogger.get_instance('beside_swin', log_level='ERROR')
    ours, cfg = (Config.fromstring(f'_base_ = {CONFIGS[key]}', '.py') for key in (OURS, name))
    init_default_scope('mmdet')
    loader = ours.train_dataloader
    loader.update(batch_size=batch, num_workers=0, persistent_workers=False)
    loader.dataset.update(data_root=data_root)
    for step in loader.dataset.pipeline:
        if step.type == 'Resize':
            step.scale = scale
    batches = iter(Runner.build_dataloader(loader, seed=0))
    cfg.model.backbone.init_cfg = None
    set_random_seed(0)  # mirror images are NumPy's, the weights torch's
    Path('/proc/self/clear_refs').write_text('5')  # the peak of the imports is forgotten
    before = gib('VmRSS:')
    model = MODELS.build(cfg.model).train()
    model.init_weights()
    optim_wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    while turns.recv():
        data = next(batches)
        start = time.perf_counter()
        losses = model.train_step(data, optim_wrapper)
        turns.send((time.perf_counter() - start, losses['loss'].item(), gib('VmHWM:') - before))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data_root')
    parser.add_argument('out', type=Path)
    parser.add_argument('--scale', type=lambda text: tuple(map(int, text.split(','))), default=(512, 320))
    parser.add_argument('--batch', type=int, default=2)
    parser.add_argument('--iterations', type=int, default=20)
    args = parser.parse_args()
    context, turns = multiprocessing.get_context('spawn'), {}
    for name in CONFIGS:
        turns[name], theirs = context.Pipe()
        context.Process(target=train, args=(name, args.data_root, args.scale, args.batch, theirs), daemon=True).start()
        theirs.close()
    answers = {name: [] for name in CONFIGS}
    for _ in range(args.iterations):
        for name, pipe in turns.items():
            pipe.send(True)
            answers[name].append(pipe.recv())
    rows = []
    for name, found in answers.items():
        seconds, losses, memory = zip(*found)
        rows.append(dict(config=name, seconds=round(statistics.median(seconds[1:]), 3), gib=round(max(memory), 2),
                         first_loss=round(losses[0], 2), last_loss=round(losses[-1], 2)))
        print(rows[-1])
    print(f'{rows[1]["seconds"] / rows[0]["seconds"]:.2f} times as fast as {rows[1]["config"]}')
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / 'beside_swin.json').write_text(json.dumps(dict(
        scale=args.scale, batch=args.batch, iterations=args.iterations, rows=rows), indent=1) + '\n')


if __name__ == '__main__':
    main()
