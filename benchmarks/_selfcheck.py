"""The checks of benchmarks/selfcheck.py: functions of the device that return their findings, or raise."""
import copy
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mmengine.optim import AmpOptimWrapper, OptimWrapper
from torch import Tensor, nn

from cvt_dense.cli.random_batch import build_model, random_batch
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


def require(*packages: str) -> None:
    """Raise :class:`Skip` if a package is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise Skip(f'{package} is not installed')


@contextmanager
def precision(name: str, device: str) -> Iterator[None]:
    """Compute in float32 without TF32, with it ('tf32'), or in autocast's mixed precision ('bf16', 'fp16')."""
    if name == 'tf32' and device != 'cuda':
        raise Skip('TF32 is for GPUs')
    backends = [torch.backends.cuda.matmul, torch.backends.cudnn]
    before = [backend.allow_tf32 for backend in backends]
    for backend in backends:
        backend.allow_tf32 = name == 'tf32'
    try:
        with torch.autocast(device, DTYPES[name]) if DTYPES[name] != torch.float32 else nullcontext():
            yield
    finally:
        for backend, value in zip(backends, before):
            backend.allow_tf32 = value


def relative(found: Tensor, expected: Tensor) -> float:
    """Return the norm of the difference of two tensors over the norm of the expected one."""
    return float((found.cpu().double() - expected.cpu().double()).norm() / expected.double().norm())


# -- values and gradients ------------------------------------------------------------------------------


def values(name: str, device: str) -> dict[str, Any]:
    """Compare the logits with those of the authors' code, in one precision."""
    if not GOLDEN.is_file():
        raise Skip(f'{GOLDEN} is not there: run the tool from a checkout')
    from safetensors.torch import load_file
    tensors = load_file(GOLDEN)
    model = ImageClassifier(dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token'), num_classes=10)
    prefix = 'state_dict.'
    model.load_state_dict({key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)})
    model = model.eval().to(device)
    worst = 0.
    with torch.no_grad(), precision(name, device):
        for image in ('square', 'odd'):
            logits = model(tensors[f'{image}.input'].to(device)).float()
            worst = max(worst, relative(logits, tensors[f'{image}.eval.logits']))
    return dict(difference=worst, allowed=TOLERANCES[name], failed=not worst <= TOLERANCES[name])


def gradients(device: str) -> dict[str, Any]:
    """Compare every gradient of the dense network with float64 on the CPU."""

    def backward(place: str, dtype: torch.dtype) -> dict[str, Tensor]:
        model, images, targets = problem(dtype=dtype, device=place)
        loss_of(model(images), targets).backward()
        return {key: value.grad for key, value in model.named_parameters()}

    with precision('fp32', device):
        exact, found = backward('cpu', torch.float64), backward(device, torch.float32)
    missing = [name for name, value in found.items() if value is None]
    if missing:
        raise ValueError(f'without a gradient: {missing}')
    largest = max(value.norm() for value in exact.values())
    # A vector that is added to every key changes all scores of a query alike: its gradient is 0 but for rounding.
    off = {name: float((found[name].cpu().double() - value).norm() / (value.norm() + 1e-4 * largest))
           for name, value in exact.items()}
    worst = max(off, key=off.get)
    return dict(tensors=len(off), difference=off[worst], worst=worst, failed=not off[worst] <= 1e-3)


# -- training ------------------------------------------------------------------------------------------


def problem(device: str, dtype: torch.dtype = torch.float32, **settings: Any) -> tuple[CvT, Tensor, list[Tensor]]:
    """Return a network, two images and maps to learn, which are the same on every device.

    Args:
        device: device of the results.
        dtype: data type of the results.
        **settings: settings of the backbone.

    Returns:
        The network in training mode, images (2, 3, 64, 80), and the target of each of its maps.
    """
    torch.manual_seed(0)
    model = CvT(ARCH, **settings).eval()
    images = torch.randn(2, 3, 64, 80)
    with torch.no_grad():
        targets = [torch.randn_like(out) for out in model(images)]
    return model.train().to(device, dtype), images.to(device, dtype), [target.to(device, dtype) for target in targets]


def loss_of(outs: tuple[Tensor, ...], targets: list[Tensor]) -> Tensor:
    """Return the sum over maps of the mean squared error."""
    return sum((out.to(target.dtype) - target).square().mean() for out, target in zip(outs, targets))


