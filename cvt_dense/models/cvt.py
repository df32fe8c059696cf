"""CvT: Introducing Convolutions to Vision Transformers (Wu et al. 2021, arXiv 2103.15808)."""
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
import torch.nn.functional as F
from mmcv.cnn import build_activation_layer, build_norm_layer
from mmengine.model import BaseModule
from torch import Tensor, nn

from ..registry import MODELS
from ..weights import StrictLoading
from .attention import Block, LayerNorm, Shape, for_convolution, keep_statistics
from .checkpointing import checkpoint_block

MIN_INPUT_SIZE = 16
# Devices on which an image is laid out channels-last for the first convolution, because that was measured to be faster
# there. All later maps are tokens seen as an image, which is channels-last without a copy on any device.
CHANNELS_LAST = ('cpu', )
OUT_TYPES = ('featmap', 'cls_token', 'avg_featmap')

ARCH_ZOO: dict[str, dict[str, Any]] = {
    'cvt-13':
    dict(embed_dims=(64, 192, 384), depths=(1, 2, 10), num_heads=(1, 3, 6), drop_path_rates=(0., 0., 0.1)),
    'cvt-21':
    dict(embed_dims=(64, 192, 384), depths=(1, 4, 16), num_heads=(1, 3, 6), drop_path_rates=(0., 0., 0.1)),
    'cvt-w24':
    dict(embed_dims=(192, 768, 1024), depths=(2, 2, 20), num_heads=(3, 12, 16), drop_path_rates=(0., 0., 0.3)),
    # This project's own small network, not one of the paper's: see docs/model_card_cvt_nano.md.
    'cvt-nano':
    dict(embed_dims=(32, 64, 128), depths=(1, 2, 6), num_heads=(1, 2, 4), cls_token=False),
}


class ConvEmbed(nn.Module):
    """Convolutional token embedding (paper, section 3.1): an overlapping strided convolution, then LayerNorm.

    Args:
        in_channels: channels of the input map.
        embed_dims: channels of the tokens.
        kernel_size, stride, padding: sizes of the convolution in pixels of the input map.
    """

    def __init__(self, in_channels: int, embed_dims: int, kernel_size: int, stride: int, padding: int):
        super().__init__()
        self.proj = nn.Conv2d(in_channels, embed_dims, kernel_size, stride, padding)
        self.norm = LayerNorm(embed_dims)

    def forward(self, x: Tensor) -> tuple[Tensor, Shape]:
        """Map (B, C, H, W) to tokens (B, H' * W', embed_dims) and (H', W').

        ``H' = (H + 2 * padding - kernel_size) // stride + 1``.
        """
        x = self.proj(for_convolution(x))
        hw_shape = (x.shape[2], x.shape[3])
        return self.norm(x.flatten(2).transpose(1, 2)), hw_shape


# Keys of arch, which are lists with a value for each stage, by the name of one stage's option.
PLURALS = {name: f'{name}s' for name in (
    'embed_dim', 'depth', 'patch_size', 'patch_stride', 'patch_padding', 'mlp_ratio', 'drop_rate', 'attn_drop_rate',
    'drop_path_rate')}


@dataclass(kw_only=True)
class StageOptions:
    """Options of one stage: the keys of ``arch`` and arguments of :class:`CvT`, in the singular.

    Attributes:
        attention: the other keys of ``arch``, arguments of the attention.
        block_drop_path_rates: a value for each block, from ``drop_path_rate``.
    """
    embed_dim: int
    depth: int
    num_heads: int
    patch_size: int
    patch_stride: int
    patch_padding: int
    cls_token: bool
    mlp_ratio: float = 4.
    drop_rate: float = 0.
    attn_drop_rate: float = 0.
    drop_path_rate: float = 0.
    attn_cfg: Mapping[str, Any] | None | Sequence[Mapping[str, Any] | None] = None
    layer_scale_init_value: float | None = None
    pos_embed: int | None = None
    attention: dict[str, Any] = field(default_factory=dict)
    block_drop_path_rates: list[float] = field(default_factory=list)


