"""int8 after training, by NNCF: linear layers and convolutions only.

LayerNorm, softmax, attention's products and everything else stay in float32: with all quantised Swin-T falls from 81.35
to 64.38 % (FQ-ViT, arXiv 2111.13824).
"""
import contextlib
import io
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from .formats import LAYERS, quiet

# UperNet's pooled maps are means over whole images: with them in int8, outputs were twice as far off. With CvT's first
# convolution, which has less than 1 % of CvT-13's products, those of Mask2Former were three to six times as far off.
KEPT = ('backbone.stage0.patch_embed', 'decode_head.psp_modules', 'decode_head.bottleneck')
OPENVINO_LAYERS = ('Convolution', 'ConvolutionBackpropData', 'GroupConvolution', 'MatMul')


def layers(model: nn.Module) -> set[str]:
    """Return the names of the layers of a model that int8 applies to."""
    return {name for name, module in model.named_modules()
            if isinstance(module, (nn.Linear, nn.Conv2d, nn.ConvTranspose2d))}


def layer_nodes(model: Any, names: Collection[str]) -> dict[str, str]:
    """Return {node: layer} of the nodes of an ONNX or OpenVINO model that compute one of the layers ``names``."""
    if hasattr(model, 'graph'):
        nodes = [node.name for node in model.graph.node if node.op_type in LAYERS]
    else:
        nodes = [op.get_friendly_name() for op in model.get_ops() if op.get_type_name() in OPENVINO_LAYERS]
    layer_of = {name: name.removesuffix('/WithoutBiases').split('#')[0] for name in nodes}
    return {name: layer for name, layer in layer_of.items() if layer in names}


def quantize(model: Any, inputs: Sequence[Tensor], names: Collection[str]) -> Any:
    """Return a model whose layers ``names`` are quantised.

    Weights: symmetric, by the range of each output channel, in 7 bits. CPUs without VNNI add two products of uint8 and
    int8 in 16 bits, and 2 * 255 * 64 fits into them: the sums are exact on every CPU. (NNCF leaves 8 bits to depthwise
    convolutions of ONNX, whose products ONNX Runtime does not add in pairs.) Activations: asymmetric, by the range of
    each tensor over the images. NNCF's correction of biases is on. Its smoothing is off: with it, a classifier's logits
    were 25 % off in OpenVINO, and elsewhere it gained nothing.

    Args:
        model: ``onnx.ModelProto`` or ``openvino.Model``, in float32.
        inputs: as the model takes them.
        names: names of the layers that are to be in int8.
    """
    import nncf
    from nncf.quantization.advanced_parameters import QuantizationParameters
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet
    every = [node.name for node in model.graph.node] if hasattr(model, 'graph') else [
        op.get_friendly_name() for op in model.get_ops()]
    layers = layer_nodes(model, names)
    others = [name for name in every if name not in layers]
    nncf.set_log_level(40)
    with quiet(), contextlib.redirect_stdout(io.StringIO()):  # progress bars
        quantized = nncf.quantize(
            model, nncf.Dataset(inputs, lambda image: dict(image=image.numpy())),
            preset=nncf.QuantizationPreset.MIXED, subset_size=len(inputs),
            ignored_scope=nncf.IgnoredScope(names=others, validate=False),
            advanced_parameters=nncf.AdvancedQuantizationParameters(
                overflow_fix=nncf.OverflowFix.ENABLE,
                activations_quantization_params=QuantizationParameters(per_channel=False),
                activations_range_estimator_params=RangeEstimatorParametersSet.MINMAX,
                smooth_quant_alphas=nncf.AdvancedSmoothQuantParameters(matmul=-1, convolution=-1)))
    if hasattr(model, 'graph'):
        store_unsigned(quantized)
    return quantized


def store_unsigned(model: Any) -> None:
    """Store activations of an ONNX model as uint8 instead of int8: the same numbers with a zero point 128 higher.

    ONNX Runtime does so itself on x86, but forgets the ``output_dtype`` of nodes that it has added (1.31.1). A detector
    for one size, in which it joins MatMul and Add, did not open.
    """
    from onnx import TensorProto, numpy_helper
    zeros = {node.input[2] for node in model.graph.node if node.op_type == 'QuantizeLinear'}
    for tensor in model.graph.initializer:
        if tensor.name in zeros and tensor.data_type == TensorProto.INT8:
            unsigned = numpy_helper.to_array(tensor).view(np.uint8) ^ 128
            tensor.CopyFrom(numpy_helper.from_array(unsigned, tensor.name))
    del model.graph.value_info[:]  # which has int8
