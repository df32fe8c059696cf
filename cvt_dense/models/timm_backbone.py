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

from ..registry import MODELS
from ..weights import Normalisation, StateDict, compare, load_weights_file, select_weights
from .attention import keep_statistics

OUTPUTS = dict(featmap=dict(features_only=True), pooled=dict(num_classes=0))  # timm's arguments for each out_type
TIMM_WEIGHTS = 'timm'  # the checkpoint of init_cfg that means the weights that timm publishes for model_name
# For images of any size, where a network has these arguments.
ANY_SIZE = dict(strict_img_size=False, dynamic_img_size=True, dynamic_img_pad=True)


@MODELS.register_module()
class TimmBackbone(BaseModule):
    """A timm network's maps for a detector or segmentor, or its pooled features for a classifier.

    Images may have any size, also for Swin and ViT, whose own default is one fixed size.

    Args:
        model_name: as ``timm.create_model`` takes it, e.g. ``'swin_tiny_patch4_window7_224.ms_in1k'``; the part
            behind the dot chooses the published weights.
        out_indices: levels to return with ``'featmap'``, as timm counts them: ResNet's 0 is its stem of stride 2,
            Swin's, PVT's and ConvNeXt's 0 has stride 4, a ViT's count its blocks, whose stride is the patches'.
            Default: timm's.
        out_type: ``'featmap'``: maps (B, C_i, H_i, W_i); ``'pooled'``: (B, C), what timm's own head gives to its last
            linear layer.
        in_channels: channels of the image; published weights are adapted to it, as timm does.
        norm_eval: whether every BatchNorm uses its stored statistics in training, too, as is right for 1 or 2 images
            per GPU.
        level_norms: gives each level a LayerNorm of its own, ``norm0``..., as MMDetection's Swin and ConvNeXt have.
        init_cfg: None: timm's initialisation. ``dict(type='Pretrained', checkpoint='timm')``: the weights that timm
            publishes, from its hub; a file or URL in place of ``'timm'``: timm's names, or a checkpoint of this
            project whose ``backbone`` is the same network, and its averaged weights unless ``weights='raw'``. Further
            tensors of the file are unused; a tensor of the network that the file lacks is an error. Norms of levels
            are loaded where the file has them.
        timm_args: further arguments of ``timm.create_model``, e.g. ``drop_path_rate``.

    Attributes:
        out_channels: the number of channels of each output.
        out_strides: the stride of each map in pixels.

    Raises:
        ValueError: ``out_type`` is not allowed. Other arguments' errors are timm's.
        CheckpointError: on ``init_weights()``: a file that cannot be read or does not fit.

    Shapes:
        Input (B, in_channels, H, W). Always returns a tuple; maps are NCHW and contiguous.
    """

    def __init__(self, model_name: str, out_indices: Sequence[int] | None = None, out_type: str = 'featmap',
                 in_channels: int = 3, norm_eval: bool = False, level_norms: bool = False,
                 init_cfg: dict[str, Any] | None = None, **timm_args: Any):
        if out_type not in OUTPUTS:
            raise ValueError(f'out_type={out_type!r}: allowed are {", ".join(OUTPUTS)}.')
        super().__init__(init_cfg)
        self.model_name = model_name
        self.in_channels = in_channels
        self.out_type = out_type
        self.norm_eval = norm_eval
        self.level_norms = level_norms
        self._timm_args = dict(timm_args, in_chans=in_channels)
        accepted = {name for base in type(self._bare()).__mro__ for name in inspect.signature(base.__init__).parameters}
        # Swin's last stage shifts its windows where maps are wanted, as MMDetection's does. At 224x224, where one
        # window is the map, timm's classifier does not.
        any_size = dict(ANY_SIZE, always_partition=True) if out_type == 'featmap' else ANY_SIZE
        self._timm_args = {**{key: any_size[key] for key in any_size if key in accepted}, **self._timm_args}
        levels = {} if out_indices is None else dict(out_indices=tuple(out_indices))
        self.network = timm.create_model(model_name, **self._timm_args, **OUTPUTS[out_type], **levels)
        if out_type == 'featmap':
            self.out_channels = tuple(self.network.feature_info.channels())
            self.out_strides = tuple(self.network.feature_info.reduction())
        else:
            self.out_channels = (getattr(self.network, 'head_hidden_size', None) or self.network.num_features, )
        for module in self.network.modules():
            if isinstance(module, PatchEmbed) and not module.strict_img_size:
                module.dynamic_img_pad = True  # Swin has no argument for it
        if level_norms:
            for i, channels in enumerate(self.out_channels):
                self.add_module(f'norm{i}', LayerNorm2d(channels, eps=1e-5))  # CvT's norms have this eps
        self.train()

    def _bare(self) -> nn.Module:
        """Return the network without outputs and without memory."""
        with torch.device('meta'):
            return timm.create_model(self.model_name, **self._timm_args, num_classes=0)

    def train(self, mode: bool = True) -> 'TimmBackbone':
        """Set the mode, except, with ``norm_eval``, for BatchNorm."""
        super().train(mode)
        if mode and self.norm_eval:
            keep_statistics(self)
        return self

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Turn (B, in_channels, H, W) into a tuple, see ``out_type``."""
        if self.out_type == 'pooled':
            return (self.network(x), )
        outs = self.network(x)
        if getattr(self.network, 'output_fmt', 'NCHW') == 'NHWC':
            outs = [out.permute(0, 3, 1, 2) for out in outs]
        if self.level_norms:
            outs = [getattr(self, f'norm{i}')(out) for i, out in enumerate(outs)]
        # mmcv's operators (RoIAlign...) take any memory for NCHW's.
        return tuple(out.contiguous() for out in outs)

    # -- layers --------------------------------------------------------------------------------------

    @cached_property
    def _layers(self) -> tuple[dict[str, int], set[str]]:
        """Return the layer of each parameter and the names that timm exempts from decay, both as :func:`_key`."""
        bare = self._bare()
        layers = group_parameters(bare, bare.group_matcher(coarse=False), reverse=True)
        free = getattr(bare, 'no_weight_decay', set)() or ()
        return {_key(name): layer for name, layer in layers.items()}, {_key(name) for name in free}

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """Return the layer of a parameter, for layer-wise learning rate decay, by timm's own layer groups.

        Every parameter outside of the network is the last layer. Arguments and result as those of
        :meth:`cvt_dense.models.CvT.get_layer_depth`.
        """
        layers, prefix = self._layers[0], f'{prefix}network.'
        last = max(layers.values()) + 1
        inside = param_name.startswith(prefix)
        return layers.get(_key(param_name.removeprefix(prefix)), last) if inside else last, last + 1

    def no_weight_decay(self) -> set[str]:
        """Return the names of parameters that timm exempts from decay: position embeddings and tables, CLS tokens."""
        return {f'network.{name}' for name, _ in self.network.named_parameters() if _key(name) in self._layers[1]}

    # -- weights -------------------------------------------------------------------------------------

    def init_weights(self) -> None:
        """Load the weights of ``init_cfg``; timm has initialised everything else while it was built."""
        if self.init_cfg:
            tensors = self._read()
            self.load_state_dict(tensors, strict=False)
            print_log(f'TimmBackbone {self.model_name}: {len(tensors)} tensors loaded; from '
                      f'{self.init_cfg["checkpoint"]}', logger='current')
        self._is_init = True

    def check_init_weights(self) -> None:
        """Compare the weights that :meth:`init_weights` would load with the network, without loading them.

        Raises:
            CheckpointError: it cannot be read, or does not fit.
        """
        if self.init_cfg:
            self._read()

    def trained_with(self) -> dict[str, Normalisation]:
        """Return the mean and standard deviation of the images that timm's published weights were trained on."""
        if not self.init_cfg or self.init_cfg['checkpoint'] != TIMM_WEIGHTS:
            return {}
        about = self.network.pretrained_cfg
        return {self.model_name: tuple(tuple(255. * value for value in about[key]) for key in ('mean', 'std'))}

    def _read(self) -> StateDict:
        """Return the tensors that ``init_cfg`` names under the names of this backbone's."""
        source, weights = self.init_cfg['checkpoint'], self.init_cfg.get('weights', 'ema')
        if source == TIMM_WEIGHTS:
            tensors = timm.create_model(self.model_name, pretrained=True, **self._timm_args).state_dict()
        else:
            tensors = select_weights(load_weights_file(source, rename=False), weights, source)
        wanted = self.state_dict()
        names = {_key(f'backbone.{name}'): name for name in wanted}
        tensors = {names.get(_key(name), name): value for name, value in tensors.items()}
        norms = [name for name in wanted if name.startswith('norm')]  # a file may have none, or those of other levels
        new = [name for name in norms if name not in tensors or tensors[name].shape != wanted[name].shape]
        return {name: tensors[name] for name in compare(wanted, tensors, source, new, unused=tensors).loaded}


def _key(name: str) -> str:
    """Return a name that timm's classifiers, its ``features_only`` networks and this project's checkpoints share.

    Names of ``features_only`` networks have underscores in place of dots.
    """
    return name.removeprefix('backbone.network.').removeprefix('model.').replace('.', '_')
