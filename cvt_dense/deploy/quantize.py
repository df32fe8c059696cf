"""int8 after training: linear layers and convolutions only.

Weights: min-max of each output channel, symmetric. Activations: min-max of each tensor over calibration images,
asymmetric. LayerNorm, softmax, attention's products and everything else stay in float32: with all quantised Swin-T
falls from 81.35 to 64.38 % (FQ-ViT, arXiv 2111.13824).
"""
import ast
import contextlib
import copy
import dataclasses
import difflib
import importlib.util
import io
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from ..errors import UserError
from .formats import quiet
from .runtime import openvino_core

OPENVINO_LAYERS = ('Convolution', 'Deconvolution', 'FullyConnected', 'MatMul')
JUDGED = 16  # of the calibration images
ONNX_LAYERS = ('Conv', 'ConvTranspose', 'Gemm', 'MatMul')


def layers(network: nn.Module) -> dict[str, str]:
    """The layers that int8 applies to: their names in the model that was exported, to those in ``network``."""
    return {public_name(name): name for name, module in network.named_modules()
            if isinstance(module, (nn.Linear, nn.Conv2d, nn.ConvTranspose2d))}


def public_name(name: str) -> str:
    """'network.model.backbone.stage0...', of a wrapper's module, to 'backbone.stage0...'."""
    for prefix in ('network.', 'model.'):
        name = name.removeprefix(prefix)
    return name


def select(names: Sequence[str], keep: Sequence[str]) -> set[str]:
    """Those of ``names`` that are in ``keep`` or in a module named there.

    Raises:
        UserError: an entry of ``keep`` is neither a layer nor holds any.
    """
    kept = set()
    for wanted in keep:
        found = {name for name in names if name == wanted or name.startswith(wanted + '.')}
        if not found:
            similar = difflib.get_close_matches(wanted, names, 3, 0.5) or list(names)[:3]
            raise UserError(f'--keep {wanted}: there is no such layer, nor a module that holds any; similar: '
                            f'{", ".join(similar)}. --sensitivity lists all of them.')
        kept |= found
    return kept


