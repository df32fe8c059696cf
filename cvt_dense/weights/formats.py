"""Convert CvT's weights between three namings.

==============  ==================================  ============================================
``microsoft``   ``stage0.…``, ``norm``, ``head``    the authors' files; our bare backbone has the
                                                    same names (without ``head``)
``huggingface`` ``cvt.encoder.stages.0.…``,         transformers' ``CvtForImageClassification``
                ``layernorm``, ``classifier``
``cvt_dense``   ``backbone.stage0.…``,              this project's classifier; detectors and
                ``backbone.norm``, ``head``         segmentors have other modules beside ``backbone``
==============  ==================================  ============================================

Only names change: tensors are passed through untouched, in the order given.
"""
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from torch import Tensor

from ..errors import listed

# Tensors of the backbone's options: positions, LayerScale, and whatever a type of attention has beside the paper's
# projections. A checkpoint may have been trained without them.
OPTIONS = re.compile(r'stage\d+\.(pos_embed$|blocks\.\d+\.(ls[12]\.|attn\.(?!'
                     r'conv_proj_[qkv]\.(conv|bn)\.|proj(_[qkv])?\.)))')

StateDict = Mapping[str, Tensor]

_TOP = {'norm': 'layernorm', 'head': 'classifier'}  # Hugging Face's modules for the authors'
_INNER = {
    'patch_embed.proj': 'embedding.convolution_embeddings.projection',
    'patch_embed.norm': 'embedding.convolution_embeddings.normalization',
    'norm1': 'layernorm_before',
    'norm2': 'layernorm_after',
    'attn.proj': 'attention.output.dense',
    'mlp.fc1': 'intermediate.dense',
    'mlp.fc2': 'output.dense',
}
for _short, _long in (('q', 'query'), ('k', 'key'), ('v', 'value')):
    _INNER[f'attn.proj_{_short}'] = f'attention.attention.projection_{_long}'
    for _ours, _theirs in (('conv', 'convolution'), ('bn', 'normalization')):
        _INNER[f'attn.conv_proj_{_short}.{_ours}'] = (
            f'attention.attention.convolution_projection_{_long}.convolution_projection.{_theirs}')


def _rename(pattern: str, stage_name: str, block_name: str, top: Mapping[str, str], inner: Mapping[str, str],
            key: str) -> str:
    """Return a key in another naming; one that ``pattern`` and the tables do not have stays as it is."""
    module, _, leaf = key.rpartition('.')
    if module in top:
        return f'{top[module]}.{leaf}'
    match = re.fullmatch(pattern, module)
    if not match:
        return key
    stage, block, name = match.groups()
    prefix = f'{stage_name}{stage}' if block is None else f'{stage_name}{stage}.{block_name}{block}'
    if name is None and leaf == 'cls_token':
        return f'{prefix}.{leaf}'
    return f'{prefix}.{inner[name]}.{leaf}' if name in inner else key


def _inverted(names: dict[str, str]) -> dict[str, str]:
    return {theirs: ours for ours, theirs in names.items()}


class _Naming(NamedTuple):
    """A pattern that most keys of a naming match, and functions that translate keys to and from the authors' naming."""
    pattern: str
    to_authors: Callable[[str], str]
    from_authors: Callable[[str], str]


_NAMINGS = {
    'microsoft': _Naming(r'stage\d+\.(patch_embed|blocks)\.', str, str),
    'huggingface': _Naming(  # a bare CvtModel has no leading 'cvt.'
        r'(cvt\.)?encoder\.stages\.\d+\.(embedding\.convolution_embeddings|layers)\.',
        partial(_rename, r'(?:cvt\.)?encoder\.stages\.(\d+)(?:\.layers\.(\d+))?(?:\.(.+))?', 'stage', 'blocks.',
                _inverted(_TOP), _inverted(_INNER)),
        partial(_rename, r'stage(\d+)(?:\.blocks\.(\d+))?(?:\.(.+))?', 'cvt.encoder.stages.', 'layers.', _TOP,
                _INNER)),
    'cvt_dense': _Naming(r'backbone\.stage\d+\.(patch_embed|blocks)\.', lambda key: key.removeprefix('backbone.'),
                         lambda key: f'backbone.{key}' if re.match(r'(stage|norm)\d*\.', key) else key),
}
FORMATS = tuple(_NAMINGS)


def recognise(keys: Iterable[str]) -> str | None:
    """Return the naming of a CvT state dict, one of :data:`FORMATS`, or None if it is not CvT's.

    A few renamed or missing keys do not change the result: the naming of most keys counts.
    """
    votes = Counter(name for key in keys for name, naming in _NAMINGS.items() if re.match(naming.pattern, key))
    return votes.most_common(1)[0][0] if votes else None


def convert(state_dict: StateDict, to: str) -> dict[str, Tensor]:
    """Rename the tensors of a CvT state dict.

    Args:
        state_dict: in any of :data:`FORMATS`, recognised by its keys.
        to: one of :data:`FORMATS`.

    Returns:
        The same tensors under the names of ``to``. A key that the source's naming does not have
        (a neck's, a renamed one) keeps its name, so that a comparison with a network shows it.

    Raises:
        ValueError: ``state_dict`` is not CvT's.
        KeyError: ``to`` is unknown.
    """
    source = recognise(state_dict)
    if source is None:
        raise ValueError(f'not a CvT state dict: no key is named as in any of {FORMATS}; the first keys are '
                         f'{listed(state_dict)}.')
    if source == to:
        return dict(state_dict)
    authors = {_NAMINGS[source].to_authors(key): value for key, value in state_dict.items()}
    return {_NAMINGS[to].from_authors(key): value for key, value in authors.items()}
