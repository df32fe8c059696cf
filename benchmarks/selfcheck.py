"""Checks this machine in ten minutes: values, gradients, training and speed on its device, in one table.

    python benchmarks/selfcheck.py                                  # the GPU if there is one, otherwise the CPU
    bash benchmarks/pack_selfcheck.sh FOLDER                        # a copy with its wheels, where there is no network

Needs torch, timm, mmengine and mmcv, and for two of the checks mmdet and mmseg. ``selfcheck.json`` in --out grows with
each result, so an interrupted run leaves the results so far; checks that cannot run here are skipped with the reason.
The exit code is 1 if a check failed.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from mmengine.logging import MMLogger
from mmengine.optim import AmpOptimWrapper, OptimWrapper
from PIL import Image
from random_batch import random_batch
from safetensors.torch import load_file
from speed import environment
from torch import Tensor, nn

from cvt_dense.atomic import write_atomically
from cvt_dense.cli.get_flops import build_model
from cvt_dense.models import CvT
from cvt_dense.pretraining import ImageClassifier

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / 'tests/data/cvt_tiny_golden.safetensors'
ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 2, 2), num_heads=(1, 3, 6))  # of the golden tensors
DTYPES = dict(fp32=torch.float32, tf32=torch.float32, bf16=torch.bfloat16, fp16=torch.float16)
# Relative differences (of Euclidean norms) to float32 on the CPU above which a precision counts as broken.
TOLERANCES = dict(fp32=1e-5, tf32=5e-3, bf16=5e-2, fp16=1e-2)


class Skip(Exception):
    """Tells that a check cannot run here, and why."""


@contextmanager
def precision(name: str, device: str) -> Iterator[None]:
    """Compute in float32 without TF32, with it ('tf32'), or in autocast's mixed precision ('bf16', 'fp16')."""
    if name in ('tf32', 'fp16') and device == 'cpu':
        raise Skip(f'{name} is for GPUs')
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = name == 'tf32'
    with torch.autocast(device, DTYPES[name], enabled=DTYPES[name] != torch.float32):
        yield


def relative(value: Tensor, expected: Tensor) -> float:
    """Return the norm of the difference of two tensors over the norm of the expected one."""
    return float((value.cpu().double() - expected.cpu().double()).norm() / expected.double().norm())


def values(name: str, device: str) -> dict[str, Any]:
    """Compare the logits with those of the authors' code, in one precision."""
    tensors = load_file(GOLDEN)
    model = ImageClassifier(dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token'), num_classes=10)
    prefix = 'state_dict.'
    model.load_state_dict({key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)})
    model = model.eval().to(device)
    with torch.no_grad(), precision(name, device):
        worst = max(relative(model(tensors[f'{image}.input'].to(device)).float(), tensors[f'{image}.eval.logits'])
                    for image in ('square', 'odd'))
    return dict(difference=worst, allowed=TOLERANCES[name], failed=not worst <= TOLERANCES[name])


def problem(device: str, dtype: torch.dtype = torch.float32, **settings: Any) -> tuple[CvT, Tensor, list[Tensor]]:
    """Return a network, two images (2, 3, 64, 80) and maps to learn, which are the same on every device."""
    torch.manual_seed(0)
    model = CvT(ARCH, **settings).eval()
    images = torch.randn(2, 3, 64, 80)
    with torch.no_grad():
        targets = [torch.randn_like(out) for out in model(images)]
    return model.train().to(device, dtype), images.to(device, dtype), [target.to(device, dtype) for target in targets]


def loss_of(outs: tuple[Tensor, ...], targets: list[Tensor]) -> Tensor:
    """Return the sum over maps of the mean squared error."""
    return sum((out.to(target.dtype) - target).square().mean() for out, target in zip(outs, targets))


def gradients(name: str, device: str) -> dict[str, Any]:
    """Compare every gradient of the dense network in one precision with float64 on the CPU."""
    (exact, images, targets), (model, *batch) = problem('cpu', torch.float64), problem(device)
    loss_of(exact(images), targets).backward()
    with precision(name, device):
        loss = loss_of(model(batch[0]), batch[1])
    loss.backward()
    pairs = [(key, value.grad, other.grad) for (key, value), other in zip(exact.named_parameters(), model.parameters())]
    # A vector that is added to every key changes all scores of a query alike: its gradient is 0 up to rounding.
    largest = max(value.norm() for _, value, _ in pairs)
    off = {key: float((found.cpu().double() - value).norm() / (value.norm() + 1e-2 * largest))
           for key, value, found in pairs}
    worst, allowed = max(off, key=off.get), 4 * TOLERANCES[name]
    return dict(difference=off[worst], worst=worst, allowed=allowed, failed=not off[worst] <= allowed)


