"""CvT as a network of timm: ``import cvt_dense.timm``, then ``timm.create_model('cvt_13')``.

Importing this module registers ``cvt_13``, ``cvt_21`` and ``cvt_w24``, whose published weights come from the Hub, and
``cvt_nano``, whose weights are part of this package.
"""
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import torch
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.layers import global_pool_nlc
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models._features import feature_take_indices
from torch import Tensor, nn

from .models.cvt import CvT, init_linear, to_map
from .published import PACKAGED
from .weights import convert
from .weights.strict_loading import translate_names

POOLS = None, '', 'avg', 'max', 'avgmax', 'token'  # None keeps it


class CvTClassifier(nn.Module):
    """A :class:`CvT` with timm's interface: classifier, ``forward_features`` and ``forward_intermediates``.

    Args:
        arch: see :class:`CvT`.
        num_classes: outputs of the classifier; 0 for none, whose output is the pooled features (B, C).
        in_chans: channels of the images.
        global_pool: 'token', 'avg', 'max' or 'avgmax'; '' leaves the tokens (B, N, C). Default: 'token' for networks
            with a CLS token, 'avg' for others.
        drop_rate: dropout before the classifier.
        kwargs: arguments of :class:`CvT`, such as ``drop_path_rate`` and ``attn_cfg``.

    Raises:
        ValueError: ``global_pool`` is none of these, or 'token' of a network without one.
    """

    def __init__(self, arch: str, num_classes: int = 1000, in_chans: int = 3, global_pool: str | None = None,
                 drop_rate: float = 0., **kwargs: Any):
        super().__init__()
        pooled = CvT.arch_zoo[arch].get('cls_token') is False
        self.backbone = CvT(arch, in_channels=in_chans, out_type='avg_featmap' if pooled else 'cls_token', **kwargs)
        token = self.backbone.stages[-1].cls_token
        self.num_prefix_tokens = 0 if token is None else token.shape[1]
        self.num_features = self.head_hidden_size = self.backbone.out_channels[-1]
        self.feature_info = [
            dict(num_chs=stage.patch_embed.proj.out_channels, reduction=4 * 2**i, module=f'backbone.stage{i}')
            for i, stage in enumerate(self.backbone.stages)]
        self.head_drop = nn.Dropout(drop_rate)
        self.global_pool = 'avg' if token is None else 'token'
        self.reset_classifier(num_classes, global_pool)
        self.register_load_state_dict_pre_hook(translate_names)  # the authors' and the Hub's files have others

    def get_classifier(self) -> nn.Module:
        """Return the classifier."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Give the network a new classifier, and another ``global_pool`` unless it is None."""
        if global_pool not in POOLS or global_pool == 'token' and not self.num_prefix_tokens:
            raise ValueError(f"global_pool={global_pool!r}: allowed are {POOLS[1:]}, 'token' with a CLS token alone.")
        if global_pool is not None:
            self.global_pool = global_pool
        self.num_classes = num_classes
        self.head = init_linear(nn.Linear(self.num_features, num_classes)) if num_classes else nn.Identity()

    def forward_features(self, x: Tensor) -> Tensor:
        """Map images (B, in_chans, H, W) to the normalised tokens of the last stage (B, [1 +] H' * W', C)."""
        return self.forward_intermediates(x, indices=1)[0]

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Map tokens of :meth:`forward_features` to logits (B, num_classes), or to pooled features (B, C)."""
        x = global_pool_nlc(x, self.global_pool, self.num_prefix_tokens)
        return x if pre_logits else self.head(self.head_drop(x))

    def forward(self, x: Tensor) -> Tensor:
        """Map images to logits (B, num_classes)."""
        return self.forward_head(self.forward_features(x))

    def forward_intermediates(self, x: Tensor, indices: int | Sequence[int] | None = None, norm: bool = False,
                              stop_early: bool = False, output_fmt: str = 'NCHW',
                              intermediates_only: bool = False) -> Any:
        """Return the maps of some stages, with strides 4, 8 and 16, as timm's networks do.

        Args:
            x: images (B, in_chans, H, W).
            indices: numbers of the stages, or how many of the last ones. Default: all.
            norm: whether the last stage's map goes through the final norm.
            stop_early: whether later stages than the last of ``indices`` are left out.
            output_fmt: layout of the maps: 'NCHW', or 'NLC', their tokens (B, H * W, C).
            intermediates_only: whether the maps alone are returned.

        Returns:
            A list of maps; or, without ``intermediates_only``, the tokens of :meth:`forward_features` and that list.
            With ``stop_early`` they are those of the last stage that is computed, which the final norm does not fit.

        Raises:
            ValueError: ``output_fmt`` is neither.
        """
        if output_fmt not in ('NCHW', 'NLC'):
            raise ValueError(f"output_fmt={output_fmt!r}: allowed are 'NCHW' and 'NLC'.")
        number = len(self.backbone.depths)
        taken, last = feature_take_indices(number, indices)
        computed = islice(self.backbone.iterate_stages(x), last + 1 if stop_early or intermediates_only else number)
        maps = []
        for i, (tokens, cls_token, hw_shape) in enumerate(computed):
            if i in taken:
                level = self.backbone.norm(tokens) if norm and i == number - 1 else tokens
                maps.append((level if output_fmt == 'NLC' else to_map(level, hw_shape)).contiguous())
        if intermediates_only:
            return maps
        tokens = tokens if cls_token is None else torch.cat((cls_token, tokens), dim=1)
        return self.backbone.norm(tokens) if i == number - 1 else tokens, maps

    def prune_intermediate_layers(self, indices: int | Sequence[int] = 1, prune_norm: bool = False,
                                  prune_head: bool = True) -> list[int]:
        """Remove what the maps of ``indices`` do not need, and return their numbers.

        Args:
            indices: see :meth:`forward_intermediates`.
            prune_norm: whether the final norm is removed, as it is with the last stage.
            prune_head: whether the classifier is removed.
        """
        taken, last = feature_take_indices(len(self.backbone.stages), indices)
        for i in range(last + 1, len(self.backbone.depths)):
            delattr(self.backbone, f'stage{i}')
        self.backbone.depths = self.backbone.depths[:last + 1]
        if prune_norm or last + 1 < len(self.feature_info):
            self.backbone.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0, '')
        return taken

    @torch.jit.ignore
    def no_weight_decay(self) -> set[str]:
        """Return the names of parameters of several dimensions that do not decay."""
        return {f'backbone.{name}' for name in self.backbone.no_weight_decay()}

    @torch.jit.ignore
    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Return patterns that give a parameter its layer, for timm's layer-wise learning rate decay."""
        blocks = [(r'^backbone\.stage(\d+)', None)] if coarse else [
            (r'^backbone\.stage(\d+)\.(?!blocks)', (0, )), (r'^backbone\.stage(\d+)\.blocks\.(\d+)', None)]
        return dict(stem=r'^backbone\.stage0\.(?!blocks)', blocks=[*blocks, (r'^backbone\.norm', (99999, ))])

    @torch.jit.ignore
    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Let the backward pass recompute the activations of every block, see ``with_cp`` of :class:`CvT`."""
        for stage in self.backbone.stages:
            stage.with_cp = enable


def _cfg(**kwargs: Any) -> dict[str, Any]:
    return dict(dict(num_classes=1000, input_size=(3, 224, 224), pool_size=None, crop_pct=0.875,
                     interpolation='bicubic', mean=IMAGENET_DEFAULT_MEAN, std=IMAGENET_DEFAULT_STD,
                     first_conv='backbone.stage0.patch_embed.proj', classifier='head'), **kwargs)


def _at_384(**kwargs: Any) -> dict[str, Any]:
    return _cfg(input_size=(3, 384, 384), crop_pct=1., **kwargs)


default_cfgs = generate_default_cfgs({
    'cvt_13.ms_in1k': _cfg(hf_hub_id='microsoft/cvt-13'),
    'cvt_13.ms_in1k_384': _at_384(hf_hub_id='microsoft/cvt-13-384'),
    'cvt_13.ms_in22k_ft_in1k_384': _at_384(hf_hub_id='microsoft/cvt-13-384-22k'),
    'cvt_21.ms_in1k': _cfg(hf_hub_id='microsoft/cvt-21'),
    'cvt_21.ms_in1k_384': _at_384(hf_hub_id='microsoft/cvt-21-384'),
    'cvt_21.ms_in22k_ft_in1k_384': _at_384(hf_hub_id='microsoft/cvt-21-384-22k'),
    'cvt_w24.ms_in22k_ft_in1k_384': _at_384(hf_hub_id='microsoft/cvt-w24-384-22k'),
    'cvt_nano.tiny_in': _cfg(file=str(PACKAGED / 'cvt-nano/model.safetensors'), num_classes=200, input_size=(3, 96, 96),
                             crop_pct=1.),
})


def _filter(state_dict: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Return published weights under this project's names, in float32."""
    return {name: value.float() if value.is_floating_point() else value
            for name, value in convert(state_dict, 'cvt_dense').items()}


def _entrypoint(name: str) -> Callable[..., nn.Module]:
    """Register and return the function that ``timm.create_model`` calls for a network."""
    def create(pretrained: bool = False, **kwargs: Any) -> nn.Module:
        """Build the network; ``kwargs`` are arguments of :class:`CvTClassifier`."""
        return build_model_with_cfg(CvTClassifier, name, pretrained, arch=name.replace('_', '-'),
                                    pretrained_filter_fn=_filter, kwargs_filter=('img_size', ),
                                    feature_cfg=dict(out_indices=(0, 1, 2), feature_cls='getter'), **kwargs)

    create.__name__ = name
    return register_model(create)


cvt_13, cvt_21, cvt_w24, cvt_nano = map(_entrypoint, ('cvt_13', 'cvt_21', 'cvt_w24', 'cvt_nano'))
