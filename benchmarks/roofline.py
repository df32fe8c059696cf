"""Estimates time and memory of a network's step on a GPU by PyTorch's fake tensors, without a GPU.

    python benchmarks/roofline.py FOLDER       # the CSV files of timm's results/: published images/s beside estimates

An operator takes the longest of three times: its FLOPs over the attainable rate of its precision, the bytes that it
reads and writes over the attainable bandwidth, and ``LAUNCH``. The attainable shares of the data sheets' peaks are the
same for all GPUs and networks; they were fitted to timm's RTX 3090. Values are never computed, so neither caches, nor
the algorithms that cuDNN may choose, nor waiting for the host are known.
"""
import csv
import statistics
import sys
import weakref
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

aten = torch.ops.aten


class GPU(NamedTuple):
    """Peaks of a data sheet, a second.

    Attributes:
        tensor: dense FLOPs in 16 bits, summed in 32.
        cuda: FLOPs in float32.
        bandwidth: bytes of the memory.
    """
    tensor: float
    cuda: float
    bandwidth: float


GPUS = dict(rtx3090=GPU(71e12, 35.6e12, 936e9), rtx4090=GPU(165e12, 82.6e12, 1008e9),
            pro6000maxq=GPU(438e12, 110e12, 1792e9), a100=GPU(312e12, 19.5e12, 2039e9), h100=GPU(989e12, 67e12, 3350e9),
            h200=GPU(989e12, 67e12, 4800e9))
# Attainable shares of the peaks; grouped convolutions use no tensor cores. LAUNCH: seconds of an operator, at least.
TENSOR, GROUPED, BANDWIDTH, LAUNCH = 0.85, 0.38, 0.7, 1e-5
FREE = {aten._unsafe_view, aten.detach, aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty,
        aten.new_empty_strided, aten.lift_fresh, aten.alias}
FLOAT32 = (F.layer_norm, F.group_norm, F.softmax, torch.softmax, Tensor.softmax)