class CvTStage(nn.Module):
    """Token embedding, optional CLS token, and blocks.

    Args:
        in_channels: channels of the map that comes in.
        options: the stage's options.
        with_cp: recompute each block, except its attention kernel, in the backward pass instead of keeping its
            activations.
        norm_layer: ``channels -> module``, the norm of the convolutional projections.
        act_layer: ``() -> module``, the MLPs' activation; may work in place.
    """

    def __init__(self, in_channels: int, options: StageOptions, with_cp: bool, norm_layer: Callable[[int], nn.Module],
                 act_layer: Callable[[], nn.Module]):
        super().__init__()
        dims = options.embed_dim
        blocks = []  # built before the embedding, so that a seed gives the same weights as in earlier versions
        attn_cfgs = spread('attn_cfg of a stage', options.attn_cfg, options.depth, 'blocks')
        for cfg, drop_path in zip(attn_cfgs, options.block_drop_path_rates):
            cfg = {'type': 'cvt_dense.ConvAttention', **(cfg or {})}
            attn = MODELS.build(dict(
                **cfg, **options.attention, embed_dims=dims, num_heads=options.num_heads,
                attn_drop_rate=options.attn_drop_rate, proj_drop_rate=options.drop_rate, norm_layer=norm_layer))
            blocks.append(Block(dims, attn, options.mlp_ratio, options.drop_rate, drop_path, act_layer,
                                options.layer_scale_init_value))
        self.patch_embed = ConvEmbed(in_channels, dims, options.patch_size, options.patch_stride,
                                     options.patch_padding)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dims)) if options.cls_token else None
        side = options.pos_embed
        self.pos_embed = nn.Parameter(torch.zeros(1, dims, side, side)) if side else None
        self.pos_drop = nn.Dropout(options.drop_rate)
        self.blocks = nn.ModuleList(blocks)
        self.with_cp = with_cp

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None, Shape]:
        """Map (B, C, H, W) to map tokens (B, H' * W', embed_dims), CLS (B, 1, embed_dims) or None, and (H', W')."""
        x, hw_shape = self.patch_embed(x)
        if self.pos_embed is not None:
            resize = hw_shape != tuple(self.pos_embed.shape[2:])
            grid = F.interpolate(self.pos_embed, hw_shape, mode='bicubic') if resize else self.pos_embed
            x = x + grid.flatten(2).transpose(1, 2).to(x.dtype)
        prefix = 0 if self.cls_token is None else 1
        if prefix:
            x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1).to(x.dtype), x), dim=1)
        x = self.pos_drop(x)
        for block in self.blocks:
            if self.with_cp and x.requires_grad:
                x = checkpoint_block(block, x, hw_shape)
            else:
                x = block(x, hw_shape)
        return x[:, prefix:], x[:, :prefix] if prefix else None, hw_shape


