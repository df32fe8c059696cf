"""What tools/selfcheck.py checks: functions of the device that return what they found, or raise."""
import copy
import importlib.util
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _benchmark.measure import seconds
from _random_batch import build_model, random_batch
from mmengine.optim import AmpOptimWrapper, OptimWrapper
from torch import Tensor, nn

from cvt_dense.engine import AutocastOptimWrapper
from cvt_dense.models import CvT, ImageClassifier
from cvt_dense.models import cvt as cvt_module

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / 'tests/data/cvt_tiny_golden.safetensors'
ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 2, 2), num_heads=(1, 3, 6))  # of the golden tensors
DTYPES = dict(fp32=torch.float32, tf32=torch.float32, bf16=torch.bfloat16, fp16=torch.float16)
# Relative differences (of Euclidean norms) to float32 on the CPU above which a precision counts as broken.
TOLERANCES = dict(fp32=1e-5, tf32=5e-3, bf16=5e-2, fp16=1e-2)


class Skip(Exception):
    """This check cannot run here, for the reason given."""


def installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


@contextmanager
def precision(name: str, device: str) -> Iterator[None]:
    """float32 is exact, but for 'tf32'; the others are autocast's."""
    if name == 'tf32' and device != 'cuda':
        raise Skip('TF32 is for GPUs')
    backends = [torch.backends.cuda.matmul, torch.backends.cudnn]
    before = [backend.allow_tf32 for backend in backends]
    for backend in backends:
        backend.allow_tf32 = name == 'tf32'
    dtype = DTYPES[name]
    try:
        with torch.autocast(device, dtype) if dtype != torch.float32 else nullcontext():
            yield
    finally:
        for backend, value in zip(backends, before):
            backend.allow_tf32 = value


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found.cpu().double() - expected.cpu().double()).norm() / expected.double().norm())


def golden() -> tuple[dict[str, Tensor], ImageClassifier]:
    """The authors' tensors, and the network with their weights."""
    if not GOLDEN.is_file():
        raise Skip(f'{GOLDEN} is not there: run it from a checkout')
    from safetensors.torch import load_file
    tensors = load_file(GOLDEN)
    model = ImageClassifier(dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token'), num_classes=10)
    prefix = 'state_dict.'
    weights = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
    model.load_strictly(weights, GOLDEN.name)
    return tensors, model.eval()


def values(name: str, device: str) -> dict[str, Any]:
    """The authors' logits on this device, in one precision."""
    tensors, model = golden()
    model = model.to(device)
    worst = 0.
    with torch.no_grad(), precision(name, device):
        for image in ('square', 'odd'):
            logits = model(tensors[f'{image}.input'].to(device)).float()
            worst = max(worst, relative(logits, tensors[f'{image}.eval.logits']))
    return dict(difference=worst, allowed=TOLERANCES[name], failed=not worst <= TOLERANCES[name])


def gradients(device: str) -> dict[str, Any]:
    """Every gradient of the dense network against float64 on the CPU."""
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
    # What is added to every key moves all scores of a query alike: its gradient is 0 but for rounding.
    off = {name: float((found[name].cpu().double() - value).norm() / (value.norm() + 1e-4 * largest))
           for name, value in exact.items()}
    worst = max(off, key=off.get)
    return dict(tensors=len(off), difference=off[worst], worst=worst, failed=not off[worst] <= 1e-3)


# -- training ------------------------------------------------------------------------------------------


def problem(device: str, dtype: torch.dtype = torch.float32, **settings: Any) -> tuple[CvT, Tensor, list[Tensor]]:
    """A dense network in training mode, two images, and maps that it is to learn; the same on every device."""
    torch.manual_seed(0)
    model = CvT(ARCH, **settings)
    images = torch.randn(2, 3, 64, 80)
    model = model.eval()
    with torch.no_grad():
        targets = [torch.randn_like(out) for out in model(images)]
    return (model.train().to(device, dtype), images.to(device, dtype), [target.to(device, dtype) for target in targets])


def loss_of(outs: tuple[Tensor, ...], targets: list[Tensor]) -> Tensor:
    return sum((out.to(target.dtype) - target).square().mean() for out, target in zip(outs, targets))


def optimizer(model: nn.Module, name: str, device: str, lr: float = 3e-3) -> OptimWrapper:
    """As recipes have it: bf16 without a scaler, fp16 with a dynamic one.

    Raises:
        Skip: fp16 on a CPU.
    """
    if name == 'fp16' and device == 'cpu':
        raise Skip('training in fp16 is for GPUs; a CPU takes bf16')
    adamw = torch.optim.AdamW(model.parameters(), lr=lr)
    if name == 'fp32':
        return OptimWrapper(adamw)
    if name == 'fp16':
        return AmpOptimWrapper(loss_scale='dynamic', optimizer=adamw, dtype='float16')
    return AutocastOptimWrapper(optimizer=adamw, dtype='bfloat16')


def steps(model: nn.Module, wrapper: OptimWrapper, images: Tensor, targets: list[Tensor], number: int) -> list[float]:
    """Losses of training steps."""
    losses = []
    for _ in range(number):
        with wrapper.optim_context(model):
            loss = loss_of(model(images), targets)
        wrapper.update_params(loss)
        losses.append(float(loss.detach()))
    return losses


def training(name: str, settings: dict[str, Any], compiled: bool, device: str) -> dict[str, Any]:
    """Some steps in one precision: the loss is float32's and falls, every parameter that is not frozen moves."""
    plain = problem(device, **settings)
    with torch.no_grad():
        expected = float(loss_of(copy.deepcopy(plain[0])(plain[1]), plain[2]))
    model, images, targets = problem(device, **settings)
    before = {key: value.detach().clone() for key, value in model.named_parameters()}
    if compiled:
        model.compile(dynamic=False)
    # fp16's scaler may skip its first steps while it looks for a scale
    losses = steps(model, optimizer(model, name, device), images, targets, 12)
    still = [key for key, value in model.named_parameters() if value.requires_grad and torch.equal(value, before[key])]
    thawed = [key for key, value in model.named_parameters() if not value.requires_grad
              and not torch.equal(value, before[key])]
    off = abs(losses[0] - expected) / expected
    good = off <= TOLERANCES[name if name != 'fp32' else 'tf32'] and losses[-1] < losses[0] and not still and not thawed
    return dict(loss=losses[0], after=losses[-1], off_fp32=off, **(dict(unmoved=still) if still else {}),
                failed=not good)


def resuming(name: str, device: str) -> dict[str, Any]:
    """2 steps, save, load, 2 steps, against 4 steps; the scaler's state among what is saved."""
    model, images, targets = problem(device)
    wrapper = optimizer(model, name, device)
    run = partial(steps, images=images, targets=targets, number=2)
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
                scaler='loss_scaler' in saved[1], failed=differing > 0 if device == 'cpu' else not worst <= 1e-3)


