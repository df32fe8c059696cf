"""Start-up, speed and memory of ImageNet-shaped data: folders, list file, tar files, WebDataset shards and LMDB.

    python benchmarks/endurance.py OUT [--images 200000] [--iterations 10000] [--workers 0,2,8]

Writes the data below OUT once (hard links of a few files; a second call takes them as they are), then measures each
reader and number of workers in a process of its own, prints the measurements and writes them to OUT/endurance.json:

- start-up: seconds and MiB until the checked data set is there, imports left out;
- images/s over the iterations, of which each is a batch of 4 images cut to 64x64;
- growth: MiB of all processes (proportional set size, without mapped files) at the end more than after a tenth of the
  iterations.
"""
import argparse
import json
import multiprocessing
import os
import sys
import tarfile
import time
from concurrent.futures import ProcessPoolExecutor
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / 'tools')]

from cvt_dense.cli.benchmark.report import environment

CLASSES, DISTINCT, SHARDS, BATCH = 1000, 50, 10, 4
READERS = dict(
    folders=dict(split='train'),
    list=dict(split='train', ann_file='train.txt'),
    tar=dict(split='shards'),
    webdataset=dict(split='webdataset'),
    lmdb=dict(split='train', ann_file='train.txt'))


def write(root: Path, images: int) -> None:
    """Write ``train/<class>/*.jpg``, ``train.txt``, ``{shards,webdataset}/*.tar``, ``train.lmdb`` of the same data."""
    import lmdb
    import numpy as np
    from PIL import Image
    if (root / 'done').exists():
        return
    rng = np.random.default_rng(0)
    contents = []
    for number in range(DISTINCT):
        smooth = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8)).resize((120, 90))
        file = BytesIO()
        smooth.save(file, 'JPEG', quality=90)
        contents.append(file.getvalue())
    names = [f'n{label:08d}/{number:06d}.jpg' for label in range(CLASSES) for number in range(images // CLASSES)]
    (root / 'originals').mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(contents):
        (root / 'originals' / f'{number}.jpg').write_bytes(content)
    for label in range(CLASSES):
        (root / 'train' / f'n{label:08d}').mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        (root / 'train' / name).unlink(missing_ok=True)
        os.link(root / 'originals' / f'{number % DISTINCT}.jpg', root / 'train' / name)
    (root / 'train.txt').write_text(''.join(f'{name} {int(name[1:9])}\n' for name in names))
    (root / 'shards').mkdir(exist_ok=True)
    per_class = images // CLASSES
    for shard in range(SHARDS):  # each has whole classes
        # dereference: otherwise a hard link is a name without an image
        with tarfile.open(root / 'shards' / f'{shard:02d}.tar', 'w', dereference=True) as tar:
            for label in range(shard, CLASSES, SHARDS):
                for number in range(label * per_class, (label + 1) * per_class):
                    tar.add(root / 'train' / names[number], names[number])
    (root / 'webdataset').mkdir(exist_ok=True)
    for shard in range(100):
        with tarfile.open(root / 'webdataset' / f'train-{shard:04d}.tar', 'w') as tar:
            for number in range(shard, len(names), 100):
                for suffix, content in ('cls', b'%d' % (number // per_class)), ('jpg', contents[number % DISTINCT]):
                    member = tarfile.TarInfo(f'{number:08d}.{suffix}')
                    member.size = len(content)
                    tar.addfile(member, BytesIO(content))
    with lmdb.open(str(root / 'train.lmdb'), map_size=2**36) as database, database.begin(write=True) as transaction:
        for number, name in enumerate(names):
            transaction.put(f'{root}/train/{name}'.encode(), contents[number % DISTINCT])
    (root / 'done').touch()


def memory() -> float:
    """Return the MiB of this process and its children; pages that they share count once.

    Without pages of mapped files, as LMDB's is: the kernel drops those when it needs room.
    """
    total, pids = 0, [os.getpid(), *(child.pid for child in multiprocessing.active_children())]
    for pid in pids:
        total += sum(int(line.split()[1]) for line in Path(f'/proc/{pid}/smaps_rollup').read_text().splitlines()
                     if line.startswith(('Pss_Anon:', 'Pss_Shmem:')))
    return total / 1024


def measure(root: Path, reader: str, workers: int, images: int, iterations: int) -> dict[str, float]:
    """Return one row of the table; runs in a fresh process."""
    from mmengine.config import Config
    from mmengine.registry import init_default_scope
    from mmengine.runner import Runner

    from cvt_dense.launch.build import load_datasets
    init_default_scope('mmengine')
    settings = dict(READERS[reader])
    if reader == 'lmdb':
        settings['backend_args'] = dict(backend='lmdb', db_path=str(root / 'train.lmdb'))
    transform = dict(input_size=64, is_training=True, auto_augment=None, color_jitter=None)
    cfg = Config(dict(model=dict(num_classes=CLASSES), train_dataloader=dict(
        batch_size=BATCH, num_workers=workers, persistent_workers=workers > 0,
        collate_fn=dict(type='default_collate'), sampler=dict(type='cvt_dense.SeededInfiniteSampler'),
        dataset=dict(type='cvt_dense.ImageDataset', data_root=str(root), transform=transform, **settings))))
    before, start = memory(), time.perf_counter()
    dataset = load_datasets(cfg, ['train'])['train']
    assert len(dataset) == images, f'{reader}: {len(dataset)} of {images} images'
    started, held = time.perf_counter() - start, memory() - before
    cfg.train_dataloader.dataset = dataset
    batches = iter(Runner.build_dataloader(cfg.train_dataloader, seed=0))
    early = 0.
    for iteration in range(iterations):
        next(batches)
        if iteration == iterations // 10:
            early, start = memory(), time.perf_counter()
    seconds = time.perf_counter() - start
    return dict(reader=reader, workers=workers, images=len(dataset), start_s=round(started, 1),
                start_mib=round(held), images_per_s=round(BATCH * (iterations - iterations // 10 - 1) / seconds),
                early_mib=round(early), growth_mib=round(memory() - early, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('out', type=Path)
    parser.add_argument('--images', type=int, default=200_000, help='a multiple of 1000')
    parser.add_argument('--iterations', type=int, default=10_000)
    parser.add_argument('--workers', type=lambda text: [int(part) for part in text.split(',')], default=[0, 2, 8])
    parser.add_argument('--readers', type=lambda text: text.split(','), default=list(READERS))
    args = parser.parse_args()
    root = args.out.resolve()
    write(root, args.images)
    rows = []
    for reader in args.readers:
        for workers in args.workers:
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context('spawn')) as pool:
                try:
                    rows.append(pool.submit(measure, root, reader, workers, args.images, args.iterations).result())
                except Exception as error:
                    rows.append(dict(reader=reader, workers=workers, error=f'{type(error).__name__}: {error}'))
            print(rows[-1], flush=True)
            (root / 'endurance.json').write_text(json.dumps(dict(
                iterations=args.iterations, environment=environment('cpu'), rows=rows), indent=1) + '\n')


if __name__ == '__main__':
    main()