@MODELS.register_module()
class CvT(StrictLoading, BaseModule):
    """Convolutional vision Transformer, the backbone of classifiers, detectors and segmentors.

    Parameter names are those of the authors' checkpoints. With ``out_type`` 'cls_token' or 'avg_featmap' the network
    ends with the checkpoints' ``norm``. With 'featmap' every returned map ``i`` has a LayerNorm ``norm{i}`` of its own
    instead, which published checkpoints do not have.

    Args:
        arch: ``'cvt-13'``, ``'cvt-21'``, ``'cvt-w24'``, ``'cvt-nano'``, or a dict with ``embed_dims``, ``depths`` and
            ``num_heads`` (lists with one value per stage). The dict may also have the following keys, each with a list
            or one value for all stages. The defaults are the authors' values, except for the drop path:

            - ``patch_sizes`` (7, 3, 3), ``patch_strides`` (4, 2, 2), ``patch_paddings`` (2, 1, 1): the convolutions of
              the token embeddings.
            - ``mlp_ratios`` (4): hidden channels of the MLPs over ``embed_dims``.
            - ``qkv_bias`` (True), ``qkv_proj_method`` ('dw_bn'), ``kernel_qkv`` (3), ``stride_kv`` (2),
              ``padding_kv`` (1): the projections, see :class:`ConvAttention`.
            - ``cls_token`` (True for the last stage): whether the stage has a CLS token.
            - ``drop_rates`` (0), ``attn_drop_rates`` (0), ``drop_path_rates`` (0): a stage's drop path grows linearly
              from 0 at its first block to this value at its last.
        in_channels: channels of the images. Published weights are for 3 channels; for another number ``init_cfg`` needs
            ``in_channels='adapt'``.
        out_type: what the network returns. ``'featmap'``: a map (B, C_i, H_i, W_i) for each of ``out_indices``.
            ``'cls_token'``: the CLS token (B, C) of the last stage after ``norm``. ``'avg_featmap'``: the mean (B, C)
            of the last stage's map tokens after ``norm``.
        out_indices: numbers of the stages whose maps ``'featmap'`` returns, from 0; negative numbers count from the
            last stage. The number after the last stage, 3, is a max-pooled map of half the last resolution (stride
            32). Default: every stage.
        with_cls_token: whether the last stage has a CLS token; with False no stage has one. Default: as in ``arch``.
        drop_rate: dropout probability, one value or one per stage. Default: as in ``arch``.
        attn_drop_rate: dropout probability of attention weights, one value or one per stage. Default: as in ``arch``.
        drop_path_rate: stochastic depth. One value is that of the last block, and the rate grows linearly from 0 at the
            network's first block, as in mmpretrain. A list has the value of each stage's last block, and the rate grows
            from 0 inside each stage, as in the authors' code; a stage of one block has 0. Default: as in ``arch``.
        attn_cfg: type of attention and its arguments: one config for the whole network, or a list with one entry per
            stage. An entry is a config, None for the paper's attention, or a list with one config per block. Example:
            ``[dict(type='cvt_dense.WindowedAttention', window_size=28), None, None]``. The types are
            :class:`ConvAttention`, the default, and those in ``models/variants``.
        layer_scale_init_value: initial value of timm's LayerScale, a learned factor for each channel of every residual
            branch; one value or one per stage. Use 1 with published weights and 1e-6 for deep networks from scratch.
            Default: no LayerScale.
        pos_embed: side in tokens of a learned grid of positional embeddings, which is resized to the map; one value or
            one per stage, such as ``[56, 28, 14]`` for images of 224x224. Default: no positional embedding.
        frozen_stages: k freezes stages 0 to k, which then stay in eval mode and get no gradients; -1 freezes nothing.
        norm_eval: whether every BatchNorm uses its stored statistics in training, too, as is right for 1 or 2 images
            per GPU.
        with_cp: whether the backward pass recomputes the activations of every block, except the output of its attention
            kernel. This saves memory, costs time and gives the same result.
        norm_cfg: norm of the convolutional projections; ``dict(type='SyncBN')`` synchronises it.
        act_cfg: activation of the MLPs. The authors' checkpoints were trained with QuickGELU; Hugging Face's code runs
            them with ``dict(type='GELU')``.
        init_cfg: as in any MMEngine module. ``dict(type='Pretrained', checkpoint=...)`` takes the authors', Hugging
            Face's and this project's files, see :class:`~cvt_dense.weights.strict_loading.StrictPretrainedInit`.

    Attributes:
        out_channels: the number of channels of each output.
        out_strides: the stride of each map in pixels.

    Raises:
        ValueError: an option's value is not allowed, or ``arch`` lacks a key; the message names it.
        TypeError: ``arch`` has an unknown key.

    Shapes:
        The input is (B, in_channels, H, W) with H and W of at least 16. The map of stage 0 is
        ``floor((H - 3) / 4) + 1`` high; each later map has half the height, rounded up. The output is always a tuple.
    """

    arch_zoo = ARCH_ZOO

    def __init__(self, arch: str | dict[str, Any] = 'cvt-13', in_channels: int = 3, out_type: str = 'featmap',
                 out_indices: Sequence[int] | None = None, with_cls_token: bool | None = None,
                 drop_rate: float | Sequence[float] | None = None,
                 attn_drop_rate: float | Sequence[float] | None = None,
                 drop_path_rate: float | Sequence[float] | None = None,
                 attn_cfg: dict[str, Any] | None | Sequence[Any] = None,
                 layer_scale_init_value: float | None | Sequence[float | None] = None,
                 pos_embed: int | None | Sequence[int | None] = None, frozen_stages: int = -1,
                 norm_eval: bool = False, with_cp: bool = False, norm_cfg: dict[str, Any] = dict(type='BN'),
                 act_cfg: dict[str, Any] = dict(type='cvt_dense.QuickGELU', inplace=True),
                 init_cfg: dict[str, Any] | list[dict[str, Any]] | None = None):
        super().__init__(init_cfg)
        stages = resolve_stages(
            arch, with_cls_token, drop_path_rate, drop_rates=drop_rate, attn_drop_rates=attn_drop_rate,
            attn_cfg=attn_cfg, layer_scale_init_value=layer_scale_init_value, pos_embed=pos_embed)
        self.in_channels = in_channels
        self.out_type = out_type
        self.out_indices = _resolve_out_indices(out_type, out_indices, len(stages))
        self.frozen_stages = frozen_stages
        self.norm_eval = norm_eval
        if not -1 <= frozen_stages < len(stages):
            raise ValueError(f'frozen_stages={frozen_stages}: allowed are -1 (freeze nothing) to {len(stages) - 1} '
                             f'(freeze stages 0 to {len(stages) - 1}).')
        if out_type == 'cls_token' and not stages[-1].cls_token:
            raise ValueError("out_type='cls_token' needs a CLS token in the last stage: set with_cls_token=True.")
        stages = stages[:max(self.out_indices) + 1]  # stages that no output needs are neither built nor run
        self.depths = tuple(stage.depth for stage in stages)
        channels, strides = [in_channels], [1]
        for i, stage in enumerate(stages):
            self.add_module(f'stage{i}', CvTStage(
                channels[-1], stage, with_cp, lambda c: build_norm_layer(dict(norm_cfg), c)[1],
                lambda: build_activation_layer(dict(act_cfg))))
            channels.append(stage.embed_dim)
            strides.append(strides[-1] * stage.patch_stride)
        channels.append(channels[-1])  # the pooled level after the last stage
        strides.append(strides[-1] * 2)

        self.out_channels = tuple(channels[i + 1] for i in self.out_indices)
        self.out_strides = tuple(strides[i + 1] for i in self.out_indices)
        if out_type == 'featmap':
            for i, dims in zip(self.out_indices, self.out_channels):
                self.add_module(f'norm{i}', LayerNorm(dims))
        else:
            self.norm = LayerNorm(self.out_channels[-1])
        self._init_parameters()
        self.train()  # frozen stages and norm_eval hold from the start

    # -- parameters --------------------------------------------------------------------------------

    @property
    def stages(self) -> list[CvTStage]:
        """Return the stages that were built, first to last."""
        return [self.get_submodule(f'stage{i}') for i in range(len(self.depths))]

    def _init_parameters(self) -> None:
        """Initialise linear layers and CLS tokens (truncated normal, std 0.02); convolutions keep PyTorch's default."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                init_linear(module)
            elif isinstance(module, CvTStage) and module.cls_token is not None:
                nn.init.trunc_normal_(module.cls_token, std=0.02)

    def train(self, mode: bool = True) -> 'CvT':
        """Set the mode, except for frozen stages and, with ``norm_eval``, BatchNorm."""
        super().train(mode)
        for stage in self.stages[:self.frozen_stages + 1]:
            stage.eval().requires_grad_(False)
        if mode and self.norm_eval:
            keep_statistics(self)
        return self

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """Return the layer of a parameter, for layer-wise learning rate decay.

        Layer 0 is the first token embedding, then every block is a layer; a later stage's embedding and its CLS token
        share the layer of that stage's first block. The final and per-level norms and every parameter outside the
        backbone are the last layer.

        Args:
            param_name: the parameter's name, e.g. ``'backbone.stage2.cls_token'``.
            prefix: what precedes the backbone's own names, e.g. ``'backbone.'``.

        Returns:
            (layer, number of layers); the first layer is 0.
        """
        num_layers = sum(self.depths) + 2
        match = re.match(re.escape(prefix) + r'stage(\d+)\.(?:blocks\.(\d+)\.)?', param_name)
        if not match:
            return num_layers - 1, num_layers
        stage, block = int(match[1]), match[2]
        if stage == 0 and block is None:
            return 0, num_layers
        return sum(self.depths[:stage]) + 1 + int(block or 0), num_layers

    def no_weight_decay(self) -> set[str]:
        """Return the names of parameters of several dimensions that do not decay: tokens and positions."""
        return {name for name, _ in self.named_parameters()
                if re.search(r'(cls_token|pos_embed)$', name)}

    def compile(self, *args, dynamic: bool | None = False, **kwargs) -> None:
        """Compile each size of images by itself, unless ``dynamic`` is given.

        torch 2.13 cannot compile the backward pass for sizes that vary: "cannot determine truth value of Relational".
        From the ninth size on it trains without compilation.
        """
        super().compile(*args, dynamic=dynamic, **kwargs)

    # -- forward -----------------------------------------------------------------------------------

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Map images (B, in_channels, H, W) to the tuple that ``out_type`` describes."""
        # One comparison per side, from which torch.compile learns that no map of dynamic size is empty.
        if x.shape[2] < MIN_INPUT_SIZE or x.shape[3] < MIN_INPUT_SIZE:
            raise ValueError(f'image of {x.shape[2]}x{x.shape[3]} pixels (height x width): CvT needs at least '
                             f'{MIN_INPUT_SIZE}x{MIN_INPUT_SIZE}; resize or pad it in the data pipeline.')
        if x.device.type in CHANNELS_LAST:
            x = x.contiguous(memory_format=torch.channels_last)
        outs = []
        for i, (tokens, cls_token, hw_shape) in enumerate(self.iterate_stages(x)):
            if self.out_type == 'featmap' and i in self.out_indices:
                outs.append(to_map(getattr(self, f'norm{i}')(tokens), hw_shape))
        if self.out_type == 'cls_token':
            return (self.norm(cls_token)[:, 0], )
        if self.out_type == 'avg_featmap':
            return (self.norm(tokens).mean(dim=1), )
        level = len(self.depths)
        if level in self.out_indices:
            pooled = F.max_pool2d(to_map(tokens, hw_shape), kernel_size=3, stride=2, padding=1)
            outs.append(getattr(self, f'norm{level}')(pooled.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))
        # mmcv's operators (RoIAlign...) read the memory as NCHW whatever the strides are.
        return tuple(out.contiguous() for out in outs)

    def iterate_stages(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor | None, Shape]]:
        """Yield what each stage returns for images (B, in_channels, H, W), first to last; see :meth:`CvTStage.forward`.

        No norm has been applied to the tokens. Stages that are not asked for are not computed.
        """
        if torch.compiler.is_dynamo_compiling() and torch.is_grad_enabled():
            # With dynamic=True torch 2.13 cannot compile what the backward pass keeps: "cannot determine truth value of
            # Relational". A look-up makes the sides constants, so that each size is compiled by itself.
            [{}.get(side) for side in x.shape[2:]]
        for stage in self.stages:
            tokens, cls_token, hw_shape = stage(x)
            yield tokens, cls_token, hw_shape
            x = to_map(tokens, hw_shape)


