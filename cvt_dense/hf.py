"""CvT as a backbone of transformers: ``import cvt_dense.hf``, then ``AutoBackbone.from_config(CvtBackboneConfig())``.

Importing this module registers the two classes with transformers' ``AutoConfig`` and ``AutoBackbone``.
"""
from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor
from transformers import AutoBackbone, AutoConfig, PreTrainedModel, initialization
from transformers.backbone_utils import BackboneConfigMixin, BackboneMixin
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_outputs import BackboneOutput

from .models.cvt import CvT, to_map
from .weights import load_weights_file, select_weights


@strict
class CvtBackboneConfig(BackboneConfigMixin, PreTrainedConfig):
    """Configuration of :class:`CvtBackbone`, the ``backbone_config`` of models such as UperNet and Deformable DETR.

    Args:
        arch: see :class:`cvt_dense.models.CvT`.
        num_channels: channels of the images.
        drop_path_rate: see :class:`cvt_dense.models.CvT`.
        out_features: names of the maps that are returned: 'stage1', 'stage2', 'stage3', with strides 4, 8 and 16.
        out_indices: the same by number: 0, 1, 2. Default of both: the last map.
    """

    model_type = 'cvt_dense'
    arch: str = 'cvt-13'
    num_channels: int = 3
    drop_path_rate: float | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if self.arch not in CvT.arch_zoo:
            raise ValueError(f'arch={self.arch!r}: allowed are {", ".join(CvT.arch_zoo)}.')
        dims = CvT.arch_zoo[self.arch]['embed_dims']
        self.hidden_sizes = list(dims)
        self.stage_names = [f'stage{i}' for i in range(1, len(dims) + 1)]
        self.set_output_features_output_indices(out_indices=kwargs.pop('out_indices', None),
                                                out_features=kwargs.pop('out_features', None))
        super().__post_init__(**kwargs)


class CvtBackbone(BackboneMixin, PreTrainedModel):
    """A :class:`cvt_dense.models.CvT` whose maps transformers' detectors and segmentors take.

    A new one has random weights. :meth:`load` gives it the Hub's, ``from_pretrained`` those that ``save_pretrained``
    has written.

    Args:
        config: a :class:`CvtBackboneConfig`.
    """

    config_class = CvtBackboneConfig
    main_input_name = 'pixel_values'
    has_attentions = False
    supports_gradient_checkpointing = False
    _supports_sdpa = True
    _no_split_modules = ('CvTStage', )

    def __init__(self, config: CvtBackboneConfig):
        super().__init__(config)
        self.num_features = config.hidden_sizes
        self.levels = [config.stage_names.index(name) for name in config.out_features]  # an index may be negative
        self.cvt = self._build()
        # The network has initialised itself, unless it waits on the meta device for the weights of a folder.
        self.cvt._is_hf_initialized = not next(self.cvt.parameters()).is_meta
        self.post_init()

    def _build(self) -> CvT:
        """Return a new network with the norms of the wanted maps alone."""
        last = max(self.levels)
        network = CvT(self.config.arch, self.config.num_channels, out_indices=list(range(last + 1)),
                      drop_path_rate=self.config.drop_path_rate)
        for i in range(last + 1):
            if i not in self.levels:
                delattr(network, f'norm{i}')
        return network

    def _initialize_weights(self, module: torch.nn.Module, is_custom_code: bool = False) -> None:
        super()._initialize_weights(module)  # for custom code it passes modules without parameters of their own

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Give what a folder lacks the values of a new network; transformers' ``copy_`` spares what was loaded."""
        if module is self.cvt:
            own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            if not all(getattr(value, '_is_hf_initialized', False) for value in own.values()):
                new = self._build()
                for name, value in (*new.named_parameters(), *new.named_buffers()):
                    initialization.copy_(own[name], value)

    def load(self, checkpoint: str = 'hf://microsoft/cvt-13') -> 'CvtBackbone':
        """Load the weights of a CvT, and return the backbone.

        Args:
            checkpoint: as :func:`cvt_dense.weights.load_weights_file` takes it: the Hub's, the authors', or this
                project's. The norms of the maps, which published weights do not have, keep their initial values.

        Raises:
            CheckpointError: the weights do not fit.
        """
        with torch.no_grad():
            self.cvt.load_strictly(select_weights(load_weights_file(checkpoint), source=checkpoint), checkpoint)
        return self

    def forward(self, pixel_values: Tensor, output_hidden_states: bool | None = None,
                output_attentions: bool | None = None, return_dict: bool | None = None,
                **kwargs: Any) -> BackboneOutput | tuple:
        """Map images (B, C, H, W) to the maps of ``out_features``.

        Args:
            pixel_values: normalised images.
            output_hidden_states: whether every stage's map is returned too, before its norm.
            output_attentions: must be false, since the fused attention has no maps.
            return_dict: whether a ``BackboneOutput`` is returned instead of a tuple. Default of all: as in the config.

        Raises:
            ValueError: attention maps are asked for.
        """
        if self.config.output_attentions if output_attentions is None else output_attentions:
            raise ValueError('output_attentions=True: the fused attention has no maps.')
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        maps, hidden = [], []
        for i, (tokens, _, hw_shape) in enumerate(self.cvt.iterate_stages(pixel_values)):
            hidden.append(to_map(tokens, hw_shape))
            if i in self.levels:
                maps.append(to_map(getattr(self.cvt, f'norm{i}')(tokens), hw_shape).contiguous())
        hidden_states = tuple(hidden) if output_hidden_states else None
        if not (self.config.return_dict if return_dict is None else return_dict):
            return (tuple(maps), hidden_states) if hidden_states else (tuple(maps), )
        return BackboneOutput(feature_maps=tuple(maps), hidden_states=hidden_states)


AutoConfig.register('cvt_dense', CvtBackboneConfig)
AutoBackbone.register(CvtBackboneConfig, CvtBackbone)
