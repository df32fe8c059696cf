"""``init_cfg`` and ``load_state_dict`` of modules whose weights are CvT's: strict, with a report of one line."""
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mmengine.logging import print_log
from mmengine.model import PretrainedInit, update_init_info
from torch import nn

from ..errors import CheckpointError
from .channels import adapt_channels
from .compare import HEADS, Comparison, check
from .files import load_weights_file, select_weights
from .formats import StateDict, convert, recognise


class StrictPretrainedInit(PretrainedInit):
    """``init_cfg=dict(type='Pretrained', ...)`` of a :class:`StrictLoading` module.

    Args:
        checkpoint: anything that :func:`.files.load_weights_file` takes.
        prefix: takes only the tensors under this prefix. Not needed for this project's files nor the
            authors' nor Hugging Face's, whose format is recognised.
        map_location: as for ``torch.load``.
        weights: 'ema' or 'raw', see :func:`select_weights`.
        in_channels: 'adapt' makes the first convolution's weights fit a network for images of another number of
            channels, see :func:`.channels.adapt_channels`, and logs it. None: the numbers must be equal.

    Raises:
        ValueError: ``in_channels`` is neither.
    """

    def __init__(self, checkpoint: str, prefix: str = '', map_location: Any = 'cpu', weights: str = 'ema',
                 in_channels: str | None = None):
        if in_channels not in (None, 'adapt'):
            raise ValueError(f"init_cfg.in_channels={in_channels!r}: allowed are 'adapt' (the file's first convolution "
                             "is made to fit the network's in_channels) and None (it must fit as it is).")
        super().__init__(checkpoint, prefix, map_location)
        self.weights = weights
        self.in_channels = in_channels

    def __call__(self, module: 'StrictLoading') -> None:
        module.load_strictly(self.read_for(module), self.checkpoint)
        if hasattr(module, '_params_init_info'):
            update_init_info(module, init_info=self._get_init_info())

    def read_for(self, module: 'StrictLoading') -> StateDict:
        """:meth:`read`, with the first convolution that ``in_channels`` asks for."""
        if self.in_channels is None:
            return self.read()
        return adapt_channels(self.read(), getattr(module, 'backbone', module).in_channels, self.checkpoint)

    def read(self) -> StateDict:
        """The tensors in the checkpoint, or those under ``prefix``.

        Raises:
            FileNotFoundError, CheckpointError: it cannot be reached or read, or has nothing under ``prefix``.
        """
        checkpoint = load_weights_file(self.checkpoint, self.map_location)
        state_dict = select_weights(checkpoint, self.weights, self.checkpoint)
        if self.prefix:
            prefix = self.prefix.rstrip('.') + '.'
            given = {key[len(prefix):]: value for key, value in state_dict.items() if key.startswith(prefix)}
            if not given:
                raise CheckpointError(f'{self.checkpoint} has no tensor under prefix={self.prefix!r}: its names start '
                                      f'with {sorted({key.split(".")[0] for key in state_dict})[:8]}. The formats '
                                      'that this project knows need no prefix.')
            state_dict = given
        return state_dict


