"""Open an exported file as a function of torch tensors, in ONNX Runtime, OpenVINO or PyTorch."""
import importlib.util
import json
import zipfile
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError

# Runtimes that open each suffix; the first is the default. ONNX Runtime's thread pool is its own, as is OpenVINO's.
RUNTIMES = {'.onnx': ('onnxruntime', 'openvino'), '.xml': ('openvino', ), '.pt2': ('torch', )}
METADATA = 'cvt_dense'  # the key that a file's metadata has in each format
MIN_SIDE = 16  # pixels, of every CvT
FORMAT_VERSION = 1

Run = Callable[[Tensor], dict[str, Tensor]]


def is_exported(path: str | Path) -> bool:
    """Return whether a file's name is one of an exported file, not of a checkpoint."""
    return Path(path).suffix in RUNTIMES


def open_exported(path: str | Path, runtime: str | None = None) -> 'Exported':
    """Open what ``tools/export.py`` has written.

    The runtime uses as many threads as PyTorch (``torch.set_num_threads``). A ``.pt2`` is a program: open only your
    own.

    Args:
        path: ``.onnx``, ``.xml`` or ``.pt2`` file.
        runtime: 'onnxruntime' (.onnx), 'openvino' (.onnx, .xml) or 'torch' (.pt2). Default: the first of these
            that opens such a file.

    Raises:
        UserError: no such file or one that was not exported here, or a runtime that does not open it or is not
            installed.
    """
    path = Path(path)
    if path.suffix not in RUNTIMES:
        raise UserError(f'{path}: exported files end with {", ".join(RUNTIMES)}.')
    runtime = runtime or RUNTIMES[path.suffix][0]
    if runtime not in RUNTIMES[path.suffix]:
        raise UserError(f'runtime={runtime!r} does not open {path.suffix} files, such as {path}: '
                        f'{" and ".join(RUNTIMES[path.suffix])} do.')
    if not path.is_file():
        raise UserError(f'exported file {str(path)!r} does not exist. Give the path of one that tools/export.py wrote.')
    if importlib.util.find_spec(runtime) is None:
        others = [other for other in RUNTIMES[path.suffix] if other != runtime and importlib.util.find_spec(other)]
        raise UserError(f'{path} needs the package {runtime!r}, which is not installed: pip install {runtime}, or '
                        "pip install -e '.[deploy]' in cvt_dense's checkout for all that exported files need"
                        + (f'; {others[0]!r} is installed and opens it too.' if others else '.'))
    return _open(path, runtime, path.stat().st_mtime)


@lru_cache(1)  # a start reads its file before the model is built, and needs one file at most
def _open(path: Path, runtime: str, changed: float) -> 'Exported':
    try:
        text, run = dict(onnxruntime=_onnxruntime, openvino=_openvino, torch=_torch)[runtime](path)
    except UserError:
        raise
    except Exception as error:  # each runtime has exceptions of its own
        reason = ' '.join(str(error).split())[:300]
        raise UserError(f'{runtime} cannot open {path}: {reason}. Export the file again, or open it where it was '
                        'exported.') from error
    return Exported(path, runtime, text, run)


class Exported:
    """An opened file: ``exported(image)`` returns its outputs by name.

    Attributes:
        file: its path.
        runtime: what runs it: 'onnxruntime', 'openvino' or 'torch'.
        metadata: entries of the file, see :mod:`cvt_dense.deploy`.
    """

    def __init__(self, file: Path, runtime: str, text: str, run: Run):
        self.file, self.runtime = file, runtime
        self.metadata: dict[str, Any] = json.loads(text)
        version = self.metadata['format_version']
        if version != FORMAT_VERSION:
            raise UserError(f'{file} is of format {version}, this cvt_dense reads format {FORMAT_VERSION}: export it '
                            'again, or open it with the version that exported it.')
        self._channels_last = self.metadata['raw_input'] and self.metadata['layout'] == 'NHWC'
        self._run = run

    def __deepcopy__(self, memo: dict) -> 'Exported':
        return self  # nothing in it changes, and no runtime's session can be copied

    def __call__(self, image: Tensor) -> dict[str, Tensor]:
        """Run a batch of any size on the CPU; outputs are on ``image``'s device.

        Args:
            image: images of the type and layout in ``metadata``: float32 (B, 3, H, W), or with ``raw_input`` uint8.

        Raises:
            UserError: the file was made for another size.
        """
        height, width = image.shape[1:3] if self._channels_last else image.shape[2:4]
        expected = self.metadata['input_size']
        if not self.metadata['dynamic'] and [height, width] != list(expected):
            raise UserError(f'{self.file} was made for images of {expected[0]}x{expected[1]} pixels (height x width) '
                            f'and got {height}x{width}: resize or pad to that size in the test pipeline, or export '
                            f'with --size {height}x{width} or --dynamic.')
        if min(height, width) < MIN_SIDE:
            raise UserError(f'image of {height}x{width} pixels (height x width): {self.file} needs at least '
                            f'{MIN_SIDE}x{MIN_SIDE}; resize or pad it in the data pipeline.')
        device, image = image.device, image.detach().cpu()
        if not self.metadata['raw_input']:
            image = image.float()
        with torch.no_grad():
            parts = [self._run(part.contiguous()) for part in image.split(self.metadata['batch'] or len(image))]
        return {name: torch.cat([part[name] for part in parts]).to(device) for name in parts[0]}

    def run_normalised(self, batch: Tensor) -> dict[str, Tensor]:
        """Run a batch that was normalised by the file's mean and standard deviation already, float (B, C, H, W)."""
        return self(file_input(batch, self.metadata))