def training(recipe: str, size: tuple[int, int], device: str) -> dict[str, Any]:
    """Train a recipe's whole model for three steps in the GPU's precision, and count where the host waits in the last.

    The first loss must equal float32's to a tenth, because proposals that change their order change the loss.
    """

    debug = torch.cuda.set_sync_debug_mode if device == 'cuda' else lambda mode: None

    def run(amp: bool) -> tuple[list[float], int | None]:
        torch.manual_seed(0)
        model = build_model(str(ROOT / f'configs/{recipe}.py'), drop_path_rate=0.)
        model.init_weights()
        model.to(device).train()
        batch = random_batch(model, 2, size, device)
        adamw = torch.optim.AdamW(model.parameters(), lr=1e-4)
        wrapper = AmpOptimWrapper(optimizer=adamw, dtype='float16') if amp and device == 'cuda' else OptimWrapper(adamw)
        losses = []
        for _ in range(3):
            torch.manual_seed(0)  # so that the same regions are sampled
            with warnings.catch_warnings(record=True, action='always') as waits:
                debug('warn')
                with wrapper.optim_context(model):
                    loss = model.parse_losses(model(**batch, mode='loss'))[0]
                wrapper.update_params(loss)
                debug('default')
            losses.append(float(loss.detach()))
        with torch.no_grad():
            model.eval()(**batch, mode='predict')
        return losses, sum('synchron' in str(wait.message) for wait in waits) if device == 'cuda' else None

    losses, waits = run(True)
    expected = run(False)[0][0] if device == 'cuda' else losses[0]
    off = abs(losses[0] - expected) / expected
    return dict(loss=losses[0], after=losses[-1], off_fp32=off, host_waits=waits,
                failed=not (off <= 0.1 and losses[-1] < losses[0]))


def _synced(rank: int, folder: str) -> None:
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group('nccl', init_method=f'file://{folder}/store', rank=rank, world_size=2)
    model, images, targets = problem('cuda', norm_cfg=dict(type='SyncBN'))
    model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    loss_of(model(images[rank:rank + 1]), [target[rank:rank + 1] for target in targets]).backward()
    if rank == 0:
        torch.save({key: value.grad.cpu() for key, value in model.module.named_parameters()}, f'{folder}/gradients.pt')
    torch.distributed.destroy_process_group()


def two_processes(device: str) -> dict[str, Any]:
    """Compare DDP with SyncBN on two GPUs with both images on one."""
    if device == 'cpu' or torch.cuda.device_count() < 2:
        raise Skip('there are no two GPUs')
    with tempfile.TemporaryDirectory() as folder, precision('fp32', device):
        torch.multiprocessing.spawn(_synced, (folder, ), nprocs=2)
        found = torch.load(f'{folder}/gradients.pt')
    model, images, targets = problem(device)
    loss_of(model(images), targets).backward()
    difference = max(relative(found[key], value.grad) for key, value in model.named_parameters())
    return dict(difference=difference, failed=not difference <= 1e-3)


