"""Writes a traced network as a file with its metadata: ``.onnx``, OpenVINO's ``.xml`` or ``.pt2``."""
import contextlib
import importlib.util
import json
import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from ..errors import UserError
from .runtime import openvino_core

METADATA = 'cvt_dense'
# By suffix, what writing needs: OpenVINO's reader takes the ONNX file.
PACKAGES = {'.onnx': ('onnx', 'onnxscript', 'onnxruntime'), '.xml': ('onnx', 'onnxscript', 'openvino'), '.pt2': ()}
OPSET = 23  # has the Attention operator, which ONNX Runtime computes with a quarter of the memory
INFERENCE_PRECISION = dict(fp32='f32', fp16='f16', bf16='bf16', int8='f32')


def check_format(path: Path, precision: str) -> None:
    """Raises a UserError unless the suffix is known, its packages are installed and ``path`` can be written."""
    if path.suffix not in PACKAGES:
        raise UserError(f'{str(path)!r}: the suffix says what is written; allowed are .onnx (ONNX Runtime, TensorRT, '
                        'OpenVINO), .xml (OpenVINO) and .pt2 (torch.export).')
    needed = [*PACKAGES[path.suffix], *{'int8': ['torchao' if path.suffix == '.pt2' else 'nncf']}.get(precision, [])]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f'{path.suffix} with --precision {precision} needs {", ".join(missing)}, not installed here: '
                        "run pip install -e '.[deploy]' in the checkout, or pip install with these names.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        existed = path.exists()
        with path.open('ab'):
            pass
        if not existed:
            path.unlink()
    except OSError as error:
        raise UserError(f'{str(path)!r} cannot be written ({error.strerror}): name another place.') from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps what exporters and quantisers say about their own insides from the terminal."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            yield
    finally:
        logging.disable(level)


def trace(network: nn.Module, example: torch.Tensor, free: Iterable[int]) -> ExportedProgram:
    """The program of a network.

    Args:
        network: takes one tensor, in eval mode.
        example: of more than 1 in every free dimension: export takes a size of 1 for a constant.
        free: dimensions of the input that may have any size.
    """
    with quiet(), torch.no_grad():
        return torch.export.export(network, (example, ), dynamic_shapes=(dict.fromkeys(free, Dim.DYNAMIC), ),
                                   strict=False)


def to_onnx(program: ExportedProgram, outputs: Sequence[str], dims: dict[int, str], opset: int = OPSET,
            translations: dict[Any, Any] | None = None) -> Any:
    """An ``onnx.ModelProto`` whose input is ``image``.

    Args:
        program: of :func:`trace`.
        outputs: their names.
        dims: names of the input's free dimensions.
        opset: version of ONNX's operators.
        translations: of operators that PyTorch's exporter does not know.
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
    return model


def lower_onnx(model: Any, precision: str) -> Any:
    """Float16 throughout but at input and output, or weights in bfloat16 that are cast to float32 where used.

    Other precisions are left alone. ONNX Runtime has no bfloat16 kernels for CPUs, where such a file is half as large
    and as fast as one in float32.
    """
    import onnx
    if precision == 'fp16':
        from onnxruntime.transformers.float16 import convert_float_to_float16
        with quiet():
            return convert_float_to_float16(model, keep_io_types=True)
    if precision != 'bf16':
        return model
    nodes = []
    for tensor in model.graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT or len(tensor.dims) < 2:
            continue
        name, values = tensor.name, torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy()).bfloat16()
        tensor.CopyFrom(onnx.helper.make_tensor(name + '_bf16', onnx.TensorProto.BFLOAT16, tensor.dims,
                                                values.view(torch.int16).numpy().tobytes(), raw=True))
        nodes.append(onnx.helper.make_node('Cast', [name + '_bf16'], [name], to=onnx.TensorProto.FLOAT))
    for node in reversed(nodes):
        model.graph.node.insert(0, node)
    return model


def save_onnx(model: Any, path: Path, metadata: dict[str, Any]) -> None:
    import onnx
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, {METADATA: json.dumps(metadata)})
    onnx.save(model, path)


def save_openvino(model: Any, path: Path, metadata: dict[str, Any]) -> None:
    """Writes ``path`` and the .bin beside it; bf16 and fp16 files hold float16 weights."""
    import openvino
    with quiet():
        model = openvino_core().read_model(model.SerializeToString())
    model.set_rt_info(json.dumps(metadata), [METADATA])
    openvino.save_model(model, path, compress_to_fp16=metadata['precision'] in ('bf16', 'fp16'))


def save_pt2(program: ExportedProgram, path: Path, metadata: dict[str, Any]) -> None:
    torch.export.save(program, path, extra_files={f'{METADATA}.json': json.dumps(metadata)})