class StrictLoading:
    """Mixin of a module whose weights are CvT's: what is loaded fits, and is reported.

    It covers ``init_cfg=dict(type='Pretrained')``, which takes :class:`StrictPretrainedInit`'s
    arguments here, and every other way (``load_from``, ``init_detector``, ``load_state_dict``...),
    MMEngine's being lenient otherwise. ``load_state_dict(..., strict=False)``, PyTorch's, stays lenient, of
    this module and of one around it: whoever writes it asks for that.
    """
    _checks_loading = True

    def leave_checking_to_others(self) -> None:
        """Ends the comparison here: a module around this one, or a hook, answers for what is loaded."""
        self._checks_loading = False

    def init_weights(self) -> None:
        """As in any MMEngine module; a checkpoint is loaded last and strictly."""
        checkpoints, others = self._init_cfgs()
        if checkpoints or others:
            self.init_cfg = others + [dict(cfg, type=StrictPretrainedInit) for cfg in checkpoints]
        super().init_weights()

    def check_init_weights(self) -> None:
        """Reads what :meth:`init_weights` would load and compares it, loading nothing.

        Raises:
            FileNotFoundError, CheckpointError: as :class:`StrictPretrainedInit` and :meth:`check_loading`.
        """
        for cfg in self._init_cfgs()[0]:
            init = StrictPretrainedInit(**{key: value for key, value in cfg.items() if key != 'type'})
            self._compare(init.read_for(self), init.checkpoint)

    def _init_cfgs(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The ``init_cfg`` of checkpoints, and the others; none of a module that holds no CvT."""
        if not self.init_cfg or not recognise(self.state_dict()):
            return [], []
        cfgs = [self.init_cfg] if isinstance(self.init_cfg, Mapping) else self.init_cfg
        checkpoints = [cfg for cfg in cfgs if cfg['type'] in ('Pretrained', PretrainedInit, StrictPretrainedInit)]
        return checkpoints, [cfg for cfg in cfgs if cfg not in checkpoints]

    def check_loading(self, state_dict: StateDict, source: str, left_over: Sequence[str] = ()) -> Comparison:
        """Compares a state dict with this module's, loading nothing.

        Args:
            state_dict: CvT's, in any naming.
            source: where it comes from, for the error.
            left_over: names that are left over whatever they are.

        Raises:
            CheckpointError: there is a difference that :func:`~cvt_dense.weights.compare` does not allow.
        """
        given = convert(state_dict, 'microsoft') if recognise(state_dict) else state_dict
        own = convert(self.state_dict(), 'microsoft')
        arch_zoo = getattr(self, 'backbone', self).arch_zoo
        return check(own, given, source, arch_zoo, left_over)

    def load_strictly(self, state_dict: StateDict, source: str) -> Comparison:
        """Loads a CvT state dict in any naming and logs one line: tensors loaded, new, left over.

        Args, Raises:
            As :meth:`check_loading`.
        """
        result, state_dict = self._compare(state_dict, source)
        self._report(result, source)
        own = self.state_dict()
        names = recognise(own)
        given = convert(state_dict, names)
        for key in convert(dict.fromkeys(result.loaded), names):
            own[key].copy_(given[key])
        return result

    def _compare(self, state_dict: StateDict, source: str) -> tuple[Comparison, StateDict]:
        """The comparison, and the part of ``state_dict`` that is this module's."""
        left_over = []
        if recognise(self.state_dict()) == 'microsoft' and recognise(state_dict) == 'cvt_dense':
            left_over = [key for key in state_dict if not key.startswith('backbone.')]  # a backbone from a whole model
            state_dict = {key: value for key, value in state_dict.items() if key.startswith('backbone.')}
        return self.check_loading(state_dict, source, left_over), state_dict

    def _report(self, result: Comparison, source: str) -> None:
        print_log(f'{type(self).__name__}: {result}; from {source}', logger='current')

    def _load_from_state_dict(self, state_dict, prefix, *args) -> None:
        if self._checks_loading and recognise(self.state_dict()):
            given = {key[len(prefix):]: value for key, value in state_dict.items() if key.startswith(prefix)}
            source = 'the checkpoint' + (f' (its part under {prefix!r})' if prefix else '')
            if _lenient():
                own = self.state_dict()
                print_log(f'{type(self).__name__}: {sum(key in own for key in given)} of {len(own)} tensors are in '
                          f'{source}, which was asked to be loaded with strict=False', logger='current')
            else:
                result = self.check_loading(given, source)
                self._report(result, source)
                for key in result.new:
                    if key.startswith(HEADS):  # of another shape, which PyTorch would call an error
                        state_dict.pop(prefix + key, None)
        super()._load_from_state_dict(state_dict, prefix, *args)


def checked_modules(model: nn.Module) -> Iterator[tuple[str, StrictLoading]]:
    """Each part of a model that compares what is loaded into it, with the prefix of its names."""
    for name, module in model.named_modules():
        if isinstance(module, StrictLoading) and module._checks_loading and recognise(module.state_dict()):
            yield name and f'{name}.', module


def _lenient() -> bool:
    """Whether PyTorch's ``load_state_dict`` was called with ``strict=False``.

    PyTorch does not hand it on to the modules, so it is looked up in the call itself. MMEngine's functions,
    which load with ``strict=False`` unless told otherwise, do not go through it.
    """
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get('__name__', '').startswith(('torch.', __name__)):
        if frame.f_code.co_name == 'load_state_dict':
            return not frame.f_locals.get('strict', True)
        frame = frame.f_back
    return False