# -- whole detectors and segmentors --------------------------------------------------------------------


def whole(recipe: str, name: str, device: str) -> dict[str, Any]:
    """A recipe's model takes training steps and predicts, in float32 and in this precision.

    Both first losses are equal but for a tenth: proposals that swap places change it.
    """
    for package in ('mmdet', 'mmseg', 'mmcv._ext'):
        if not installed(package):
            raise Skip(f'{package} is not installed')
    found, (expected, *_) = whole_losses(recipe, name, device), whole_losses(recipe, 'fp32', device)
    off = abs(found[0] - expected) / expected
    return dict(loss=found[0], after=found[-1], off_fp32=off, failed=not (off <= 0.1 and found[-1] < found[0]))


def whole_losses(recipe: str, name: str, device: str) -> list[float]:
    """Losses of three steps on the same two images, before a prediction."""
    torch.manual_seed(0)
    model = build_model(str(ROOT / f'configs/{recipe}.py'), drop_path_rate=0.).to(device).train()
    batch = random_batch(model, 2, (192, 256), device)  # DINO needs room for 900 queries
    wrapper, losses = optimizer(model, name, device, lr=1e-4), []
    for _ in range(3):
        torch.manual_seed(0)  # so that the same regions are sampled
        with wrapper.optim_context(model):
            loss, _ = model.parse_losses(model(**batch, mode='loss'))
        wrapper.update_params(loss)
        losses.append(float(loss.detach()))
    with torch.no_grad():
        model.eval()(**batch, mode='predict')
    return losses


# -- kernels -------------------------------------------------------------------------------------------


def attention_kernels(device: str) -> dict[str, Any]:
    """Which of PyTorch's attention kernels CvT-13 runs, by precision, in inference and training."""
    found = {}
    for name in ('fp32', 'bf16', *(['fp16'] if device == 'cuda' else [])):
        for mode in ('infer', 'train'):
            torch.manual_seed(0)
            model = CvT('cvt-13').to(device).train(mode == 'train')
            images = torch.rand(1, 3, 64, 64, device=device)
            with torch.profiler.profile() as profiler, precision(name, device), torch.set_grad_enabled(mode == 'train'):
                model(images)
            names = {event.key for event in profiler.key_averages() if 'scaled_dot_product' in event.key}
            kernels = sorted(key.removeprefix('aten::_scaled_dot_product_') for key in names
                             if key.startswith('aten::_scaled_dot_product_'))
            found[f'{name} {mode}'] = kernels
    plain = [where for where, kernels in found.items() if not kernels or any('math' in kernel for kernel in kernels)]
    return dict(kernels=found, failed=bool(plain))


def layout(device: str) -> dict[str, Any]:
    """Inference of CvT-13 with the image channels-last, as a share of its time with NCHW."""
    torch.manual_seed(0)
    model = CvT('cvt-13').to(device).eval()
    images = torch.rand(*((32, 3, 224, 224) if device == 'cuda' else (1, 3, 64, 64)), device=device)
    before = cvt_module.CHANNELS_LAST
    found = {}
    try:
        for name in ('fp32', 'bf16'):
            times: dict[tuple, list[float]] = {(): [], (device, ): []}
            for _ in range(8 if device == 'cuda' else 5):
                for devices, spent in times.items():
                    cvt_module.CHANNELS_LAST = devices
                    with torch.inference_mode(), precision(name, device):
                        spent.append(seconds(partial(model, images), device))
            nchw, last = (statistics.median(spent[2:]) for spent in times.values())
            found[name] = last / nchw
    finally:
        cvt_module.CHANNELS_LAST = before
    return dict(**found, used='channels-last' if device in before else 'NCHW')


# -- two processes -------------------------------------------------------------------------------------


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
    """DDP with SyncBN on two GPUs: the gradients are those of both images on one."""
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
    **{f'{recipe}, {name}': partial(whole, recipe, name) for name in ('bf16', 'fp16')
       for recipe in ('maskrcnn_cvt13_coco', 'retinanet_cvt13_coco', 'dino_cvt13_coco', 'semfpn_cvt13_ade20k')},
    'attention kernels': attention_kernels,
    'two processes, SyncBN': two_processes,
    'channels-last': layout,
    **{f'training, {name}, compiled': partial(training, name, {}, True) for name in ('fp32', 'bf16', 'fp16')},
}