def optimizer(model: nn.Module, name: str, device: str, lr: float = 3e-3) -> OptimWrapper:
    """Return AdamW as recipes have it: fp16 with a dynamic loss scale, other precisions without one.

    Args:
        model: whose parameters to optimise.
        name: name of the precision.
        device: 'cpu' or 'cuda'.
        lr: learning rate.

    Raises:
        Skip: fp16 on a CPU.
    """
    adamw = torch.optim.AdamW(model.parameters(), lr=lr)
    if name != 'fp16':
        return OptimWrapper(adamw)
    if device == 'cpu':
        raise Skip('training in fp16 is for GPUs; a CPU takes bf16')
    return AmpOptimWrapper(optimizer=adamw, loss_scale='dynamic', dtype='float16')


def steps(name: str, device: str, wrapper: OptimWrapper, loss: Callable[[], Tensor], number: int) -> list[float]:
    """Take training steps in one precision and return their losses.

    Args:
        name: name of the precision.
        device: 'cpu' or 'cuda'.
        wrapper: the optimizer.
        loss: computes the loss of the next step.
        number: the number of steps.
    """
    losses = []
    for _ in range(number):
        with precision(name, device):
            value = loss()
        wrapper.update_params(value)
        losses.append(float(value.detach()))
    return losses


def training(name: str, settings: dict[str, Any], compiled: bool, device: str) -> dict[str, Any]:
    """Check training in one precision: the first loss equals float32's, it falls, and all parameters change.

    Args:
        name: name of the precision.
        settings: settings of the backbone.
        compiled: whether the backbone is compiled.
        device: 'cpu' or 'cuda'.

    Returns:
        Losses, their difference from float32's, ``failed``, and the names of parameters that did not change.
    """
    model, images, targets = problem(device, **settings)
    with torch.no_grad():
        expected = float(loss_of(copy.deepcopy(model)(images), targets))
    before = {key: value.detach().clone() for key, value in model.named_parameters()}
    if compiled:
        model.compile(dynamic=False)
    # the scale of fp16's loss may skip the first steps while it is being adjusted
    losses = steps(name, device, optimizer(model, name, device), lambda: loss_of(model(images), targets), 12)
    wrong = [key for key, value in model.named_parameters() if value.requires_grad == torch.equal(value, before[key])]
    off, allowed = abs(losses[0] - expected) / expected, TOLERANCES['tf32' if name == 'fp32' else name]
    return dict(loss=losses[0], after=losses[-1], off_fp32=off, **(dict(wrong=wrong) if wrong else {}),
                failed=bool(wrong) or not (off <= allowed and losses[-1] < losses[0]))


def resuming(name: str, device: str) -> dict[str, Any]:
    """Compare 2 steps, save, load, 2 steps with 4 steps; the loss scale is saved too."""

    def run(model: nn.Module, wrapper: OptimWrapper) -> None:
        steps(name, device, wrapper, lambda: loss_of(model(images), targets), 2)

    model, images, targets = problem(device)
    wrapper = optimizer(model, name, device)
    run(model, wrapper)
    saved = copy.deepcopy((model.state_dict(), wrapper.state_dict()))
    run(model, wrapper)
    again = problem(device)[0]
    resumed = optimizer(again, name, device)
    again.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    run(again, resumed)
    ends = list(zip(model.state_dict().values(), again.state_dict().values()))
    differing = sum(not torch.equal(first, second) for first, second in ends)
    worst = max(relative(second.float(), first.float()) for first, second in ends if first.float().norm())
    # The backward pass of a GPU's fused attention adds in any order, so bits may differ there.
    return dict(tensors=len(ends), differing=differing, difference=worst,
                failed=differing > 0 if device == 'cpu' else not worst <= 1e-3)


def whole(recipe: str, name: str, device: str) -> dict[str, Any]:
    """Check that a recipe's detector or segmentor trains for three steps on two images, and predicts.

    The first loss must equal float32's but for a tenth, because proposals that change their order change the loss.

    Args:
        recipe: name of the config.
        name: name of the precision.
        device: 'cpu' or 'cuda'.
    """
    require('mmdet', 'mmseg', 'mmcv._ext')

    def losses(name: str) -> list[float]:
        torch.manual_seed(0)
        model = build_model(str(ROOT / f'configs/{recipe}.py'), drop_path_rate=0.).to(device).train()
        size = (192, 256) if 'dino' in recipe else (96, 128)  # DINO needs room for 900 queries
        batch = random_batch(model, 2, size, device)

        def loss() -> Tensor:
            torch.manual_seed(0)  # so that the same regions are sampled
            return model.parse_losses(model(**batch, mode='loss'))[0]

        found = steps(name, device, optimizer(model, name, device, lr=1e-4), loss, 3)
        with torch.no_grad():
            model.eval()(**batch, mode='predict')
        return found

    found = losses(name)
    expected = found[0] if name == 'fp32' else losses('fp32')[0]
    off = abs(found[0] - expected) / expected
    return dict(loss=found[0], after=found[-1], off_fp32=off, failed=not (off <= 0.1 and found[-1] < found[0]))


