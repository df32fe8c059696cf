"""CvT: Introducing Convolutions to Vision Transformers (Wu et al., arXiv 2103.15808)."""
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from mmcv.cnn import build_activation_layer, build_norm_layer
from mmengine.model import BaseModule
from torch import Tensor, nn

from ...registry import MODELS
from ...weights.strict_loading import StrictLoading
from ..layers import CvTStage, LayerNorm, QuickGELU, keeps_statistics
from .arch import resolve_arch
from .frozen import run_frozen

MODELS.register_module(module=QuickGELU)

MIN_INPUT_SIZE = 16
# Devices on which an image is laid out channels-last for the first convolution: where that was measured to be faster.
# On a GPU it was not measured, so it stays as it comes, NCHW. All later maps are tokens seen as an image, which is
# channels-last without a copy on any device.
CHANNELS_LAST = ('cpu', )
OUT_TYPES = ('featmap', 'cls_token', 'avg_featmap')


@MODELS.register_module()
class CvT(StrictLoading, BaseModule):
    """Convolutional vision Transformer, for classification, detection and segmentation alike.

    Parameter names are those of the authors' checkpoints. The final ``norm`` exists where CLS or
    averaged output is asked for; a dense level ``i`` has its own LayerNorm ``norm{i}`` instead,
    the only parameters that a published checkpoint lacks.

    Args:
        arch: ``'cvt-13'``, ``'cvt-21'``, ``'cvt-w24'``, or a dict with ``embed_dims``, ``depths``
            and ``num_heads`` (a list each, one value a stage) and any of the following, each a
            list or one value for all stages (default: the authors' for all their models):

            - ``patch_sizes`` (7, 3, 3), ``patch_strides`` (4, 2, 2), ``patch_paddings`` (2, 1, 1):
              the token embeddings' convolutions.
            - ``mlp_ratios`` (4).
            - ``qkv_bias`` (True).
            - ``qkv_proj_method`` ('dw_bn'): or 'avg' or 'linear', see :class:`ConvAttention`.
            - ``kernel_qkv`` (3), ``stride_q`` (1), ``padding_q`` (1), ``stride_kv`` (2),
              ``padding_kv`` (1): the projections. q must keep the map's size.
            - ``head_dims`` (``embed_dims`` over ``num_heads``): channels of a head. With it a stage's
              ``num_heads`` may be a list with one number per block, as ``tools/prune_heads.py`` leaves it.
            - ``cls_token`` (in the last stage only).
            - ``drop_rates`` (0), ``attn_drop_rates`` (0), ``drop_path_rates`` (0): a stage's drop
              path grows linearly from 0 at its first block to this value at its last.
        in_channels: channels of the image. With published weights, which are for 3, ``init_cfg`` needs
            ``in_channels='adapt'``.
        out_type: ``'featmap'``: maps (B, C_i, H_i, W_i) for each of ``out_indices``;
            ``'cls_token'``: (B, C) of the last stage after ``norm``; ``'avg_featmap'``: (B, C), the
            mean over the last stage's map tokens after ``norm``.
        out_indices: stages to return with ``'featmap'``; negative ones count from the last stage,
            one past the last stage is a further level of half its resolution (max-pooled, for heads
            that want stride 32). Default: every stage.
        with_cls_token: False leaves the CLS token out of every stage. Default: as in ``arch``.
        drop_rate: dropout, overrides ``arch``: one value, or one per stage.
        attn_drop_rate: dropout of attention weights, overrides ``arch``: one value, or one per stage.
        drop_path_rate: stochastic depth, overrides ``arch``: one value grows linearly from the
            network's first block to its last (mm's habit); a list holds each stage's maximum, from
            0 inside each stage (authors' habit).
        frozen_stages: -1 freezes nothing, k freezes stages 0 to k: no gradient, eval mode.
        norm_eval: keeps every BatchNorm on its stored statistics; right for 1-2 images a GPU.
        with_cp: activation checkpointing of every block: less memory, more time, same result. The
            attention kernel is not run twice: its output is kept.
        window_size: side of the attention windows in tokens, see :class:`ConvAttention`. One value for
            every stage, or a list with one per stage, in which None is global attention (the default
            and what the published weights were trained with) and a list gives one value per block:
            ``[28, 28, [14, 14, 14, None, 14, 14, 14, None, 14, None]]``. A multiple of ``stride_kv``.
            The same weights load; the cost grows linearly with the image's area instead of
            quadratically. A map no larger than the window gets exactly global attention.
        token_pruning: None, or ``dict(keep=[None, 0.7, 0.5], refresh=4, score='entropy')``: in stages with a share
            ``keep`` below 1 only so many of the map's tokens go through each block, the others keep their value, see
            :class:`~cvt_dense.models.layers.pruning.PrunedBlock`. ``keep``: one value, or one per stage (None: all
            tokens); ``refresh``: every how many blocks tokens are chosen anew; ``score``: by the lowest
            'entropy' of their attention, or for comparison 'norm' or 'random'. The same weights load. Not in
            stages with windows.
        layer_scale_init_value: a learned factor of each channel of every residual branch (timm's LayerScale), by
            its value at the start: 1 with published weights, 1e-6 for deep networks from scratch. This and the next
            four: one value, or a list with one per stage; off by default. All but linear attention leave published
            weights their function at the start (LayerScale: of 1).
        mixing: 'hybrid' adds a depth-wise 5x5 convolution of dilation 2 to each of the projections.
        attention: 'linear': cost linear in the map's area; published weights need fine-tuning. Worth it in the first
            stages: ``['linear', 'linear', 'softmax']``.
        pos_embed: side of a learned grid of positional embeddings in tokens, resized to the map: ``[56, 28, 14]`` for
            224x224; None in stages without.
        rel_pos: 'cpb': a bias of attention from an MLP of log distances, for windows and small maps; 'rope': rotary
            embeddings in two dimensions with learned frequencies, for maps of any size: ``['rope', 'rope', 'cpb']``.
        norm_cfg: the projections' norm, ``dict(type='SyncBN')`` to synchronise it.
        act_cfg: the MLPs' activation. The authors' checkpoints need QuickGELU; Hugging Face's code
            runs them with ``dict(type='GELU')``.
        with_dist_token: gives the last stage a second token beside CLS, ``dist_token``, for distillation. With
            'cls_token' it is returned too, as a second (B, C); maps leave it out as they do CLS.
        init_cfg: as in any MMEngine module. ``dict(type='Pretrained', checkpoint=...)`` takes the
            authors', Hugging Face's and this project's files, see
            :class:`~cvt_dense.weights.strict_loading.StrictPretrainedInit`.

    Attributes:
        out_channels: tuple of each output's channels.
        out_strides: tuple of each output's stride (maps only).

    Raises:
        ValueError: an option's value is not allowed; names it and what is.

    Shapes:
        Input (B, in_channels, H, W), H and W at least 16, any aspect. Stage 0's map is
        ``floor((H - 3) / 4) + 1`` high, the others halve rounding up. Always returns a tuple.
    """

    arch_zoo: dict[str, dict[str, Any]] = {
        'cvt-13':
        dict(embed_dims=(64, 192, 384), depths=(1, 2, 10), num_heads=(1, 3, 6),
             drop_path_rates=(0., 0., 0.1)),
        'cvt-21':
        dict(embed_dims=(64, 192, 384), depths=(1, 4, 16), num_heads=(1, 3, 6),
             drop_path_rates=(0., 0., 0.1)),
        'cvt-w24':
        dict(embed_dims=(192, 768, 1024), depths=(2, 2, 20), num_heads=(3, 12, 16),
             drop_path_rates=(0., 0., 0.3)),
    }

    def __init__(self,
                 arch: str | dict[str, Any] = 'cvt-13',
                 in_channels: int = 3,
                 out_type: str = 'featmap',
                 out_indices: Sequence[int] | None = None,
                 with_cls_token: bool | None = None,
                 drop_rate: float | Sequence[float] | None = None,
                 attn_drop_rate: float | Sequence[float] | None = None,
                 drop_path_rate: float | Sequence[float] | None = None,
                 frozen_stages: int = -1,
                 norm_eval: bool = False,
                 with_cp: bool = False,
                 window_size: int | None | Sequence[int | None | Sequence[int | None]] = None,
                 token_pruning: dict[str, Any] | None = None,
                 layer_scale_init_value: float | None | Sequence[float | None] = None,
                 mixing: str | None | Sequence[str | None] = None,
                 attention: str | Sequence[str] = 'softmax',
                 pos_embed: int | None | Sequence[int | None] = None,
                 rel_pos: str | None | Sequence[str | None] = None,
                 norm_cfg: dict[str, Any] = dict(type='BN'),
                 act_cfg: dict[str, Any] = dict(type='cvt_dense.QuickGELU', inplace=True),
                 with_dist_token: bool = False,
                 init_cfg: dict[str, Any] | list[dict[str, Any]] | None = None):
        super().__init__(init_cfg)
        stages = resolve_arch(arch, self.arch_zoo, with_cls_token, drop_rate, attn_drop_rate, drop_path_rate,
                              window_size, token_pruning, layer_scale_init_value=layer_scale_init_value, mixing=mixing,
                              attention=attention, pos_embed=pos_embed, rel_pos=rel_pos)
        self.num_stages = len(stages)
        self.in_channels = in_channels
        self.out_type = out_type
        self.out_indices = self._resolve_out_indices(out_type, out_indices)
        self.frozen_stages = frozen_stages
        self.norm_eval = norm_eval
        self._fused = False
        self._compiled_for: bool | tuple[int, ...] = False  # any size, or an input's shape
        if not -1 <= frozen_stages < self.num_stages:
            raise ValueError(f'frozen_stages={frozen_stages}: allowed are -1 (freeze nothing) to '
                             f'{self.num_stages - 1} (freeze stages 0 to {self.num_stages - 1}).')
        if out_type == 'cls_token' and not stages[-1].cls_token:
            raise ValueError("out_type='cls_token' needs a CLS token in the last stage; set the "
                             "arch's cls_token or with_cls_token, or use out_type='avg_featmap'.")

        if with_dist_token:
            if not stages[-1].cls_token:
                raise ValueError('with_dist_token=True needs a CLS token in the last stage beside it: set '
                                 "the arch's cls_token or with_cls_token, or leave it out.")
            stages[-1] = replace(stages[-1], dist_token=True)

        # Stages that no output needs are neither built nor run.
        stages = stages[:max(self.out_indices) + 1]
        self.depths = tuple(stage.depths for stage in stages)
        channels, strides = [in_channels], [1]
        for i, stage in enumerate(stages):
            self.add_module(f'stage{i}', CvTStage(
                channels[-1], stage, with_cp,
                norm_layer=lambda c: build_norm_layer(dict(norm_cfg), c)[1],
                act_layer=lambda: build_activation_layer(dict(act_cfg))))
            channels.append(stage.embed_dims)
            strides.append(strides[-1] * stage.patch_strides)
        channels.append(channels[-1])  # the pooled level after the last stage
        strides.append(strides[-1] * 2)

        self.out_channels = tuple(channels[i + 1] for i in self.out_indices)
        if out_type == 'cls_token' and with_dist_token:
            self.out_channels *= 2
        self.out_strides = tuple(strides[i + 1] for i in self.out_indices)
        if out_type == 'featmap':
            for i, dims in zip(self.out_indices, self.out_channels):
                self.add_module(f'norm{i}', LayerNorm(dims))
        else:
            self.norm = LayerNorm(self.out_channels[-1])
        self._init_parameters()
        self.train()  # frozen stages and norm_eval hold from the start

    def _resolve_out_indices(self, out_type: str, out_indices: Sequence[int] | None) -> tuple[int, ...]:
        if out_type not in OUT_TYPES:
            raise ValueError(f'out_type={out_type!r}: allowed are {OUT_TYPES}.')
        n = self.num_stages
        if out_type != 'featmap':
            if out_indices is not None and [i % n for i in out_indices] != [n - 1]:
                raise ValueError(f'out_indices={out_indices!r} with out_type={out_type!r}: only the last '
                                 'stage is returned; leave out_indices out.')
            return (n - 1, )
        if out_indices is None:
            return tuple(range(n))
        if not len(out_indices) or any(not -n <= i <= n for i in out_indices):
            raise ValueError(f'out_indices={tuple(out_indices)!r}: allowed are {-n} to {n} ({n} stages; {n} is '
                             'a max-pooled level after the last).')
        resolved = tuple(i + n if i < 0 else i for i in out_indices)
        if list(resolved) != sorted(set(resolved)):
            raise ValueError(f'out_indices={tuple(out_indices)!r} must be ascending and without repeats.')
        return resolved

    # -- parameters --------------------------------------------------------------------------------

    def _stage(self, i: int) -> CvTStage:
        return getattr(self, f'stage{i % len(self.depths)}')

    def _init_parameters(self) -> None:
        """Linear layers and CLS token: truncated normal, std 0.02; convolutions keep PyTorch's default."""
        for name, m in self.named_modules():
            if isinstance(m, nn.Linear):
                nn.init.trunc_normal_(m.weight, std=0.02)
                if m.bias is not None:
                    nn.init.zeros_(m.bias)
            elif isinstance(m, CvTStage) and m.cls_token is not None:
                nn.init.trunc_normal_(m.cls_token, std=0.02)
                if m.dist_token is not None:
                    nn.init.trunc_normal_(m.dist_token, std=0.02)

    def _freeze_stages(self) -> None:
        for i in range(min(self.frozen_stages + 1, len(self.depths))):
            self._stage(i).eval().requires_grad_(False)

    def train(self, mode: bool = True) -> 'CvT':
        """Sets the mode, except for frozen stages and, with ``norm_eval``, BatchNorm."""
        if mode and self._fused:
            raise RuntimeError('this CvT was fused for inference and cannot be trained: build it again and '
                               'load the checkpoint.')
        super().train(mode)
        self._freeze_stages()
        if mode and self.norm_eval:
            for m in self.modules():
                if keeps_statistics(m):
                    m.eval()
        return self

    def fuse(self, compile: bool | Sequence[int] = False) -> 'CvT':
        """Turns the backbone into a faster one for inference with the same output, in place.

        Folds every BatchNorm into its depth-wise convolution, and QuickGELU's factor into the MLP's two
        linear layers, so that it becomes SiLU. Call it last: after loading the weights and ``eval()``,
        before moving to a lower precision, ``torch.compile`` or export. In a detector or segmentor:
        ``model.backbone.fuse()``. A fused backbone's ``state_dict`` is not a checkpoint of anything
        else, and a fused backbone neither loads one nor trains again.

        Args:
            compile: also compile it, with its weights as constants: faster again, without gradients, with outputs
                that differ by rounding. True: at the first images, which takes a minute or more; single images of
                all sizes share what was compiled, a batch is compiled for its shape (the first few shapes), and each
                precision apart. The shape of an input (B, C, H, W): for that shape alone, at once, on the device
                where the weights are; inside ``torch.autocast`` for that. Other shapes are run as without compiling.

        Returns:
            itself.

        Raises:
            RuntimeError: in training mode.
        """
        if self.training:
            raise RuntimeError('CvT.fuse() folds the stored BatchNorm statistics: load the weights and call '
                               'eval() first.')
        if not self._fused:
            for i in range(len(self.depths)):
                for block in self._stage(i).blocks:
                    block.fuse()
            self._fused = True
            self.leave_checking_to_others()  # to the hook, which says why
            self._register_load_state_dict_pre_hook(self._refuse_to_load)
        for i in range(len(self.depths)):
            for block in self._stage(i).blocks:
                block.attn.any_size = compile is True
        self._compiled_for = compile if isinstance(compile, bool) else tuple(compile)
        if not isinstance(compile, bool):
            weight = next(self.parameters())
            for _ in range(2):  # compiles, then warms up
                self(weight.new_zeros(self._compiled_for))
        return self

    @staticmethod
    def _refuse_to_load(*args) -> None:
        raise RuntimeError('this CvT was fused for inference: its parameters are no longer those of a '
                           'checkpoint. Load the checkpoint first, then call fuse().')

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """The layer of a parameter, for layer-wise learning rate decay.

        Layer 0 is the first token embedding, then every block is a layer; a later stage's embedding
        and its CLS token share the layer of that stage's first block. The final and per-level norms
        and every parameter outside the backbone are the last layer.

        Args:
            param_name: the parameter's name, e.g. ``'backbone.stage2.cls_token'``.
            prefix: what stands before the backbone's own names, e.g. ``'backbone.'``.

        Returns:
            (layer, number of layers); the first layer is 0.
        """
        num_layers = sum(self.depths) + 2
        parts = param_name[len(prefix):].split('.') if param_name.startswith(prefix) else ['']
        if not (parts[0].startswith('stage') and hasattr(self, parts[0])):
            return num_layers - 1, num_layers
        i = int(parts[0][len('stage'):])
        first_block = sum(self.depths[:i]) + 1
        if parts[1] == 'blocks':
            return first_block + int(parts[2]), num_layers
        return (first_block if i else 0), num_layers

    def no_weight_decay(self) -> set[str]:
        """Names of parameters of several dimensions that do not decay: those that say where a token is, or whose."""
        return {name for name, _ in self.named_parameters() if re.search(r'(cls_token|pos_embed)$|\.rel_pos\.', name)}

    # -- forward -----------------------------------------------------------------------------------

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """(B, in_channels, H, W) to a tuple, see ``out_type``."""
        compiled = self._compiled_for in (True, tuple(x.shape)) and not torch.compiler.is_compiling()
        return run_frozen(self, x, self._compiled_for is True) if compiled else self.features(x)

    def features(self, x: Tensor) -> tuple[Tensor, ...]:
        """What ``forward`` returns, computed as it stands here."""
        # One comparison a side, from which torch.compile learns that no map of dynamic size is empty.
        if x.shape[2] < MIN_INPUT_SIZE or x.shape[3] < MIN_INPUT_SIZE:
            raise ValueError(
                f'image of {x.shape[2]}x{x.shape[3]} pixels (height x width): CvT needs at least '
                f'{MIN_INPUT_SIZE}x{MIN_INPUT_SIZE}; resize or pad it in the data pipeline.')
        if x.device.type in CHANNELS_LAST:
            x = x.contiguous(memory_format=torch.channels_last)
        outs = []
        for i in range(len(self.depths)):
            tokens, cls_token, hw_shape = self._stage(i)(x)
            x = self._to_map(tokens, hw_shape)
            if self.out_type == 'featmap' and i in self.out_indices:
                outs.append(self._to_map(getattr(self, f'norm{i}')(tokens), hw_shape))
        if self.out_type == 'cls_token':
            return self.norm(cls_token).unbind(dim=1)  # CLS, and the distillation token if there is one
        if self.out_type == 'avg_featmap':
            return (self.norm(tokens).mean(dim=1), )
        level = len(self.depths)
        if level in self.out_indices:
            pooled = F.max_pool2d(x, kernel_size=3, stride=2, padding=1)
            outs.append(getattr(self, f'norm{level}')(pooled.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))
        # mmcv's operators (RoIAlign...) take any memory for NCHW's: on channels-last maps they return garbage.
        return tuple(out.contiguous() for out in outs)

    @staticmethod
    def _to_map(tokens: Tensor, hw_shape: tuple[int, int]) -> Tensor:
        return tokens.unflatten(1, hw_shape).permute(0, 3, 1, 2)