def init_linear(linear: nn.Linear) -> nn.Linear:
    """Draw the weights from a truncated normal distribution (std 0.02), set the bias to 0, and return the layer."""
    nn.init.trunc_normal_(linear.weight, std=0.02)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


def to_map(tokens: Tensor, hw_shape: Shape) -> Tensor:
    """View tokens (B, H * W, C) as a map (B, C, H, W), which is channels-last."""
    return tokens.unflatten(1, hw_shape).permute(0, 3, 1, 2)


# -- options -----------------------------------------------------------------------------------------


def resolve_stages(arch: str | Mapping[str, Any], with_cls_token: bool | None,
                   drop_path_rate: float | Sequence[float] | None, **options: Any) -> list[StageOptions]:
    """Return the options of each stage.

    Args:
        arch: a name in :data:`ARCH_ZOO`, or a dict.
        with_cls_token, drop_path_rate: those of :class:`~cvt_dense.models.CvT`, which replace what
            ``arch`` has.
        options: values of :class:`StageOptions` that replace those of ``arch`` unless they are None, each one value or
            a list with one per stage.

    Raises:
        ValueError: ``arch`` is unknown or lacks a key, or a list is not one value per stage.
    """
    if isinstance(arch, str):
        if arch.lower() not in ARCH_ZOO:
            raise ValueError(f'arch={arch!r}: allowed are {", ".join(ARCH_ZOO)}, or a dict with embed_dims, depths and '
                             'num_heads.')
        arch = ARCH_ZOO[arch.lower()]
    if missing := {'embed_dims', 'depths', 'num_heads'} - arch.keys():
        raise ValueError(f'arch={dict(arch)!r} lacks {", ".join(sorted(missing))}.')
    number = len(arch['embed_dims'])
    later = number - 1
    values = dict(patch_sizes=[7] + [3] * later, patch_strides=[4] + [2] * later, patch_paddings=[2] + [1] * later,
                  cls_token=[False] * later + [True])
    values.update(arch)
    values.update({name: value for name, value in options.items() if value is not None})
    if isinstance(drop_path_rate, (list, tuple)):
        values['drop_path_rates'] = drop_path_rate
    if with_cls_token is False:
        values['cls_token'] = False
    values = {name: spread(name, value, number) for name, value in values.items()}
    names = {PLURALS.get(option.name, option.name): option.name for option in fields(StageOptions)}
    stages = [
        StageOptions(**{names[name]: column[i] for name, column in values.items() if name in names},
                     attention={name: column[i] for name, column in values.items() if name not in names})
        for i in range(number)]
    stages[-1].cls_token = stages[-1].cls_token or bool(with_cls_token)
    if drop_path_rate is not None and not isinstance(drop_path_rate, (list, tuple)):  # grows through the whole network
        rates = torch.linspace(0, drop_path_rate, sum(stage.depth for stage in stages), device='cpu')
        block_rates = rates.split([stage.depth for stage in stages])
    else:
        block_rates = [torch.linspace(0, stage.drop_path_rate, stage.depth, device='cpu') for stage in stages]
    for stage, rates in zip(stages, block_rates):
        stage.block_drop_path_rates = rates.tolist()
    return stages