def file_input(batch: Tensor, metadata: dict[str, Any]) -> Tensor:
    """Convert a network's inputs to inputs of its exported file.

    Args:
        batch: what the data preprocessor makes of images: float (B, C, H, W).
        metadata: metadata of the file.

    Returns:
        ``batch`` itself, or for a file with ``raw_input`` the RGB pixels that it comes from, uint8 in ``layout``.
    """
    if not metadata['raw_input']:
        return batch
    mean, std = (batch.new_tensor(metadata[key]).view(-1, 1, 1) for key in ('mean', 'std'))
    pixels = (batch.float() * std + mean).round().clamp(0, 255).to(torch.uint8)
    if takes_bgr(metadata):
        pixels = pixels.flip(1)
    return pixels.permute(0, 2, 3, 1).contiguous() if metadata['layout'] == 'NHWC' else pixels


def takes_bgr(metadata: dict[str, Any]) -> bool:
    """Return whether the network takes BGR, in which the mm libraries read images unless the config converts them."""
    return metadata['task'] != 'classification' and not metadata['bgr_to_rgb']


# -- runtimes: each function returns the metadata's text and a function that runs the file ----------------------


def _foreign_file_error(path: Path) -> UserError:
    return UserError(f'{path} was not written by tools/export.py: it lacks the description of itself (metadata '
                     "'cvt_dense'). Export it from its config and checkpoint.")


def _onnxruntime(path: Path) -> tuple[str, Run]:
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])
    text = session.get_modelmeta().custom_metadata_map.get(METADATA)
    if text is None:
        raise _foreign_file_error(path)
    names = [output.name for output in session.get_outputs()]

    def run(image: Tensor) -> dict[str, Tensor]:
        return dict(zip(names, map(torch.from_numpy, session.run(None, dict(image=image.numpy())))))

    return text, run


@cache
def openvino_core() -> Any:
    """Return the one core of this process, which lives as long as the process.

    OpenVINO gives the thread that makes one a signal stack of its own and frees that with it, from whichever thread
    drops it last. The next signal, such as of a data loader's worker that ends, would end the process with SIGSEGV.
    """
    import openvino
    return openvino.Core()


def _openvino(path: Path) -> tuple[str, Run]:
    model = openvino_core().read_model(path)
    # Of an ONNX file OpenVINO keeps the metadata under 'framework'.
    keys = [key for key in ([METADATA], ['framework', METADATA]) if model.has_rt_info(key)]
    if not keys:
        raise _foreign_file_error(path)
    text = str(model.get_rt_info(keys[0]).value)
    compiled = openvino_core().compile_model(model, 'CPU', dict(
        INFERENCE_PRECISION_HINT=json.loads(text)['inference_precision'],
        INFERENCE_NUM_THREADS=torch.get_num_threads()))
    names = [output.any_name for output in compiled.outputs]

    def run(image: Tensor) -> dict[str, Tensor]:
        outputs = compiled(dict(image=image.numpy()))
        return {name: torch.from_numpy(outputs[name].copy()) for name in names}

    return text, run


def _torch(path: Path) -> tuple[str, Run]:
    from . import operators  # noqa: F401  whole detectors have them
    with zipfile.ZipFile(path) as archive:
        texts = [name for name in archive.namelist() if name.endswith(f'/extra/{METADATA}.json')]
        if not texts:
            raise _foreign_file_error(path)
        text = archive.read(texts[0]).decode()
    names, module = json.loads(text)['outputs'], torch.export.load(path).module()
    return text, lambda image: dict(zip(names, module(image)))
