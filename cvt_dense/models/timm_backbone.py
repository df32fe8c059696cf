"""Any network of timm as a backbone, so that CvT's rivals train under the same heads, schedules and tools."""
import difflib
import inspect
from collections.abc import Mapping, Sequence
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
# timm's arguments that stand for something else here.
INSTEAD = dict(
    pretrained=f"init_cfg=dict(type='Pretrained', checkpoint={PUBLISHED!r}), or a file in its place",
    checkpoint_path="init_cfg=dict(type='Pretrained', checkpoint=FILE)",
    in_chans='in_channels', features_only="out_type='featmap'", num_classes="the classifier's num_classes")
# For images of any size, where a network has these arguments. Of maps, Swin's last stage shifts its windows too, as in
# MMDetection; at 224x224, where one window is the map, its classifier does not.
ANY_SIZE = dict(strict_img_size=False, dynamic_img_size=True, dynamic_img_pad=True)
ANY_SIZE_MAPS = dict(ANY_SIZE, always_partition=True)


@MODELS.register_module()
class TimmBackbone(BaseModule):
    """A timm network's maps for a detector or segmentor, or its pooled features for a classifier.

    Images may have any size, also for Swin and ViT, whose own default is one fixed size.

    Args:
        model_name: as ``timm.create_model`` takes it, e.g. ``'swin_tiny_patch4_window7_224.ms_in1k'``; what stands
            behind the dot says which of the published weights.
        out_indices: levels to return with ``'featmap'``, as timm counts them: ResNet's 0 is its stem of stride 2,
            Swin's, PVT's and ConvNeXt's 0 has stride 4, a ViT's count its blocks, all of stride 16. Default: timm's.
        out_type: ``'featmap'``: maps (B, C_i, H_i, W_i); ``'pooled'``: (B, C), what timm's own head gives to its last
            linear layer.
        in_channels: channels of the image; published weights are adapted to it, as timm does.
        norm_eval: keeps every BatchNorm on its stored statistics; right for 1-2 images a GPU.
        level_norms: gives each level a LayerNorm of its own, ``norm0``..., as MMDetection's Swin and ConvNeXt have.
        init_cfg: None: timm's initialisation. ``dict(type='Pretrained', checkpoint='timm')``: the weights that timm
            publishes, from its hub; a file or address in place of ``'timm'``: timm's names, or a checkpoint of this
            project whose ``backbone`` is the same network. What the file has beside the network is left over;
            anything of the network that it lacks is an error.
        timm_args: further arguments of ``timm.create_model``, e.g. ``drop_path_rate``.

    Attributes:
        out_channels: tuple of each output's channels.
        out_strides: tuple of each output's stride (maps only).

    Raises:
        ValueError: an argument's value is not allowed, or the network gives no maps.
        CheckpointError: on ``init_weights()``: weights that cannot be had or do not fit.

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
        _check(model_name, out_type, out_indices, timm_args, init_cfg)
        self.model_name = model_name
        self.out_type = out_type
        self.norm_eval = norm_eval
        with torch.device('meta'):  # costs nothing
            bare = type(timm.create_model(model_name, num_classes=0))
        accepted = inspect.signature(bare).parameters
        any_size = ANY_SIZE_MAPS if out_type == 'featmap' else ANY_SIZE
        self._timm_args = dict({key: value for key, value in any_size.items() if key in accepted}, **timm_args,
                               in_chans=in_channels)
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
            # timm has no error of its own for what a network does not take.
            maps = ' and feature maps' if 'features_only' in options else ''
            raise ValueError(f'timm builds no {self.model_name!r} with {dict(self._timm_args, **options)}{maps}: '
                             f'{type(error).__name__}: {error}. Change out_indices or the arguments for timm'
                             + (", or take the network as a classifier's backbone, out_type='pooled'." if maps else '.')
                             ) from error

    def train(self, mode: bool = True) -> 'TimmBackbone':
        """Sets the mode, except, with ``norm_eval``, for BatchNorm."""
        super().train(mode)
        if mode and self.norm_eval:
            for module in self.modules():
                if has_statistics(module):
                    module.eval()
        return self

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """(B, in_channels, H, W) to a tuple, see ``out_type``."""
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
        """Layer by parameter's name, and the names that timm lets not decay; both as :func:`_key`."""
        with torch.device('meta'):
            bare = timm.create_model(self.model_name, **dict(self._timm_args, num_classes=0))
        layers = group_parameters(bare, bare.group_matcher(coarse=False), reverse=True)
        free = getattr(bare, 'no_weight_decay', set)() or ()
        return {_key(name): layer for name, layer in layers.items()}, {_key(name) for name in free}

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """The layer of a parameter, for layer-wise learning rate decay: timm's own layer groups.

        Every parameter outside of the network is the last layer. Arguments and result as those of
        :meth:`cvt_dense.models.CvT.get_layer_depth`.
        """
        layers = self._layers[0]
        num_layers = max(layers.values()) + 2
        name = param_name.removeprefix(f'{prefix}network.')
        inside = param_name.startswith(f'{prefix}network.')
        return (layers.get(_key(name), num_layers - 1) if inside else num_layers - 1), num_layers

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters that timm lets not decay: position embeddings and tables, CLS tokens."""
        free = self._layers[1]
        return {f'network.{name}' for name, _ in self.network.named_parameters() if _key(name) in free}

    # -- weights -------------------------------------------------------------------------------------

    def init_weights(self) -> None:
        """Loads what ``init_cfg`` names; timm has initialised everything else while it was built."""
        if self.init_cfg:
            self._load(self._read())
        self._is_init = True

    def check_init_weights(self) -> None:
        """Reads what :meth:`init_weights` would load and compares it, loading nothing.

        Raises:
            FileNotFoundError, CheckpointError: it cannot be had, or does not fit.
        """
        if self.init_cfg:
            self._match(self._read())

    def _read(self) -> StateDict:
        source = self.init_cfg['checkpoint']
        tensors = None
        if source != PUBLISHED:
            tensors = select_weights(load_weights_file(source, rename=False), source=source)
            ours = {name.removeprefix('backbone.network.'): value for name, value in tensors.items()
                    if name.startswith('backbone.network.')}
            if ours:
                return ours
        try:
            return self._through_timm(tensors)
        except Exception as error:  # the network's, the hub's, a filter's of one network: anything
            raise CheckpointError(f'weights of {self.model_name!r} from {source}: {type(error).__name__}: '
                                  f'{" ".join(str(error).split())[:400]} Give a file of weights for this network as '
                                  'init_cfg.checkpoint, or set init_cfg=None to train from scratch.') from error

    def _through_timm(self, tensors: StateDict | None) -> StateDict:
        """Published weights (None), or a file's, in this network's names and shapes: timm's filters know them."""
        overlay, args = {}, dict(self._timm_args)
        if tensors is not None:
            names = timm.get_pretrained_cfg(self.model_name).classifier or ()
            heads = [tensors.get(f'{name}.weight') for name in ((names, ) if isinstance(names, str) else names)]
            # With as many outputs as the file has, timm compares strictly.
            args['num_classes'] = len(heads[0]) if heads and heads[0] is not None else 0
            overlay = dict(pretrained_cfg_overlay=dict(state_dict=tensors, num_classes=args['num_classes']))
        return timm.create_model(self.model_name, pretrained=True, **overlay, **args).state_dict()

    def _match(self, given: StateDict) -> StateDict:
        """``given`` under the names of this network's tensors."""
        own = {_key(name): name for name in self.network.state_dict()}
        given = {own.get(_key(name), name): value for name, value in given.items()}
        check(self.network.state_dict(), given, self.init_cfg['checkpoint'], left_over=given)
        return {name: given[name] for name in own.values()}

    def _load(self, given: StateDict) -> None:
        found = self._match(given)
        self.network.load_state_dict(found)
        print_log(f'TimmBackbone {self.model_name}: {len(found)} tensors loaded, {len(given) - len(found)} left over; '
                  f'from {self.init_cfg["checkpoint"]}', logger='current')