# -- kernels and processes -----------------------------------------------------------------------------


def attention_kernels(device: str) -> dict[str, Any]:
    """Name the attention kernels of PyTorch that CvT-13 runs; one that is not fused has 'math' in its name."""
    found = {}
    for name in ('fp32', 'bf16', *(['fp16'] if device == 'cuda' else [])):
        for mode in ('infer', 'train'):
            torch.manual_seed(0)
            model = CvT('cvt-13').to(device).train(mode == 'train')
            images = torch.rand(1, 3, 64, 64, device=device)
            with torch.profiler.profile() as profiler, precision(name, device), torch.set_grad_enabled(mode == 'train'):
                model(images)
            prefix = 'aten::_scaled_dot_product_'
            found[f'{name} {mode}'] = sorted(
                {event.key.removeprefix(prefix) for event in profiler.key_averages() if event.key.startswith(prefix)})
    plain = [where for where, kernels in found.items() if not kernels or any('math' in kernel for kernel in kernels)]
    return dict(kernels=found, failed=bool(plain))


def _synced(rank: int, port: int, folder: str) -> None:
    import torch.distributed as dist
    torch.cuda.set_device(rank)
    dist.init_process_group('nccl', init_method=f'tcp://127.0.0.1:{port}', rank=rank, world_size=2)
    model, images, targets = problem('cuda', norm_cfg=dict(type='SyncBN'))
    half = [part[rank:rank + 1] for part in (images, *targets)]
    model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    loss_of(model(half[0]), half[1:]).backward()
    if rank == 0:
        torch.save({key: value.grad.cpu() for key, value in model.module.named_parameters()}, f'{folder}/gradients.pt')
    dist.barrier()
    dist.destroy_process_group()


def two_processes(device: str) -> dict[str, Any]:
    """Compare DDP with SyncBN on two GPUs with both images on one."""
    if device == 'cpu':
        raise Skip('SyncBN has no CPU kernel')
    if torch.cuda.device_count() < 2:
        raise Skip('there is one GPU')
    import socket
    import tempfile
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        port = sock.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder, precision('fp32', device):
        torch.multiprocessing.spawn(_synced, (port, folder), nprocs=2)
        found = torch.load(f'{folder}/gradients.pt')
    model, images, targets = problem(device)
    loss_of(model(images), targets).backward()
    difference = max(relative(found[key], value.grad.cpu()) for key, value in model.named_parameters())
    return dict(difference=difference, failed=not difference <= 1e-3)


WINDOWS = dict(type='cvt_dense.WindowedAttention', window_size=4)
VARIANTS = dict(plain={}, with_cp=dict(with_cp=True), windows=dict(attn_cfg=[WINDOWS, WINDOWS, None]),
                frozen=dict(frozen_stages=0, norm_eval=True))
CHECKS: dict[str, Callable[[str], dict[str, Any]]] = {
    **{f'values, {name}': partial(values, name) for name in DTYPES},
    'gradients, fp32': gradients,
    **{f'training, {name}, {variant}': partial(training, name, settings, False)
       for name in ('fp32', 'bf16', 'fp16') for variant, settings in VARIANTS.items()},
    **{f'resuming, {name}': partial(resuming, name) for name in ('fp32', 'bf16', 'fp16')},
    # mmcv has the operators of detectors in float32 and float16 only.
    **{f'{recipe}, {name}': partial(whole, recipe, name) for name in ('fp32', 'fp16')
       for recipe in ('maskrcnn_cvt13_coco', 'retinanet_cvt13_coco', 'dino_cvt13_coco')},
    **{f'semfpn_cvt13_ade20k, {name}': partial(whole, 'semfpn_cvt13_ade20k', name) for name in ('bf16', 'fp16')},
    'attention kernels': attention_kernels,
    'two processes, SyncBN': two_processes,
    **{f'training, {name}, compiled': partial(training, name, {}, True) for name in ('fp32', 'bf16', 'fp16')},
}
