"""Load weights into this project's modules strictly and safely, and report the result in one line."""
from collections.abc import Iterator, Mapping
from typing import Any

from mmengine.logging import print_log
from mmengine.model import PretrainedInit, update_init_info
from torch import nn

from ..errors import CheckpointError
from .channels import adapt_channels
from .compare import Comparison, compare, compare_cvt
from .files import load_weights_file, select_weights
from .formats import StateDict, convert, recognise
from .preprocessing import Normalisation, trained_with


class StrictPretrainedInit(PretrainedInit):
    """``init_cfg=dict(type='Pretrained', ...)`` of a :class:`StrictLoading` module.

    Args:
        checkpoint: anything that :func:`.files.load_weights_file` takes.
        prefix: takes only the tensors under this prefix. Not needed for this project's files nor the
            authors' nor Hugging Face's, whose format is recognised.
        map_location: as for ``torch.load``.
        weights: 'ema' or 'raw', see :func:`.files.select_weights`.
        in_channels: 'adapt' makes the first convolution's weights fit a network for images of another number of
            channels, see :func:`.channels.adapt_channels`, and logs it. None: the numbers must be equal.

    Raises:
        ValueError: ``in_channels`` is neither.
    """

    def __init__(self, checkpoint: str, prefix: str | None = None, map_location: Any = 'cpu', weights: str = 'ema',
                 in_channels: str | None = None):
        if in_channels not in (None, 'adapt'):
            raise ValueError(f"init_cfg.in_channels={in_channels!r}: allowed are 'adapt' and None.")
        super().__init__(checkpoint, prefix, map_location)
        self.weights = weights
        self.in_channels = in_channels

    def __call__(self, module: 'StrictLoading') -> None:
        module.load_strictly(self.read_tensors(module), self.checkpoint)
        if hasattr(module, '_params_init_info'):
            update_init_info(module, init_info=self._get_init_info())

    def read_tensors(self, module: 'StrictLoading') -> StateDict:
        """Return the tensors in the checkpoint, or those under ``prefix``, for a module's ``in_channels``.

        Raises:
            CheckpointError: it cannot be reached or read, or has nothing under ``prefix``.
        """
        checkpoint = load_weights_file(self.checkpoint, self.map_location, rename=False)
        tensors = select_weights(checkpoint, self.weights, self.checkpoint)
        if self.prefix:
            prefix = self.prefix.rstrip('.') + '.'
            inside = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
            if not inside:
                raise CheckpointError(f'{self.checkpoint} has no tensor under prefix={self.prefix!r}: its names start '
                                      f'with {sorted({name.split(".")[0] for name in tensors})[:8]}.')
            tensors = inside
        if self.in_channels is not None:
            tensors = adapt_channels(tensors, getattr(module, 'backbone', module).in_channels, self.checkpoint)
        return tensors