def _key(name: str) -> str:
    """A parameter's name, the same in timm's classifier and in its networks of maps, which flatten their modules."""
    return name.removeprefix('model.').replace('.', '_')


def _check(model_name: str, out_type: str, out_indices: Any, timm_args: Mapping[str, Any], init_cfg: Any) -> None:
    name = model_name.partition('.')[0]
    if '/' not in name and not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), 5, 0.4)
        raise ValueError(f'model_name={model_name!r}: timm {timm.__version__} has {len(timm.list_models())} networks, '
                         f'but not this one. Near it: {", ".join(near) or "none"}; timm.list_models() lists all.')
    if name != model_name and '/' not in name and model_name not in timm.list_models(f'{name}.*', pretrained=True):
        raise ValueError(f'model_name={model_name!r}: timm publishes no such weights of {name}; it has '
                         f'{", ".join(timm.list_models(f"{name}.*", pretrained=True)) or "none"}.')
    if out_type not in OUT_TYPES:
        raise ValueError(f'out_type={out_type!r}: allowed are {OUT_TYPES}.')
    if out_type != 'featmap' and out_indices is not None:
        raise ValueError(f'out_indices={out_indices!r} with out_type={out_type!r}: leave out_indices out.')
    for key in INSTEAD:
        if key in timm_args:
            raise ValueError(f'{key}={timm_args[key]!r} is not for TimmBackbone: set {INSTEAD[key]}.')
    if init_cfg and (not isinstance(init_cfg, Mapping) or init_cfg.get('type') != 'Pretrained'
                     or not isinstance(init_cfg.get('checkpoint'), str)):
        raise ValueError(f"init_cfg={init_cfg!r}: timm initialises its networks; allowed are None and "
                         f"dict(type='Pretrained', checkpoint={PUBLISHED!r} or a file).")