class Functions(TorchFunctionMode):
    """Computes in float32 what autocast does on CUDA, but not on the CPU that the fake tensors are on, and shapes.

    Deformable attention reads the values of tensors that it makes from the shapes of maps, so these are computed.

    Args:
        float32: functions that compute in float32.
    """

    def __init__(self, float32: Sequence[Callable[..., Tensor]] = ()):
        super().__init__()
        self.float32 = float32

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if function is torch._shape_as_tensor:
            function, args = torch.tensor, (list(args[0].shape), )
        if function in self.float32:
            args = args[0].float(), *args[1:]
        fake = [isinstance(leaf, FakeTensor) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        with unset_fake_temporarily():
            if function is torch.tensor or fake and not any(fake):
                return function(*args, **(kwargs or {}))
            args = tree_map(lambda leaf: leaf.item() if type(leaf) is Tensor and not leaf.ndim else leaf, args)
        return function(*args, **(kwargs or {}))


def flops_of(packet: Any, args: tuple, kwargs: dict, result: Any) -> tuple[float, bool]:
    """Return an operator's FLOPs, and whether it is a grouped convolution."""
    if packet in (aten.convolution, aten.convolution_backward):  # torch counts backward as if it was not grouped
        backward = packet is aten.convolution_backward
        weight, transposed, groups = (args[2], args[7], args[9]) if backward else (args[1], args[6], args[8])
        output = args[0] if backward else result
        positions = args[1 if backward else 0] if transposed else output
        return 2. * positions.numel() * prod(weight.shape[1:]) * (sum(args[10][:2]) if backward else 1), groups > 1
    if packet is aten._scaled_dot_product_flash_attention_for_cpu:
        return sdpa_flop_count(*(tensor.shape for tensor in args[:3])), False
    if packet is aten._scaled_dot_product_flash_attention_for_cpu_backward:
        return sdpa_backward_flop_count(*(tensor.shape for tensor in args[:4])), False
    return flop_registry[packet](*args, **kwargs, out_val=result) if packet in flop_registry else 0., False


class Trace(TorchDispatchMode):
    """Adds up the time of operators, and the storages that are alive.

    Args:
        gpu: where the operators would run.

    Attributes:
        seconds: estimated time of all operators.
        operators: how many there were.
        flops: their FLOPs.
        bytes, peak: bytes that are alive now, and the most that were at once.
    """

    def __init__(self, gpu: GPU):
        super().__init__()
        self.gpu = gpu
        self.seconds = self.flops = 0.
        self.operators = self.bytes = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = function(*args, **(kwargs or {}))
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.count(*outputs)
        if outputs and not function.is_view and function.overloadpacket not in FREE:
            inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            flops, grouped = flops_of(function.overloadpacket, args, kwargs or {}, result)
            # an expanded tensor is read once
            moved = sum(min(x.numel() * x.element_size(), x.untyped_storage().nbytes()) for x in inputs + outputs)
            rate = GROUPED * self.gpu.cuda if grouped else TENSOR * (
                self.gpu.tensor if inputs and inputs[0].element_size() == 2 else self.gpu.cuda)
            self.seconds += max(flops / rate, moved / (BANDWIDTH * self.gpu.bandwidth), LAUNCH)
            self.flops += flops
            self.operators += 1
        return result

    def count(self, *tensors: Tensor) -> None:
        """Count the storages of tensors, once, until they are freed."""
        for storage in (tensor.untyped_storage() for tensor in tensors):
            if id(storage) not in self.known:
                self.known.add(id(storage))
                self.bytes += storage.nbytes()
                weakref.finalize(storage, self._free, id(storage), storage.nbytes()).atexit = False
        self.peak = max(self.peak, self.bytes)

    def _free(self, name: int, size: int) -> None:
        self.known.remove(name)
        self.bytes -= size


def trace(model: nn.Module, forward: Callable[[nn.Module], Tensor], gpu: GPU, dtype: torch.dtype = torch.bfloat16,
          train: bool = True) -> Trace:
    """Trace the forward pass of a model and, in training, the backward pass.

    Args:
        model: built on 'meta'.
        forward: runs the model on tensors that it makes, and returns the loss.
        gpu: where it would run.
        dtype: type of autocast, or float32.
        train: in training mode and with gradients, or without.
    """
    found = Trace(gpu)
    for module in model.modules():  # a checkpoint's recomputation leaves Functions
        if isinstance(module, (nn.LayerNorm, nn.GroupNorm)) and dtype != torch.float32:
            module.register_forward_pre_hook(lambda module, inputs: (inputs[0].float(), ))
    with FakeTensorMode(allow_non_fake_inputs=True), torch.set_grad_enabled(train):
        model.to_empty(device='cpu').train(train)
        found.count(*model.parameters(), *model.buffers())
        with found:
            mixed = dtype != torch.float32
            with torch.autocast('cpu', dtype, enabled=mixed), Functions(FLOAT32 if mixed else ()):
                loss = forward(model)
            if train:
                loss.backward()
    return found


# timm's files: (name, GPU, whether of training). The training ran on PyTorch 1.12, without fused attention.
PUBLISHED = {'train-amp-nhwc-pt112-cu113-rtx3090': 'rtx3090', 'infer-amp-nchw-pt240-cu124-rtx3090': 'rtx3090',
             'infer-amp-nchw-pt291-cu128-4090': 'rtx4090', 'infer-amp-nchw-pt291-cu130-pro6000maxq': 'pro6000maxq'}
NETWORKS = ("""resnet50 resnet101 resnext50_32x4d regnety_032 efficientnet_b0 convnext_tiny convnext_small
    poolformer_s24 deit_small_patch16_224 deit_base_patch16_224 cait_s24_224 xcit_small_12_p16_224 crossvit_15_240
    swin_tiny_patch4_window7_224 swin_small_patch4_window7_224 swinv2_tiny_window8_256 twins_svt_small twins_pcpvt_small
    davit_tiny davit_small pvt_v2_b1 pvt_v2_b2 focalnet_tiny_srf mvitv2_tiny maxvit_tiny_tf_224 coatnet_0_rw_224
    nest_tiny convit_small edgenext_small visformer_small""").split()


def compare(folder: Path) -> dict[str, dict[str, tuple[float, float]]]:
    """Return (published, estimated) images/s of each network by file of timm's results."""
    found = {}
    for name, gpu in PUBLISHED.items():
        kind = name.partition('-')[0]
        timm.layers.set_fused_attn(kind == 'infer')
        for row in csv.DictReader((folder / f'benchmark-{name}.csv').open()):
            network, size = row['model'].partition('.')[0], int(row[f'{kind}_img_size'])
            if network in NETWORKS and size >= 224 and network not in found.setdefault(name, {}):
                batch = int(row[f'{kind}_batch_size'])
                with torch.device('meta'):
                    model = timm.create_model(network)
                step = trace(model, lambda model: model(torch.empty(batch, 3, size, size)).float().mean(), GPUS[gpu],
                             torch.float16, kind == 'train')
                found[name][network] = float(row[f'{kind}_samples_per_sec']), batch / step.seconds
    return found


def main() -> None:
    """Print the table of published and estimated images/s, and the errors."""
    found = compare(Path(sys.argv[1]))
    print(f'| published / estimated images/s | {" | ".join(found)} |\n{"|---" * (1 + len(found))}|')
    for network in NETWORKS:
        cells = [f'{pair[0]:,.0f} / {pair[1]:,.0f} ({pair[1] / pair[0]:.2f})' if pair else ''
                 for pair in (rows.get(network) for rows in found.values())]
        print(f'| {network} | {" | ".join(cells)} |')
    for name, rows in found.items():
        ratios = [estimated / published for published, estimated in rows.values()]
        print(f'{name}: {len(ratios)} networks, median error {statistics.median(abs(r - 1) for r in ratios):.0%}, '
              f'{min(ratios):.2f} to {max(ratios):.2f} of the published')


if __name__ == '__main__':
    main()