def spread(name: str, value: Any, number: int, what: str = 'stages') -> list[Any]:
    """Return a list of ``number`` values.

    Args:
        name: name of the setting, for the message.
        value: one value, which is repeated, or a list.
        number: the number of values.
        what: what there are ``number`` of, for the message.

    Raises:
        ValueError: a list has another length.
    """
    if not isinstance(value, (list, tuple)):
        return [value] * number
    if len(value) != number:
        raise ValueError(f'{name}={value!r} has {len(value)} values for {number} {what}: give one value, or a list '
                         f'with one for each.')
    return list(value)


def _resolve_out_indices(out_type: str, out_indices: Sequence[int] | None, stages: int) -> tuple[int, ...]:
    """Return the stages whose output is returned, ascending and not negative."""
    if out_type not in OUT_TYPES:
        raise ValueError(f'out_type={out_type!r}: allowed are {OUT_TYPES}.')
    if out_indices is None:
        return tuple(range(stages)) if out_type == 'featmap' else (stages - 1, )
    resolved = [i + stages if i < 0 else i for i in out_indices]
    if out_type == 'featmap':
        allowed = resolved and resolved == sorted(set(resolved)) and 0 <= resolved[0] and resolved[-1] <= stages
    else:
        allowed = resolved == [stages - 1]
    if not allowed:
        raise ValueError(f"out_indices={out_indices!r} with out_type={out_type!r}: 'featmap' allows ascending numbers "
                         f'from {-stages} to {stages}, which is a max-pooled level after the last stage; the other '
                         'types return the last stage only, so leave out_indices out.')
    return tuple(resolved)
