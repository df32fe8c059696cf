"""What selfcheck.py checks, each by a function that returns a dict of results; 'state' is 'ok' if it does not say."""
import time
import warnings
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import speed
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from random_batch import build_model, random_batch
from safetensors.torch import load_file
from torch import Tensor

from cvt_dense.models import CvT
from cvt_dense.pretraining import ImageClassifier

ROOT = Path(__file__).resolve().parents[1]
ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 2, 2), num_heads=(1, 3, 6))  # of the golden tensors
DTYPES = dict(fp32=torch.float32, tf32=torch.float32, bf16=torch.bfloat16, fp16=torch.float16)
# Relative differences (of Euclidean norms) to float32 on the CPU above which a precision counts as broken.
TOLERANCES = dict(fp32=1e-5, tf32=5e-3, bf16=5e-2, fp16=1e-2)
FAILED = {False: 'ok', True: 'failed'}


def environment(device: str | None) -> dict[str, Any]:
    """Return versions and the name of the device, and as 'kind' its kind: 'cuda' if None was given and there is one."""
    kind = device or ('cuda' if torch.cuda.is_available() else 'cpu')
    return dict(kind=kind, **speed.environment(kind))


@contextmanager
def precision(name: str, device: str) -> Iterator[None]:
    """Compute in float32 without TF32, with it ('tf32'), or in autocast's mixed precision ('bf16', 'fp16')."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = name == 'tf32'
    with torch.autocast(device, DTYPES[name], enabled=DTYPES[name] != torch.float32):
        yield


def values(name: str, device: str) -> dict[str, Any]:
    """Compare the logits with those of the authors' code, in one precision."""
    tensors = load_file(ROOT / 'tests/data/cvt_tiny_golden.safetensors')
    model = ImageClassifier(dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token'), num_classes=10)
    prefix = 'state_dict.'
    model.load_state_dict({key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)})
    model = model.eval().to(device)
    with torch.no_grad(), precision(name, device):
        worst = max(float((model(tensors[f'{image}.input'].to(device)).cpu() - expected).norm() / expected.norm())
                    for image in ('square', 'odd') for expected in [tensors[f'{image}.eval.logits']])
    return dict(difference=worst, allowed=TOLERANCES[name], state=FAILED[not worst <= TOLERANCES[name]])


def problem(device: str, dtype: torch.dtype = torch.float32) -> tuple[CvT, Tensor, list[Tensor]]:
    """Return a network, two images (2, 3, 64, 80) and maps to learn, which are the same on every device."""
    torch.manual_seed(0)
    model = CvT(ARCH).eval()
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
    return dict(difference=off[worst], worst=worst, allowed=allowed, state=FAILED[not off[worst] <= allowed])


def training(recipe: str, size: tuple[int, int], device: str) -> dict[str, Any]:
    """Train a recipe's whole model with two images: five steps by its settings, on the CPU two in float32.

    The host's waits for the GPU are counted in the second step, and the last one is timed. The first loss must equal
    float32's to a tenth, because proposals that change their order change the loss.
    """
    path, cuda = str(ROOT / f'configs/{recipe}.py'), device == 'cuda'
    torch.manual_seed(0)
    model = build_model(path, drop_path_rate=0.)
    model.init_weights()
    model.to(device).train()
    batch, losses = random_batch(model, 2, size, device), []
    wrapper = build_optim_wrapper(model, Config.fromfile(path).optim_wrapper if cuda else dict(
        optimizer=dict(type='AdamW', lr=1e-4)))
    torch.manual_seed(0)  # so that the same regions are sampled
    with torch.no_grad(), precision('fp32', device):
        expected = float(model.parse_losses(model(**batch, mode='loss'))[0])
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    with warnings.catch_warnings(record=True, action='always') as waits:
        for step in range(5 if cuda else 2):
            if cuda:
                torch.cuda.set_sync_debug_mode('warn' if step == 1 else 'default')
            torch.manual_seed(0)
            start = time.perf_counter()
            with wrapper.optim_context(model):
                loss = model.parse_losses(model(**batch, mode='loss'))[0]
            wrapper.update_params(loss)
            losses.append(float(loss.detach()))  # waits for the GPU
            seconds = time.perf_counter() - start
    gib = torch.cuda.max_memory_allocated() / 2**30  # 0 on the CPU
    with torch.no_grad():
        model.eval()(**batch, mode='predict')
    off = abs(losses[0] - expected) / expected
    return dict(images_per_s=2 / seconds, gib=gib, loss=losses[0], after=losses[-1], off_fp32=off,
                host_waits=sum('synchron' in str(wait.message) for wait in waits),
                state=FAILED[not (off <= 0.1 and losses[-1] < losses[0])])


def throughput(network: str, size: tuple[int, int], device: str, batch: int, train: bool) -> dict[str, Any]:
    """Return images/s and GiB of a backbone in bfloat16 by benchmarks/speed.py."""
    row, = speed.measure(Namespace(networks=[network], size=size, batch=batch, train=train, device=device, rounds=5,
                                   dtype='bfloat16', machine=''))
    return dict(images_per_s=1000 * batch / row['ms'], gib=row['gib'])
