"""Open an exported file as a function of torch tensors, in ONNX Runtime, OpenVINO or PyTorch."""
import json
import threading
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError, cause

# Runtimes that open each suffix; the first is the default. ONNX Runtime's thread pool is its own, as is OpenVINO's.
RUNTIMES = {'.onnx': ('onnxruntime', 'openvino'), '.xml': ('openvino', ), '.pt2': ('torch', )}
METADATA = 'cvt_dense'  # the key that a file's metadata has in each format

Run = Callable[[Tensor], dict[str, Tensor]]


def is_exported(path: str | Path) -> bool:
    """Return whether a file's name is one of an exported file, not of a checkpoint."""
    return Path(path).suffix.lower() in RUNTIMES


def open_exported(path: str | Path, runtime: str | None = None) -> 'Exported':
    """Open what ``tools/export.py`` has written.

    The runtime uses as many threads as PyTorch (``torch.set_num_threads``). A ``.pt2`` is a program: open only your
    own.

    Args:
        path: ``.onnx``, ``.xml`` or ``.pt2`` file.
        runtime: 'onnxruntime' (.onnx), 'openvino' (.onnx, .xml) or 'torch' (.pt2). Default: the first of these
            that opens such a file.

    Raises:
        UserError: no such file, one that is damaged or was not exported here, or a runtime that does not open it.
    """
    path = Path(path).absolute()  # a pickled Exported opens it again, perhaps in another folder
    allowed = RUNTIMES.get(path.suffix.lower(), ())
    if not path.is_file() or not allowed:
        raise UserError(f'{path} is no file with the suffix {", ".join(RUNTIMES)}.')
    runtime = runtime or allowed[0]
    if runtime not in allowed:
        raise UserError(f'runtime={runtime!r} does not open {path}: {" and ".join(allowed)} do.')
    try:
        text, run = dict(onnxruntime=_onnxruntime, openvino=_openvino, torch=_torch)[runtime](path)
    except ImportError as error:
        raise UserError(f"{path} needs {runtime}: pip install 'cvt_dense[deploy]' ({error}).") from error
    except Exception as error:  # each runtime raises its own exceptions for a damaged file
        with path.open('rb') as file:
            raise UserError(f'{path} ({path.stat().st_size:,} bytes, starting with {file.read(16)!r}) cannot be opened '
                            f'by {runtime}: {cause(error)}') from error
    if not text:
        raise UserError(f'{path} lacks the metadata that tools/export.py writes: export it from its config.')
    return Exported(path, runtime, text, run)


