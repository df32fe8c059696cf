"""Writes a traced network as a file with its metadata: ``.onnx``, OpenVINO's ``.xml`` or ``.pt2``."""
import ast
import contextlib
import importlib.util
import json
import logging
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from ..errors import UserError
from .runtime import METADATA, openvino_core
from .tracing import traceable

PRECISIONS = {'.onnx': ('fp32', 'fp16', 'int8'), '.xml': ('fp32', 'fp16', 'bf16', 'int8'),
              '.pt2': ('fp32', 'fp16', 'bf16')}
# OpenVINO reads the network from an ONNX model in memory.
PACKAGES = {'.onnx': ('onnx', 'onnxscript', 'onnxruntime'), '.xml': ('onnx', 'onnxscript', 'openvino'), '.pt2': ()}
OPSET = 23  # has the Attention operator, which ONNX Runtime computes with a quarter of the memory
INFERENCE_PRECISION = dict(fp32='f32', fp16='f16', bf16='bf16', int8='f32')
LAYERS = ('Conv', 'ConvTranspose', 'Gemm', 'MatMul')


def check_format(path: Path, precision: str) -> None:
    """Check that a file of this format and precision can be written here.

    Raises:
        UserError: the suffix is unknown, the format has no such precision, or a package is not installed.
    """
    if path.suffix not in PACKAGES:
        raise UserError(f'{str(path)!r}: the suffix chooses the format; allowed are .onnx (ONNX Runtime, TensorRT, '
                        'OpenVINO), .xml (OpenVINO) and .pt2 (torch.export).')
    if precision not in PRECISIONS[path.suffix]:
        raise UserError(f'--precision {precision}: {path.suffix} files can be written in '
                        f'{", ".join(PRECISIONS[path.suffix])}.')
    needed = [*PACKAGES[path.suffix], *(['nncf'] if precision == 'int8' else [])]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f'{path.suffix} with --precision {precision} needs {", ".join(missing)}, not installed here: '
                        "run pip install -e '.[deploy]' in the checkout, or pip install with these names.")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide the log messages of exporters and quantisers from the terminal."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
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


def to_onnx(program: ExportedProgram, outputs: Sequence[str], dims: dict[int, str], layers: Collection[str] = (),
            opset: int = OPSET, translations: dict[Any, Any] | None = None) -> Any:
    """Translate a program into an ``onnx.ModelProto`` whose input is ``image``.

    Args:
        program: what :func:`trace` returned.
        outputs: names of the outputs.
        dims: names of the input's free dimensions.
        layers: modules with weights; the nodes that compute them get these names, which OpenVINO keeps.
        opset: version of ONNX's operators.
        translations: functions for operators that PyTorch's exporter does not support.
    """
    with quiet():
        exported = torch.onnx.export(program, (), dynamo=True, verbose=False, opset_version=opset,
                                     input_names=['image'], output_names=list(outputs),
                                     custom_translation_table=translations or {})
    model = exported.model_proto
    shape = model.graph.input[0].type.tensor_type.shape
    renamed = {shape.dim[i].dim_param: name for i, name in dims.items() if shape.dim[i].dim_param}
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in renamed:
                dim.dim_param = renamed[dim.dim_param]
    used = set()  # a head that several levels share is several nodes
    for node in model.graph.node:
        scopes = {prop.key: prop.value for prop in node.metadata_props}.get('pkg.torch.onnx.name_scopes')
        layer = public_name(ast.literal_eval(scopes)[-2]) if node.op_type in LAYERS and scopes else None
        if layer in layers:
            node.name = layer if layer not in used else f'{layer}#{len(used)}'
            used.add(node.name)
    return model


def public_name(name: str) -> str:
    """Turn 'network.model.backbone.stage0...', a name inside a wrapper, into 'backbone.stage0...'."""
    for prefix in ('network.', 'model.'):
        name = name.removeprefix(prefix)
    return name


def to_openvino(model: Any) -> Any:
    """Convert an ``onnx.ModelProto`` to an ``openvino.Model``."""
    with quiet():
        return openvino_core().read_model(model.SerializeToString())


def save_onnx(model: Any, path: Path, metadata: dict[str, Any]) -> None:
    """Write an ONNX model. A model of precision fp16 keeps float32 inputs and outputs.

    Args:
        model: ``onnx.ModelProto`` in float32.
        path: file to write.
        metadata: stored as JSON; its ``precision`` chooses the type of the weights.
    """
    import onnx
    if metadata['precision'] == 'fp16':
        from onnxruntime.transformers.float16 import convert_float_to_float16
        with quiet():
            model = convert_float_to_float16(model, keep_io_types=True)
        casts = {}  # the converter casts a tensor once for each node that reads it, always under one name
        for node in model.graph.node:
            casts.setdefault(tuple(node.output), node)
        nodes = list(casts.values())
        del model.graph.node[:]
        model.graph.node.extend(nodes)
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, {METADATA: json.dumps(metadata)})
    onnx.save(model, path)


def save_openvino(model: Any, path: Path, metadata: dict[str, Any]) -> None:
    """Write an OpenVINO model as ``path`` and a .bin file beside it; bf16 and fp16 models store float16 weights.

    Args:
        model: ``openvino.Model``.
        path: .xml file to write.
        metadata: stored as JSON; its ``precision`` chooses the type of the weights.
    """
    import openvino
    model.set_rt_info(json.dumps(metadata), [METADATA])
    openvino.save_model(model, path, compress_to_fp16=metadata['precision'] in ('bf16', 'fp16'))


def save_pt2(program: ExportedProgram, path: Path, metadata: dict[str, Any]) -> None:
    """Write a traced program.

    Args:
        program: result of ``torch.export.export``.
        path: .pt2 file to write.
        metadata: stored as JSON.
    """
    torch.export.save(program, path, extra_files={f'{METADATA}.json': json.dumps(metadata)})