class StrictLoading:
    """Mixin of this project's modules, before MMEngine's ``BaseModule``, that loads their weights.

    - ``init_cfg=dict(type='Pretrained')`` takes :class:`StrictPretrainedInit`'s arguments. The file is read without
      running code in it, in the tools of every project, and must fit as :func:`.compare.compare_cvt` defines.
    - ``load_state_dict`` and MMEngine's ``load_checkpoint`` take CvT's weights by the names of the authors, of Hugging
      Face and of this project. Their argument ``strict`` keeps its meaning.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.register_load_state_dict_pre_hook(translate_names)

    def init_weights(self) -> None:
        """Initialise as any MMEngine module; a checkpoint is loaded last."""
        pretrained = pretrained_cfgs(self)
        if pretrained:
            cfgs = [self.init_cfg] if isinstance(self.init_cfg, Mapping) else self.init_cfg
            others = [cfg for cfg in cfgs if cfg not in pretrained]
            self.init_cfg = others + [dict(cfg, type=StrictPretrainedInit) for cfg in pretrained]
        super().init_weights()

    def check_init_weights(self) -> None:
        """Compare the weights that :meth:`init_weights` would load with the module, without loading them.

        Raises:
            CheckpointError: as :class:`StrictPretrainedInit` and :meth:`check_loading`.
        """
        for cfg in pretrained_cfgs(self):
            init = StrictPretrainedInit(**{key: value for key, value in cfg.items() if key != 'type'})
            self.check_loading(init.read_tensors(self), init.checkpoint)

    def trained_with(self) -> dict[str, Normalisation]:
        """Return for each checkpoint of ``init_cfg`` the mean and standard deviation of its images, where known."""
        sources = [str(cfg['checkpoint']) for cfg in pretrained_cfgs(self)]
        return {source: known for source in sources if (known := trained_with(source))}

    def check_loading(self, tensors: StateDict, source: str) -> Comparison:
        """Compare a state dict, of any naming, with this module's, without loading it.

        Args:
            tensors: the state dict.
            source: where it comes from, for the error.

        Raises:
            CheckpointError: there is a difference that :func:`.compare.compare_cvt` does not allow.
        """
        wanted = self.state_dict()
        unused = []
        if recognise(tensors):
            if recognise(wanted) == 'microsoft' and recognise(tensors) == 'cvt_dense':  # a backbone from a whole model
                unused = [name for name in tensors if not name.startswith('backbone.')]
            tensors = convert(tensors, 'microsoft')
        return compare_cvt(convert(wanted, 'microsoft') if recognise(wanted) else wanted, tensors, source, unused)

    def load_strictly(self, tensors: StateDict, source: str) -> Comparison:
        """Load a state dict of any naming and log one line: tensors loaded, new, unused.

        Args, Raises:
            As :meth:`check_loading`.
        """
        result = self.check_loading(tensors, source)
        print_log(f'{type(self).__name__}: {result}; from {source}', logger='current')
        wanted = self.state_dict()
        if recognise(wanted):
            wanted, tensors = convert(wanted, 'microsoft'), convert(tensors, 'microsoft')
        for name in result.loaded:
            wanted[name].copy_(tensors[name])
        return result


def pretrained_cfgs(module: nn.Module) -> list[dict[str, Any]]:
    """Return the entries of a module's ``init_cfg`` that load a checkpoint."""
    given = getattr(module, 'init_cfg', None) or []
    cfgs = [given] if isinstance(given, Mapping) else given
    return [cfg for cfg in cfgs if cfg['type'] in ('Pretrained', PretrainedInit, StrictPretrainedInit)]


def translate_names(module: nn.Module, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
    """Give the tensors of a CvT under ``prefix`` the names that the module has, before PyTorch loads them."""
    tensors = {name.removeprefix(prefix): value for name, value in state_dict.items() if name.startswith(prefix)}
    naming = recognise(module.state_dict())
    if naming and recognise(tensors) not in (None, naming):
        for name in tensors:
            del state_dict[prefix + name]
        state_dict.update({prefix + name: value for name, value in convert(tensors, naming).items()})


def check_model(model: nn.Module, tensors: StateDict, source: str, strict: bool) -> None:
    """Compare a checkpoint with a whole model without loading it, and log what the model's parts would take from it.

    Args:
        model: any model.
        tensors: the checkpoint's, in the naming of MMEngine's checkpoints.
        source: where they come from, for the error.
        strict: every tensor must be there and fit (resuming, testing); otherwise only those of the model's
            :class:`StrictLoading` parts, and heads may differ (fine-tuning).

    Raises:
        CheckpointError: it does not fit.
    """
    for prefix, part in _strict_parts(model):
        result = part.check_loading({name.removeprefix(prefix): value for name, value in tensors.items()
                                     if name.startswith(prefix)}, source)
        if not strict:
            print_log(f'{type(part).__name__}: {result}; from {source}', logger='current')
    if strict:
        compare(model.state_dict(), tensors, source)


def _strict_parts(module: nn.Module, prefix: str = '') -> Iterator[tuple[str, StrictLoading]]:
    """Yield the outermost modules with :class:`StrictLoading` and the prefix of their names."""
    if isinstance(module, StrictLoading):
        yield prefix, module
        return
    for name, child in module.named_children():
        yield from _strict_parts(child, f'{prefix}{name}.')
