"""int8 after training, by NNCF: linear layers and convolutions only.

LayerNorm, softmax, attention's products and everything else stay in float32: with all quantised Swin-T falls from 81.35
to 64.38 % (FQ-ViT, arXiv 2111.13824).
"""
import contextlib
import difflib
import io
from collections.abc import Collection, Sequence
from typing import Any

from torch import Tensor, nn

from ..errors import UserError
from .formats import LAYERS, public_name, quiet

# UperNet's pooled maps are means over whole images: with them in int8, outputs were twice as far off.
KEPT = ('decode_head.psp_modules', 'decode_head.bottleneck')
OPENVINO_LAYERS = ('Convolution', 'ConvolutionBackpropData', 'GroupConvolution', 'MatMul')


def layers(network: nn.Module) -> dict[str, nn.Module]:
    """Return the layers that int8 applies to, by their names in the model that is exported."""
    return {public_name(name): module for name, module in network.named_modules()
            if isinstance(module, (nn.Linear, nn.Conv2d, nn.ConvTranspose2d))}


def select(names: Sequence[str], keep: Sequence[str]) -> set[str]:
    """Return those of ``names`` that are in ``keep`` or in a module named there.

    Raises:
        UserError: an entry of ``keep`` is neither a layer nor a module that contains one.
    """
    kept = set()
    for wanted in keep:
        found = {name for name in names if name == wanted or name.startswith(wanted + '.')}
        if not found:
            similar = difflib.get_close_matches(wanted, names, 3, 0.5) or list(names)[:3]
            raise UserError(f'--keep {wanted}: there is no such layer, nor a module that holds any; similar: '
                            f'{", ".join(similar)}.')
        kept |= found
    return kept


def nodes(model: Any, names: Collection[str]) -> dict[str, str]:
    """Return {node: layer} of the nodes of an ONNX or OpenVINO model that compute one of the layers ``names``."""
    if hasattr(model, 'graph'):
        found = [node.name for node in model.graph.node if node.op_type in LAYERS]
    else:
        found = [op.get_friendly_name() for op in model.get_ops() if op.get_type_name() in OPENVINO_LAYERS]
    layer_of = {name: name.removesuffix('/WithoutBiases').split('#')[0] for name in found}
    return {name: layer for name, layer in layer_of.items() if layer in names}


def int8_layers(model: Any, names: Collection[str]) -> set[str]:
    """Return those of the layers ``names`` that a quantised model computes in int8."""
    found = nodes(model, names)
    if hasattr(model, 'graph'):
        makers = {out: node.op_type for node in model.graph.node for out in node.output}
        return {found[node.name] for node in model.graph.node if node.name in found
                and all(makers.get(name) == 'DequantizeLinear' for name in node.input[:2])}
    return {found[op.get_friendly_name()] for op in model.get_ops() if op.get_friendly_name() in found
            and op.input_value(0).get_node().get_type_name() == 'FakeQuantize'}


def quantize(model: Any, inputs: Sequence[Tensor], names: Collection[str]) -> Any:
    """Quantise the layers of a model.

    Weights: symmetric, by the range of each output channel. Activations: asymmetric, by the range of each tensor over
    the images. NNCF's correction of biases is on. Its smoothing is off: with it, a classifier's logits were 25 % off in
    OpenVINO, and elsewhere it gained nothing.

    Args:
        model: ``onnx.ModelProto`` or ``openvino.Model``, in float32.
        inputs: as the model takes them.
        names: names of the layers that are to be in int8.

    Returns:
        A quantised model of the same kind.

    Raises:
        RuntimeError: no layer is in int8 in the result.
    """
    import nncf
    from nncf.quantization.advanced_parameters import QuantizationParameters
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet
    chosen = nodes(model, names)
    every = [node.name for node in model.graph.node] if hasattr(model, 'graph') else [
        op.get_friendly_name() for op in model.get_ops()]
    nncf.set_log_level(40)
    with quiet(), contextlib.redirect_stdout(io.StringIO()):  # progress bars
        quantized = nncf.quantize(
            model, nncf.Dataset(inputs, lambda image: dict(image=image.numpy())),
            preset=nncf.QuantizationPreset.MIXED, subset_size=len(inputs),
            ignored_scope=nncf.IgnoredScope(names=[name for name in every if name not in chosen], validate=False),
            advanced_parameters=nncf.AdvancedQuantizationParameters(
                overflow_fix=nncf.OverflowFix.DISABLE,
                activations_quantization_params=QuantizationParameters(per_channel=False),
                activations_range_estimator_params=RangeEstimatorParametersSet.MINMAX,
                smooth_quant_alphas=nncf.AdvancedSmoothQuantParameters(matmul=-1, convolution=-1)))
    if not int8_layers(quantized, names):
        raise RuntimeError('quantisation left no int8 operator in the model')
    return quantized
