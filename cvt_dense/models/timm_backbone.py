"""Any network of timm as a backbone, so that baselines train under the same heads, schedules and tools as CvT."""
import inspect
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import timm
import torch
from mmengine.logging import print_log
from mmengine.model import BaseModule
from timm.layers import LayerNorm2d, PatchEmbed
from timm.models import group_parameters
from torch import Tensor, nn

from ..errors import CheckpointError
from ..registry import MODELS
from ..weights import StateDict, check, load_weights_file, select_weights
from .attention import has_statistics

OUT_TYPES = ('featmap', 'pooled')
PUBLISHED = 'timm'  # of init_cfg: the weights that timm publishes for model_name
RESERVED = {'pretrained', 'checkpoint_path', 'in_chans', 'features_only', 'num_classes'}  # set by this class
# For images of any size, where a network has these arguments. Of maps, Swin's last stage shifts its windows too, as in
# MMDetection; at 224x224, where one window is the map, its classifier does not.
ANY_SIZE = dict(strict_img_size=False, dynamic_img_size=True, dynamic_img_pad=True)
ANY_SIZE_MAPS = dict(ANY_SIZE, always_partition=True)


@MODELS.register_module()
class TimmBackbone(BaseModule):
    """A timm network's maps for a detector or segmentor, or its pooled features for a classifier.

    Images may have any size, also for Swin and ViT, whose own default is one fixed size.

    Args:
        model_name: as ``timm.create_model`` takes it, e.g. ``'swin_tiny_patch4_window7_224.ms_in1k'``; the part
            behind the dot chooses the published weights.
        out_indices: levels to return with ``'featmap'``, as timm counts them: ResNet's 0 is its stem of stride 2,
            Swin's, PVT's and ConvNeXt's 0 has stride 4, a ViT's count its blocks, all of stride 16. Default: timm's.
        out_type: ``'featmap'``: maps (B, C_i, H_i, W_i); ``'pooled'``: (B, C), what timm's own head gives to its last
            linear layer.
        in_channels: channels of the image; published weights are adapted to it, as timm does.
        norm_eval: whether every BatchNorm uses its stored statistics in training, too, as is right for 1 or 2 images
            per GPU.
        level_norms: gives each level a LayerNorm of its own, ``norm0``..., as MMDetection's Swin and ConvNeXt have.
        init_cfg: None: timm's initialisation. ``dict(type='Pretrained', checkpoint='timm')``: the weights that timm
            publishes, from its hub; a file or URL in place of ``'timm'``: timm's names, or a checkpoint of this
            project whose ``backbone`` is the same network. Further tensors of the file are unused;
            a tensor of the network that the file lacks is an error.
        timm_args: further arguments of ``timm.create_model``, e.g. ``drop_path_rate``.

    Attributes:
        out_channels: the number of channels of each output.
        out_strides: the stride of each map in pixels.

    Raises:
        ValueError: an argument's value is not allowed, or the network gives no maps.
        CheckpointError: on ``init_weights()``: weights that cannot be read or do not fit.

    Shapes:
        Input (B, in_channels, H, W). Always returns a tuple; maps are NCHW and contiguous.
    """

    def __init__(self,
                 model_name: str,
                 out_indices: Sequence[int] | None = None,
                 out_type: str = 'featmap',
                 in_channels: int = 3,
                 norm_eval: bool = False,
                 level_norms: bool = False,
                 init_cfg: dict[str, Any] | None = None,
                 **timm_args: Any):
        super().__init__(init_cfg)
        if out_type not in OUT_TYPES:
            raise ValueError(f'out_type={out_type!r}: allowed are {OUT_TYPES}.')
        if out_type != 'featmap' and out_indices is not None:
            raise ValueError(f"out_indices={out_indices!r}: allowed with out_type='featmap' only.")
        if RESERVED & set(timm_args):
            raise ValueError(f'{sorted(RESERVED & set(timm_args))} cannot be given: init_cfg names the weights, and '
                             'in_channels, out_type and the classifier set the rest.')
        if init_cfg and (init_cfg.get('type') != 'Pretrained' or 'checkpoint' not in init_cfg):
            raise ValueError(f"init_cfg={init_cfg!r}: allowed are None and dict(type='Pretrained', checkpoint=...).")
        self.model_name = model_name
        self.out_type = out_type
        self.norm_eval = norm_eval
        self._timm_args = dict(timm_args, in_chans=in_channels)
        with torch.device('meta'):  # costs nothing
            bases = type(self._create(num_classes=0)).__mro__
        accepted = {name for base in bases for name in inspect.signature(base.__init__).parameters}
        any_size = ANY_SIZE_MAPS if out_type == 'featmap' else ANY_SIZE
        self._timm_args = {**{key: value for key, value in any_size.items() if key in accepted}, **self._timm_args}
        self.in_channels = in_channels
        if out_type == 'featmap':
            given = {} if out_indices is None else dict(out_indices=tuple(out_indices))
            self.network = self._create(features_only=True, **given)
            self.out_channels = tuple(self.network.feature_info.channels())
            self.out_strides = tuple(self.network.feature_info.reduction())
            self._channels_last = getattr(self.network, 'output_fmt', 'NCHW') == 'NHWC'
        else:
            self.network = self._create(num_classes=0)
            self.out_channels = (getattr(self.network, 'head_hidden_size', None) or self.network.num_features, )
        for module in self.network.modules():
            if isinstance(module, PatchEmbed) and not module.strict_img_size:
                module.dynamic_img_pad = True  # Swin has no argument for it
        for i, channels in enumerate(self.out_channels if level_norms else ()):
            self.add_module(f'norm{i}', LayerNorm2d(channels, eps=1e-5))  # as CvT's own
        self.level_norms = level_norms
        self.train()

    def _create(self, **options: Any) -> nn.Module:
        try:
            return timm.create_model(self.model_name, **self._timm_args, **options)
        except (TypeError, AssertionError, RuntimeError, IndexError, KeyError, AttributeError) as error:
            # timm has no specific error for arguments that a network does not accept.
            raise ValueError(f'timm builds no {self.model_name!r} with {dict(self._timm_args, **options)}: '
                             f'{type(error).__name__}: {error}') from error

    def train(self, mode: bool = True) -> 'TimmBackbone':
        """Set the mode, except, with ``norm_eval``, for BatchNorm."""
        super().train(mode)
        if mode and self.norm_eval:
            for module in self.modules():
                if has_statistics(module):
                    module.eval()
        return self

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Turn (B, in_channels, H, W) into a tuple, see ``out_type``."""
        if self.out_type == 'pooled':
            return (self.network(x), )
        outs = self.network(x)
        if self._channels_last:
            outs = [out.permute(0, 3, 1, 2) for out in outs]
        if self.level_norms:
            outs = [getattr(self, f'norm{i}')(out) for i, out in enumerate(outs)]
        # mmcv's operators (RoIAlign...) take any memory for NCHW's.
        return tuple(out.contiguous() for out in outs)

    # -- layers --------------------------------------------------------------------------------------

    @cached_property
    def _layers(self) -> tuple[dict[str, int], set[str]]:
        """Return the layer of each parameter and the names that timm exempts from decay, both as :func:`_key`."""
        with torch.device('meta'):
            bare = timm.create_model(self.model_name, **dict(self._timm_args, num_classes=0))
        layers = group_parameters(bare, bare.group_matcher(coarse=False), reverse=True)
        free = getattr(bare, 'no_weight_decay', set)() or ()
        return {_key(name): layer for name, layer in layers.items()}, {_key(name) for name in free}

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """Return the layer of a parameter, for layer-wise learning rate decay, by timm's own layer groups.

        Every parameter outside of the network is the last layer. Arguments and result as those of
        :meth:`cvt_dense.models.CvT.get_layer_depth`.
        """
        layers = self._layers[0]
        num_layers = max(layers.values()) + 2
        name = param_name.removeprefix(f'{prefix}network.')
        inside = param_name.startswith(f'{prefix}network.')
        return (layers.get(_key(name), num_layers - 1) if inside else num_layers - 1), num_layers

    def no_weight_decay(self) -> set[str]:
        """Return the names of parameters that timm exempts from decay: position embeddings and tables, CLS tokens."""
        free = self._layers[1]
        return {f'network.{name}' for name, _ in self.network.named_parameters() if _key(name) in free}

    # -- weights -------------------------------------------------------------------------------------

    def init_weights(self) -> None:
        """Load the weights of ``init_cfg``; timm has initialised everything else while it was built."""
        if self.init_cfg:
            tensors = self._read()
            self.network.load_state_dict(tensors)
            print_log(f'TimmBackbone {self.model_name}: {len(tensors)} tensors loaded; from '
                      f'{self.init_cfg["checkpoint"]}', logger='current')
        self._is_init = True

    def check_init_weights(self) -> None:
        """Compare the weights that :meth:`init_weights` would load with the network, without loading them.

        Raises:
            FileNotFoundError, CheckpointError: it cannot be read, or does not fit.
        """
        if self.init_cfg:
            self._read()

    def _read(self) -> StateDict:
        """Return the tensors that ``init_cfg`` names under the names of this network's."""
        source, tensors, given = self.init_cfg['checkpoint'], None, {}
        if source != PUBLISHED:
            tensors = select_weights(load_weights_file(source, rename=False), source=source)
            start = 'backbone.network.'  # of this project's checkpoints
            given = {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}
        if not given:
            try:
                given = self._through_timm(tensors)
            except Exception as error:  # errors of the connection, of the hub and of timm's filters have many types
                raise CheckpointError(f'{source} gives no weights of {self.model_name!r}: {type(error).__name__}: '
                                      f'{" ".join(str(error).split())[:400]}') from error
        own = self.network.state_dict()
        names = {_key(name): name for name in own}
        given = {names.get(_key(name), name): value for name, value in given.items()}
        check(own, given, source, unused=given)
        return {name: given[name] for name in own}

    def _through_timm(self, tensors: StateDict | None) -> StateDict:
        """Return published weights (None), or a file's, as timm converts them for this network."""
        overlay, args = {}, dict(self._timm_args)
        if tensors is not None:
            names = timm.get_pretrained_cfg(self.model_name).classifier or ()
            heads = [tensors.get(f'{name}.weight') for name in ((names, ) if isinstance(names, str) else names)]
            # With as many outputs as the file has, timm compares strictly.
            args['num_classes'] = len(heads[0]) if heads and heads[0] is not None else 0
            overlay = dict(pretrained_cfg_overlay=dict(state_dict=tensors, num_classes=args['num_classes']))
        return timm.create_model(self.model_name, pretrained=True, **overlay, **args).state_dict()


def _key(name: str) -> str:
    """Return a parameter's name, the same in timm's classifier and in its networks of maps, which flatten modules."""
    return name.removeprefix('model.').replace('.', '_')