def call(seconds: float, *command: str | Path) -> None:
    """Run a script in its own process, so that a crash leaves this one alive, and stop it after a limit of time.

    Raises:
        RuntimeError: the process failed.
    """
    try:
        done = subprocess.run([sys.executable, *command], timeout=max(seconds, 1), text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        return
    if done.returncode:
        raise RuntimeError(done.stdout[-1500:])


def end_to_end(seconds: float, device: str) -> dict[str, Any]:
    """Train a recipe by tools/train.py on photographs of noise, with the loader's workers, for a limited time."""
    recipe, side, batch, images = (
        ('cvt13_in1k', 400, 256, 2048) if device == 'cuda' else ('cvt_nano_shapes', 64, 32, 256))
    with tempfile.TemporaryDirectory() as folder:
        for split, number in (('train', images), ('val', 16)):
            for index in range(number):
                file = Path(folder, 'data', split, f'class{index % 8}', f'{index}.jpg')
                file.parent.mkdir(parents=True, exist_ok=True)
                pixels = torch.randint(255, (side // 8, side // 8, 3), dtype=torch.uint8).numpy()
                Image.fromarray(pixels).resize((side, side)).save(file)
        call(seconds, ROOT / 'tools/train.py', ROOT / f'configs/{recipe}.py', '--data-root', f'{folder}/data',
             '--work-dir', f'{folder}/run', '--cfg-options', 'model.num_classes=8', 'default_hooks.logger.interval=2')
        logs = [json.loads(line) for file in Path(folder, 'run').rglob('scalars.json') for line in file.open()]
    logs = [log for log in logs if 'data_time' in log and 'loss' in log][1:]
    if not logs:
        raise Skip(f'no iteration was logged in {seconds:.0f} s')
    return dict(images_per_s=batch / logs[-1]['time'], share_of_loading=logs[-1]['data_time'] / logs[-1]['time'],
                iterations=logs[-1]['step'], loss=logs[-1]['loss'])


def speed(arguments: str, batch: int, seconds: float, device: str) -> dict[str, Any]:
    """Return images/s and GiB by benchmarks/speed.py."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, 'rows.json')
        call(seconds, ROOT / 'benchmarks/speed.py', *arguments.split(), '--batch', str(batch), '--device', device,
             '--json', file)
        if not file.exists():
            raise Skip(f'took longer than the {seconds:.0f} s that were left')
        rows = json.loads(file.read_text())['rows']
    return {row['network']: f"{1000 * batch / row['ms']:.4g} images/s, {row['gib'] or 0:.3g} GiB" for row in rows}


def checks(device: str, left: Callable[[], float]) -> Iterator[tuple[str, Callable[[str], dict[str, Any]]]]:
    """Yield the name of each check and its function of the device; the most important first, as time may run out."""
    yield 'environment', environment
    for kind in (values, gradients):
        for name in DTYPES:
            yield f'{kind.__name__}, {name}', partial(kind, name)
    for recipe, size in (('maskrcnn_cvt13_coco', (800, 1344)), ('upernet_cvt13_ade20k', (512, 512))):
        yield f'training, {recipe}', partial(training, recipe, size if device == 'cuda' else (96, 128))
    yield 'two processes, SyncBN', two_processes
    yield 'tools/train.py', partial(end_to_end, min(120., left() / 3))
    sizes = (('224', 128), ('800x1344', 2)) if device == 'cuda' else (('64', 2), ('96x160', 1))
    networks = 'cvt-13', 'cvt-21', 'swin_tiny_patch4_window7_224', 'convnext_tiny'
    suffixes = ('', '+compiled') if device == 'cuda' else ('', )
    for suffix, (size, batch), mode in product(suffixes, sizes, ('', ' --train')):
        names = ' '.join(name + suffix for name in networks)
        flags = f'{names} --size {size} --dtype bfloat16 --rounds 5{mode}'
        yield f'{names}, {batch} x {size}{mode}, bfloat16', partial(speed, flags, batch, left())


def main() -> None:
    """Run all checks, print the table, and exit with code 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--device', choices=('cpu', 'cuda'), default='cuda' if torch.cuda.is_available() else 'cpu',
                        help='what to check (cuda, if PyTorch sees one)')
    parser.add_argument('--minutes', type=float, default=10., help='no check is begun later than this (10)')
    parser.add_argument('--out', type=Path, default=Path('selfcheck'), metavar='DIR', help='folder of selfcheck.json')
    args = parser.parse_args()
    if not args.minutes > 0 or args.device == 'cuda' and not torch.cuda.is_available():
        parser.error(f'--minutes {args.minutes} is not above 0, or this PyTorch ({torch.__version__}) sees no CUDA')
    args.out.mkdir(parents=True, exist_ok=True)
    MMLogger.get_current_instance().setLevel('WARNING')
    end = time.monotonic() + 60 * args.minutes
    entries = []
    print('| check | state | seconds | result |\n|---|---|---|---|')
    for name, check in checks(args.device, lambda: end - time.monotonic()):
        start = time.monotonic()
        try:
            if start > end:
                raise Skip('no time left (--minutes)')
            found = check(args.device)
            state = 'failed' if found.pop('failed', False) else 'ok'
        except (Skip, ModuleNotFoundError) as reason:
            state, found = 'skipped', dict(reason=str(reason))
        except Exception as error:  # whatever this machine cannot do is a finding
            state, found = 'failed', dict(error=f'{type(error).__name__}: {error}'[-1500:])
        entries.append(dict(name=name, state=state, seconds=round(time.monotonic() - start, 1), **found))
        text = ', '.join(f'{key} {value:.3g}' if isinstance(value, float) else f'{key} {value}'
                         for key, value in found.items()).replace('\n', ' ')
        print(f'| {name} | {state} | {entries[-1]["seconds"]} | {text} |', flush=True)
        write_atomically(args.out / 'selfcheck.json', json.dumps(entries, indent=1) + '\n')
    sys.exit(any(entry['state'] == 'failed' for entry in entries))


if __name__ == '__main__':
    main()