def error(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Relative error, |a - b| / |b| in the 2-norm, mean over the outputs."""
    parts = [(a.float() - b.float()).norm() / b.float().norm().clamp(min=1e-12) for a, b in zip(actual, expected)]
    return torch.stack(parts).mean().item()


# -- ONNX and OpenVINO: NNCF -------------------------------------------------------------------------------------


def onnx_layers(model: Any, names: Collection[str]) -> dict[str, str]:
    """{ONNX node: layer} of the nodes that are one of the layers ``names``."""
    found = {}
    for node in model.graph.node:
        scopes = {prop.key: prop.value for prop in node.metadata_props}.get('pkg.torch.onnx.name_scopes')
        if node.op_type in ONNX_LAYERS and scopes:
            layer = public_name(ast.literal_eval(scopes)[-2])
            if layer in names:
                found[node.name] = layer
    return found


def _nncf(model: Any, images: Sequence[Tensor], to_input: Callable[[Tensor], Tensor], ignored: list[str],
          smooth: bool, correct: bool) -> Any:
    import nncf
    from nncf.common.quantization.structs import QuantizationScheme
    from nncf.quantization import advanced_parameters as advanced
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet
    nncf.set_log_level(40)
    with quiet(), contextlib.redirect_stdout(io.StringIO()):  # progress bars
        return nncf.quantize(
            copy.deepcopy(model), nncf.Dataset(images, lambda image: dict(image=to_input(image).numpy())),
            preset=nncf.QuantizationPreset.MIXED, model_type=nncf.ModelType.TRANSFORMER,
            target_device=nncf.TargetDevice.CPU, subset_size=len(images),
            ignored_scope=nncf.IgnoredScope(names=ignored, validate=False),
            advanced_parameters=nncf.AdvancedQuantizationParameters(
                overflow_fix=advanced.OverflowFix.DISABLE, disable_bias_correction=not correct,
                weights_quantization_params=advanced.QuantizationParameters(
                    mode=QuantizationScheme.SYMMETRIC, per_channel=True),
                activations_quantization_params=advanced.QuantizationParameters(
                    mode=QuantizationScheme.ASYMMETRIC, per_channel=False),
                activations_range_estimator_params=RangeEstimatorParametersSet.MINMAX,
                smooth_quant_alphas=nncf.AdvancedSmoothQuantParameters(matmul=0.95 if smooth else -1)))


def run_onnx(model: Any, inputs: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, torch.get_num_threads()
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=['CPUExecutionProvider'])
    for image in inputs:
        yield [torch.from_numpy(out) for out in session.run(None, dict(image=image.numpy()))]


def run_openvino(model: Any, inputs: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    core, model = openvino_core(), for_openvino(model)
    compiled = core.compile_model(core.read_model(model.SerializeToString()), 'CPU', dict(
        INFERENCE_PRECISION_HINT='f32', INFERENCE_NUM_THREADS=torch.get_num_threads()))
    for image in inputs:
        outputs = compiled(dict(image=image.numpy()))
        yield [torch.from_numpy(outputs[out].copy()) for out in compiled.outputs]


def quantize_onnx(model: Any, images: Sequence[Tensor], to_input: Callable[[Tensor], Tensor], names: Collection[str],
                  keep: Collection[str], report: Callable[[str], None], judge: Callable[..., float] = error) -> Any:
    """The int8 version of an ONNX model that is nearest to it on the images: with or without smoothing, and bias
    correction, in ONNX Runtime and, where it is installed, OpenVINO, whichever is farther off.

    Smoothing divides a linear layer's input by a factor for each channel and multiplies its weights by it. NNCF puts
    the division right before the layer, where CLS has joined what comes out of the convolutions: it reaches CLS too.

    Args:
        model: ``onnx.ModelProto`` in float32.
        images: raw, for calibration.
        to_input: makes of one what the model takes.
        names: of the layers that are to be in int8, see :func:`layers`.
        keep: of those that stay in float after all.
        report: takes a line.
        judge: takes outputs and those of float32, gives their difference.

    Raises:
        RuntimeError: no layer is in int8 in the result.
    """
    nodes = {node: layer for node, layer in onnx_layers(model, names).items() if layer not in keep}
    ignored = [node.name for node in model.graph.node if node.name not in nodes]
    judged = images[:JUDGED]
    expected = list(run_onnx(model, map(to_input, judged)))
    runtimes = {'ONNX Runtime': run_onnx}
    if importlib.util.find_spec('openvino') is not None:
        runtimes['OpenVINO'] = run_openvino
    best, least = None, float('inf')
    for smooth, correct in itertools.product((False, True), repeat=2):
        candidate = _nncf(model, images, to_input, ignored, smooth, correct)
        errors = {}
        for name, run in list(runtimes.items()):
            try:
                found = [judge(*pair) for pair in zip(run(candidate, map(to_input, judged)), expected)]
            except Exception as failure:  # each runtime has exceptions of its own
                if run is run_onnx:
                    raise
                report(f'  {name} does not run it: {" ".join(str(failure).split())[:200]}')
                del runtimes[name]
                continue
            errors[name] = sum(found) / len(found)
        report(f'  int8 {"with" if smooth else "without"} smoothing, {"with" if correct else "without"} bias '
               f'correction: relative error {", ".join(f"{value:.4f} in {name}" for name, value in errors.items())} on '
               f'{len(judged)} calibration images')
        if max(errors.values()) < least:
            best, least, chosen = candidate, max(errors.values()), (smooth, correct)
    report(f'  taken: {"with" if chosen[0] else "without"} smoothing, {"with" if chosen[1] else "without"} bias '
           'correction')
    done = {nodes.get(node) for node in int8_nodes(best)}
    report(f'  {len(done - {None})} of {len(names)} layers in int8')
    return best


def for_openvino(model: Any) -> Any:
    """A copy of an int8 model with an Unsqueeze before each quantiser of what is joined or pooled, a Squeeze after it.

    OpenVINO 2026.4 otherwise moves the quantiser of CLS and map tokens in front of their concatenation and then fails
    on the two parts' zero points; in UperNet it makes the quantiser of a pooled map, a product with a constant, part
    of that product and then takes the map's columns for its channels. ONNX Runtime 1.31 fails on this copy.
    """
    from onnx import helper
    model = copy.deepcopy(model)
    nodes, unsqueezed = [], set()
    origins = {out for node in model.graph.node if node.op_type in ('Concat', 'MatMul') for out in node.output}
    model.graph.initializer.append(helper.make_tensor('first_axis', 7, [1], [0]))  # 7: int64
    for node in model.graph.node:
        nodes.append(node)
        if node.op_type == 'QuantizeLinear' and node.input[0] in origins:
            inside = node.input[0] + '_unsqueezed'
            nodes.insert(-1, helper.make_node('Unsqueeze', [node.input[0], 'first_axis'], [inside]))
            node.input[0] = inside
            unsqueezed.add(node.output[0])
        elif node.op_type == 'DequantizeLinear' and node.input[0] in unsqueezed:
            outside, node.output[0] = node.output[0], node.output[0] + '_unsqueezed'
            nodes.append(helper.make_node('Squeeze', [node.output[0], 'first_axis'], [outside]))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def int8_nodes(model: Any) -> list[str]:
    """The nodes that work on int8 weights and quantised inputs; raises a RuntimeError if none does."""
    producer = {out: node for node in model.graph.node for out in node.output}

    def quantised(name: str) -> bool:
        node = producer.get(name)
        if node is not None and node.op_type == 'Squeeze':
            node = producer.get(node.input[0])
        return node is not None and node.op_type == 'DequantizeLinear'

    found = [node.name for node in model.graph.node
             if node.op_type in ONNX_LAYERS and all(map(quantised, node.input[:2]))]
    if not found:
        raise RuntimeError('quantisation left no int8 operator in the model')
    return found


def count_openvino(path: Path) -> int:
    """How many layers of an .xml OpenVINO runs in int8 on this CPU; raises a RuntimeError if none."""
    compiled = openvino_core().compile_model(path, 'CPU', dict(INFERENCE_PRECISION_HINT='f32'))

    def read(operator: Any, key: str) -> str:
        value = operator.get_rt_info()[key]
        return str(getattr(value, 'value', value))

    number = sum(read(operator, 'layerType') in OPENVINO_LAYERS and read(operator, 'runtimePrecision') in ('i8', 'u8')
                 for operator in compiled.get_runtime_model().get_ops())
    if not number:
        raise RuntimeError(f'OpenVINO runs nothing of {path} in int8')
    return number


# -- .pt2: torchao -------------------------------------------------------------------------------------------------


def quantize_program(program: ExportedProgram, images: Sequence[Tensor], to_input: Callable[[Tensor], Tensor],
                     layers: dict[str, str], keep: Collection[str], report: Callable[[str], None]) -> nn.Module:
    """A network, to be traced again, whose layers quantise and dequantise.

    ``torch.compile`` makes int8 kernels of it on x86.

    Args:
        program: in float32.
        layers: see :func:`layers`.
        images, to_input, keep, report: as of :func:`quantize_onnx`.
    """
    with quiet():
        from torchao.quantization.pt2e import MinMaxObserver
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
    config = x86.get_default_x86_inductor_quantization_config()
    activation = dataclasses.replace(config.input_activation,
                                     observer_or_fake_quant_ctr=MinMaxObserver.with_args(eps=2**-12))
    weight = dataclasses.replace(config.weight, quant_min=-127)  # scale max|W| / 127
    config = dataclasses.replace(config, input_activation=activation, output_activation=activation, weight=weight)
    quantizer = x86.X86InductorQuantizer()
    for layer_type in (nn.Linear, nn.Conv2d):
        quantizer.set_module_type_qconfig(layer_type, config)
    for layer in keep:
        quantizer.set_module_name_qconfig(layers[layer], None)
    with quiet(), torch.no_grad():
        prepared = prepare_pt2e(program.module(), quantizer)
        for image in images:
            prepared(to_input(image))
        converted = convert_pt2e(prepared)
    report(f'  {count_program(converted)} of {len(layers)} layers in int8')
    return converted


def count_program(program: nn.Module) -> int:
    """How many layers get a dequantised weight and a dequantised input; raises a RuntimeError if none does."""
    targets = (torch.ops.aten.linear.default, torch.ops.aten.conv2d.default)
    number = sum(node.target in targets and all('dequantize' in str(arg.target) for arg in node.args[:2])
                 for node in program.graph.nodes)
    if not number:
        raise RuntimeError('quantisation left no int8 operator in the program')
    return number


# -- which layers are worth it -------------------------------------------------------------------------------------


def _rounded(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = ((high - low) / 255).clamp(min=1e-12)
    zero = (-low / scale).round()
    return ((x / scale + zero).round().clamp(0, 255) - zero) * scale


def sensitivity(network: nn.Module, run: Callable[[Tensor], Sequence[Tensor]],
                inputs: Sequence[Tensor]) -> list[tuple[str, float]]:
    """What quantising each layer alone costs, the most expensive first.

    Args:
        network: holds the layers.
        run: takes an image through them, gives tensors.
        inputs: calibration images.

    Returns:
        (name, relative error of the outputs) of each of :func:`layers` that runs, simulated in float32.
    """
    chosen = {name: network.get_submodule(path) for name, path in layers(network).items()}
    ranges: dict[str, tuple[Tensor, Tensor]] = {}

    def observe(name: str) -> Callable:
        def hook(module: nn.Module, args: tuple[Tensor]) -> None:
            low, high = torch.aminmax(args[0])
            if name in ranges:
                low, high = torch.minimum(low, ranges[name][0]), torch.maximum(high, ranges[name][1])
            ranges[name] = low, high
        return hook

    with torch.no_grad():
        hooks = [module.register_forward_pre_hook(observe(name)) for name, module in chosen.items()]
        expected = [run(image) for image in inputs]
        for hook in hooks:
            hook.remove()
        costs = []
        for name in ranges:
            module = chosen[name]
            weight = module.weight.data
            axis = 1 if isinstance(module, nn.ConvTranspose2d) else 0
            others = [i for i in range(weight.dim()) if i != axis]
            scale = (weight.abs().amax(others, keepdim=True) / 127).clamp(min=1e-12)
            hook = module.register_forward_pre_hook(lambda _, args, name=name: (_rounded(args[0], *ranges[name]), ))
            module.weight.data = (weight / scale).round() * scale
            errors = [error(run(image), right) for image, right in zip(inputs, expected)]
            module.weight.data = weight
            hook.remove()
            costs.append((name, sum(errors) / len(errors)))
    return sorted(costs, key=lambda item: -item[1])
