"""Writes a traced network as a file with its metadata: ``.onnx``, OpenVINO's ``.xml`` or ``.pt2``."""
import ast
import contextlib
import json
import logging
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from ..errors import UserError
from .runtime import METADATA
from .tracing import traceable

# By suffix the precisions that can be written; OpenVINO reads the network from an ONNX model in memory.
PRECISIONS = {'.onnx': ('fp32', 'int8'), '.xml': ('fp32', 'bf16', 'int8'), '.pt2': ('fp32', )}
INFERENCE_PRECISION = dict(fp32='f32', bf16='bf16', int8='f32')
OPSET = 23  # has the Attention operator, which ONNX Runtime computes with a quarter of the memory
REGION_OPSET = 20  # of detectors in two stages: ONNX Runtime has no kernel for the RoIAlign of opset 22
LAYERS = ('Conv', 'ConvTranspose', 'Gemm', 'MatMul')
# Rules of onnxscript by which an ONNX graph is simplified.
RULES = ('add_0 mul_by_1 no_op_cast no_op_expand no_op_transpose cast_cast reshape_reshape transpose_transpose '
         'unsqueeze_unsqueeze collapse_slice collapse_slice2 materialize_reshape_shape max_min min_max '
         'fuse_pad_into_conv fuse_batchnorm_into_conv fuse_batchnorm_into_conv_transpose fuse_batchnorm_into_gemm '
         'remove_optional_bias_from_conv').split()


def check_format(path: Path, precision: str) -> None:
    """Check that the suffix of a file is a format that has the precision.

    Raises:
        UserError: it is not.
    """
    if precision not in PRECISIONS.get(path.suffix, ()):
        allowed = '; '.join(f'{suffix} in {", ".join(names)}' for suffix, names in PRECISIONS.items())
        raise UserError(f'{path} with --precision {precision}: allowed are {allowed}.')


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide the log messages of exporters and quantisers from the terminal."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action='ignore'):
            yield
    finally:
        logging.disable(level)


def trace(network: torch.nn.Module, example: torch.Tensor, free: Iterable[int]) -> ExportedProgram:
    """Trace a network.

    Args:
        network: takes one tensor, in eval mode.
        example: inputs whose free dimensions are larger than 1: export takes a size of 1 for a constant.
        free: dimensions of the input that may have any size.
    """
    with quiet(), torch.no_grad(), traceable(network):
        return torch.export.export(network, (example, ), dynamic_shapes=(dict.fromkeys(free, Dim.DYNAMIC), ),
                                   strict=False)


def to_onnx(program: ExportedProgram, outputs: Sequence[str], layers: Collection[str], opset: int,
            translations: dict[Any, Any]) -> Any:
    """Translate a program into an ``onnx.ModelProto`` whose input is ``image``.

    Args:
        program: what :func:`trace` returned.
        outputs: names of the outputs.
        layers: modules with weights; the nodes that compute them get these names, which OpenVINO keeps.
        opset: version of ONNX's operators.
        translations: functions for operators that PyTorch's exporter does not support.
    """
    with quiet():
        made = torch.onnx.export(program, (), dynamo=True, verbose=False, optimize=False, opset_version=opset,
                                 input_names=['image'], output_names=list(outputs),
                                 custom_translation_table=translations)
        simplify(made.model)
        model = made.model_proto
    used = set()  # a head that several levels share is several nodes
    for node in model.graph.node:
        scopes = {prop.key: prop.value for prop in node.metadata_props}.get('pkg.torch.onnx.name_scopes')
        layer = ast.literal_eval(scopes)[-2].removeprefix('model.') if node.op_type in LAYERS and scopes else None
        if layer in layers:
            node.name = layer if layer not in used else f'{layer}#{len(used)}'
            used.add(node.name)
    return model


def simplify(model: Any) -> None:
    """Simplify an ``onnx_ir.Model`` in place by the passes of ``torch.onnx.export(optimize=True)``, but fewer rules.

    The exporter's own list has ``slice_split_rule``, which looks at the whole graph for each of its nodes.
    """
    from onnx_ir.passes import PassManager, common
    from onnxscript import optimizer
    from onnxscript.rewriter import RewritePass
    from onnxscript.rewriter.rules import common as rules
    rewrite = PassManager([RewritePass([getattr(rules, f'{name}_rule') for name in RULES]),
                           common.RemoveUnusedNodesPass()])
    for _ in range(2):
        optimizer.fold_constants(model, onnx_shape_inference=True)
        rewrite(model)
    PassManager([common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
                 common.DeduplicateInitializersPass(), common.CommonSubexpressionEliminationPass(),
                 common.OutputFixPass(), common.NameFixPass()])(model)


def save(model: Any, path: Path, metadata: dict[str, Any]) -> None:
    """Write a model as ``path``; OpenVINO's weights are a .bin file beside it.

    Args:
        model: ``onnx.ModelProto``, ``openvino.Model`` or ``ExportedProgram``, as the suffix of ``path`` says.
        path: file to write.
        metadata: stored as JSON; OpenVINO stores float16 weights if its ``precision`` is bf16.
    """
    text = json.dumps(metadata)
    if path.suffix == '.onnx':
        import onnx
        onnx.helper.set_model_props(model, {METADATA: text})
        onnx.save(model, path)
    elif path.suffix == '.xml':
        import openvino
        model.set_rt_info(text, [METADATA])
        openvino.save_model(model, path, compress_to_fp16=metadata['precision'] == 'bf16')
    else:
        torch.export.save(model, path, extra_files={f'{METADATA}.json': text})