class Exported:
    """An opened file: ``exported(image)`` returns its outputs by name, in several threads at once too.

    Pickled, it opens the file again.

    Attributes:
        file: its path.
        runtime: what runs it: 'onnxruntime', 'openvino' or 'torch'.
        metadata: entries of the file, see ``docs/reference/exported_files.md``.
    """

    def __init__(self, file: Path, runtime: str, text: str, run: Run):
        self.file, self.runtime, self._run = file, runtime, run
        self.metadata: dict[str, Any] = json.loads(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return open_exported, (self.file, self.runtime)

    def __call__(self, image: Tensor) -> dict[str, Tensor]:
        """Run a batch of any size on the CPU, or a detector on one image; outputs are on ``image``'s device.

        Args:
            image: images of the type and layout in ``metadata``: float32 (B, C, H, W), or with ``raw_input`` uint8.

        Raises:
            UserError: the file was made for another size, or detects objects in one image at a time.
        """
        size = list(image.shape[1:3] if self.metadata['layout'] == 'NHWC' else image.shape[2:4])
        expected = self.metadata['input_size']
        if not self.metadata['dynamic'] and size != expected:
            raise UserError(f'{self.file} was made for images of {expected[0]}x{expected[1]} pixels (height x width), '
                            f'not {size[0]}x{size[1]}: resize in the test pipeline, or export with --dynamic.')
        if 'boxes' in self.metadata['outputs'] and len(image) != 1:
            raise UserError(f'{self.file} detects objects in one image at a time and got {len(image)}.')
        with torch.no_grad():
            parts = [self._run(part.contiguous()) for part in image.detach().cpu().split(
                self.metadata['batch'] or len(image))]
        return {name: torch.cat([part[name] for part in parts]).to(image.device) for name in parts[0]}

    def run_normalised(self, batch: Tensor) -> dict[str, Tensor]:
        """Run a batch that was normalised by the file's mean and standard deviation already, float (B, C, H, W)."""
        return self(file_input(batch, self.metadata))


def file_input(batch: Tensor, metadata: dict[str, Any]) -> Tensor:
    """Convert a network's inputs to inputs of its exported file.

    Args:
        batch: what the data preprocessor makes of images: float (B, C, H, W).
        metadata: metadata of the file.

    Returns:
        ``batch`` in float32, or for a file with ``raw_input`` the RGB pixels that it comes from, uint8 in ``layout``.
    """
    batch = batch.float()
    if not metadata['raw_input']:
        return batch
    mean, std = (batch.new_tensor(metadata[key]).view(-1, 1, 1) for key in ('mean', 'std'))
    pixels = (batch * std + mean).round().clamp(0, 255).to(torch.uint8)
    if takes_bgr(metadata):
        pixels = pixels.flip(1)
    return pixels.permute(0, 2, 3, 1).contiguous() if metadata['layout'] == 'NHWC' else pixels


def as_json(settings: Any) -> Any:
    """Return settings of a config as a file's metadata has them."""
    return json.loads(json.dumps(settings, default=str))


def takes_bgr(metadata: dict[str, Any]) -> bool:
    """Return whether the network takes BGR, in which the mm libraries read images unless the config converts them."""
    return metadata['task'] != 'classification' and not metadata['bgr_to_rgb']


# -- runtimes: each function returns the metadata's text and a function that runs the file ----------------------


def _onnxruntime(path: Path) -> tuple[str | None, Run]:
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])
    names = [output.name for output in session.get_outputs()]

    def run(image: Tensor) -> dict[str, Tensor]:
        return dict(zip(names, map(torch.from_numpy, session.run(None, dict(image=image.numpy())))))

    return session.get_modelmeta().custom_metadata_map.get(METADATA), run


@cache
def openvino_core() -> Any:
    """Return the one core of this process, which lives as long as the process.

    OpenVINO gives the thread that makes one a signal stack of its own and frees that with it, from whichever thread
    drops it last. The next signal, such as SIGCHLD from a data loader's worker, would end the process with SIGSEGV.
    """
    import openvino
    return openvino.Core()


def _openvino(path: Path) -> tuple[str | None, Run]:
    model = openvino_core().read_model(path)
    # Of an ONNX file OpenVINO keeps the metadata under 'framework'.
    text = next((str(model.get_rt_info(key).value) for key in ([METADATA], ['framework', METADATA])
                 if model.has_rt_info(key)), None)
    compiled = openvino_core().compile_model(model, 'CPU', dict(
        INFERENCE_PRECISION_HINT=json.loads(text or '{}').get('inference_precision', 'f32'),
        INFERENCE_NUM_THREADS=torch.get_num_threads()))
    names, own = [output.any_name for output in compiled.outputs], threading.local()

    def run(image: Tensor) -> dict[str, Tensor]:
        if not hasattr(own, 'request'):  # one request for each thread, because a request holds an image
            own.request = compiled.create_infer_request()
        outputs = own.request.infer(dict(image=image.numpy()), share_inputs=True, share_outputs=True)
        return {name: torch.from_numpy(outputs[name].copy()) for name in names}

    return text, run


def _torch(path: Path) -> tuple[str | None, Run]:
    from . import operators  # noqa: F401  whole detectors have them
    if not zipfile.is_zipfile(path):  # for which PyTorch logs a traceback
        raise ValueError('it is no ZIP archive')
    extra = {f'{METADATA}.json': ''}
    module = torch.export.load(path, extra_files=extra).module()
    text = extra[f'{METADATA}.json']
    names = json.loads(text or '{}').get('outputs', ())
    return text, lambda image: dict(zip(names, module(image)))
