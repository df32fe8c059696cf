"""Compute settings from the lines at the top of ``configs/*_custom.py``, which call these functions.

They return settings that change a template's ``_base_`` files, which name what is of MMDetection or MMSegmentation.
"""
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from mmengine.config import Config

from ..classes import Classes
from ..errors import UserError
from ..published import WEIGHTS, packaged_folder
from . import recipe

SIZES = {'cvt-13': 'cvt13', 'cvt-21': 'cvt21', 'cvt-w24': 'cvtw24', 'cvt-nano': 'cvt_nano'}  # files of _base_/backbones
LONGEST = dict(detection=5 / 3, segmentation=4)  # long side over short side of a resized image, as for COCO and ADE20K
MIN_IMAGE_SIZE = 32


def _choose(name: str, value: Any, *allowed: Any) -> None:
    """Raise UserError if a line has another value than the allowed ones."""
    if value not in allowed:
        raise UserError(f'{name}={value!r}: allowed are {", ".join(map(repr, allowed))}.')


def _check_number(name: str, value: Any, least: int) -> None:
    """Raise UserError if a line has no whole number, or a smaller one than ``least``."""
    if not isinstance(value, int) or value < least:
        raise UserError(f'{name}={value!r}: allowed is a whole number from {least}.')


# -- the network -----------------------------------------------------------------------------------


def network(arch: str, pretrained: str | None) -> tuple[dict[str, Any], list[int], int]:
    """Return the settings of a backbone, and the width of necks and heads for it.

    Args:
        arch: a key of :data:`SIZES`, a CvT of ``configs/_base_/backbones``; or 'timm:' and the name of any network of
            timm that has maps of stride 4, 8 and 16.
        pretrained: 'published': the authors' weights, for 'cvt-nano' this project's; None: from scratch; or anything
            that ``init_cfg=dict(type='Pretrained', checkpoint=...)`` takes.

    Returns:
        The backbone's settings; the channels of its maps of stride 4, 8, 16 and, of timm's, 32; channels of necks and
        heads.

    Raises:
        UserError: no such ``arch``.
    """
    if str(arch).startswith('timm:'):
        return *_timm_network(arch, pretrained), 256
    _choose('arch', arch, *SIZES, 'timm:NAME')
    size = _size(arch)
    backbone = size.backbone.to_dict() | _values(arch, 'backbone')
    if pretrained != 'published':
        backbone['init_cfg'] = None if pretrained is None else dict(type='Pretrained', checkpoint=pretrained)
    if not backbone['init_cfg']:
        backbone['norm_eval'] = False  # a network from scratch has no stored statistics yet
    return backbone, list(size.channels), size.get('width', 256)


@cache
def _size(arch: str) -> Config:
    return Config.fromfile(recipe(f'_base_/backbones/{SIZES[arch]}.py'))


def _values(arch: str, part: str) -> dict[str, Any]:
    """Return the values of ``templates`` in the file of a size for a part, such as 'two_stage'; others have none."""
    return _size(arch).to_dict().get('templates', {}).get(part, {}) if arch in SIZES else {}


def _merged(settings: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    cfg = Config(settings)
    cfg.merge_from_dict(values)
    return cfg.to_dict()


def _timm_network(arch: str, pretrained: str | None) -> tuple[dict[str, Any], list[int]]:
    import timm
    import torch
    name = arch.removeprefix('timm:')
    try:
        with torch.device('meta'):
            levels = timm.create_model(name, features_only=True).feature_info
    except RuntimeError as error:
        raise UserError(f'arch={arch!r}: timm has no such network, or no maps of it: {error}.') from error
    found = {stride: i for i, stride in enumerate(levels.reduction())}
    if not {4, 8, 16} <= set(found):
        raise UserError(f'arch={arch!r} has maps of stride {levels.reduction()}: allowed are networks with maps of '
                        'stride 4, 8 and 16.')
    indices = [i for stride, i in found.items() if stride in (4, 8, 16, 32)]
    weights = 'timm' if pretrained == 'published' else pretrained
    backbone = dict(
        _delete_=True, type='cvt_dense.TimmBackbone', model_name=name, out_indices=indices, level_norms=True,
        norm_eval=weights is not None, init_cfg=weights and dict(type='Pretrained', checkpoint=weights))
    return backbone, [levels.channels()[i] for i in indices]


def two_stage(classes: Sequence[str], arch: str, pretrained: str | None, masks: bool) -> dict[str, Any]:
    """Return the changes to mmdet's Mask R-CNN or Faster R-CNN for a backbone.

    Args:
        classes: names.
        arch, pretrained: as in :func:`network`.
        masks: whether the model is Mask R-CNN.
    """
    backbone, channels, width = network(arch, pretrained)
    number = _count(classes)
    model = dict(
        backbone=backbone,
        neck=dict(in_channels=channels, out_channels=width),
        rpn_head=dict(in_channels=width, feat_channels=width),
        roi_head=dict(
            bbox_roi_extractor=dict(out_channels=width),
            bbox_head=dict(in_channels=width, fc_out_channels=4 * width, num_classes=number)))
    if masks:
        model['roi_head'].update(
            mask_roi_extractor=dict(out_channels=width),
            mask_head=dict(in_channels=width, conv_out_channels=width, num_classes=number))
    return _merged(model, _values(arch, 'two_stage'))


def one_stage(classes: Sequence[str], arch: str, pretrained: str | None) -> dict[str, Any]:
    """Return the changes to mmdet's GFL for a backbone.

    Args:
        classes: names.
        arch, pretrained: as in :func:`network`.
    """
    backbone, channels, width = network(arch, pretrained)
    if 'out_indices' in backbone:  # GFL has no map of stride 4
        backbone['out_indices'] = backbone['out_indices'][1:]
    else:
        backbone['drop_path_rate'] = min(backbone['drop_path_rate'], 0.1)
    model = dict(
        backbone=backbone,
        neck=dict(in_channels=channels[1:], out_channels=width),
        bbox_head=dict(in_channels=width, feat_channels=width, num_classes=_count(classes)))
    return _merged(model, _values(arch, 'one_stage'))


def published_detector(arch: str, pretrained: str | None) -> str | None:
    """Return the ``load_from`` of :func:`one_stage`'s detector: the published one of this size, if there is one."""
    return _values(arch, 'published').get('detector') if pretrained == 'published' else None


def rate_factor(classes: Sequence[str], arch: str, pretrained: str | None) -> float:
    """Return the factor of the learning rate: a tenth if the published detector knows all classes, otherwise 1.

    At the whole rate a few photographs overwrite what the detector has learned (see the model card of cvt-nano-coco).

    Args:
        classes: names.
        arch, pretrained: as in :func:`network`.
    """
    if (source := published_detector(arch, pretrained)) is None:
        return 1.
    from safetensors import safe_open
    with safe_open(packaged_folder(source) / WEIGHTS, 'np') as file:
        known = Classes(json.loads(file.metadata()['dataset_meta'])['classes'], source)
    return 0.1 if {*Classes(classes, 'classes').spelled} <= {*known.spelled} else 1.


def upernet(classes: Sequence[str], arch: str, pretrained: str | None, image_size: int,
            ignore_index: int) -> dict[str, Any]:
    """Return the changes to mmseg's UperNet for a backbone.

    Args:
        classes: names.
        arch, pretrained: as in :func:`network`.
        image_size: side of the training crops in pixels.
        ignore_index: label value of pixels that are not learnt.
    """
    backbone, channels, width = network(arch, pretrained)
    head = dict(num_classes=_count(classes), ignore_index=ignore_index)
    model = dict(
        data_preprocessor=dict(seg_pad_val=ignore_index, size=(image_size, image_size)),
        backbone=backbone,
        decode_head=dict(in_channels=channels, in_index=list(range(len(channels))), channels=2 * width, **head),
        auxiliary_head=dict(in_channels=channels[2], channels=width, **head))
    return _merged(model, _values(arch, 'upernet'))


def classifier(arch: str, pretrained: str | None) -> dict[str, Any]:
    """Return the settings of ``ImageClassifier``'s backbone; arguments as :func:`network`."""
    backbone = network(arch, pretrained)[0]
    if 'model_name' in backbone:  # timm's, which needs no maps here
        return dict(type=backbone['type'], model_name=backbone['model_name'], out_type='pooled',
                    init_cfg=backbone['init_cfg'])
    return dict(backbone, attn_cfg=None, out_type='cls_token') | _values(arch, 'classifier')


def _count(classes: Sequence[str]) -> int:
    if isinstance(classes, str) or not all(isinstance(name, str) for name in classes) or not (
            0 < len(classes) == len(set(classes))):
        raise UserError(f"classes={classes!r} is not a list of names that differ; write for example ('cat', 'dog'), or "
                        "('cat', ) for one class.")
    return len(classes)


# -- data ------------------------------------------------------------------------------------------


def coco(classes: Sequence[str], data_root: str, ann_file: str, images: str,
         pipeline: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the changes to a data set in COCO's format.

    Args:
        classes: names, in the order of the annotation files' categories.
        data_root: folder of all files.
        ann_file, images: annotation file and folder of images, in ``data_root``.
        pipeline: transforms.
    """
    return dict(ann_file=ann_file, data_prefix=dict(img=images), pipeline=pipeline, data_root=data_root,
                metainfo=dict(classes=classes))


def balanced(base: dict[str, Any], balance: str | None, **changes: Any) -> dict[str, Any]:
    """Return a whole training set, in place of the one in ``_base_``.

    Args:
        base: settings of that one.
        balance: 'images' draws images of rare classes more often, see :class:`cvt_dense.BalancedDataset`; None: all
            images are drawn equally often.
        **changes: settings that replace those of ``base``.

    Raises:
        UserError: ``balance`` is neither.
    """
    _choose('balance', balance, None, 'images')
    dataset = {**base, **changes}
    return dict(_delete_=True, **(dict(type='cvt_dense.BalancedDataset', dataset=dataset) if balance else dataset))


def augmented(pipeline: Sequence[dict[str, Any]], augment: str, **rotate: Any) -> list[dict[str, Any]]:
    """Return a training pipeline with another augmentation, made of MMDetection's or MMSegmentation's transforms.

    Args:
        pipeline: steps of the recipe's pipeline, which are not changed.
        augment: 'standard': as they are; 'none': without flips, colours and random sizes, but crops of label maps stay;
            'strong': a detector also gets crops, sizes from half of the usual one, and other colours, a segmentor
            rotations and hidden squares.
        **rotate: further arguments of a segmentor's ``RandomRotate``.

    Raises:
        UserError: no such ``augment``.
    """
    _choose('augment', augment, 'none', 'standard', 'strong')
    if augment == 'none':
        return [dict(type='Resize', scale=step['scale'], keep_ratio=True) if step['type'] == 'RandomResize' else step
                for step in pipeline if step['type'] not in ('RandomFlip', 'PhotoMetricDistortion')]
    steps = list(pipeline)
    if augment == 'strong' and steps[-1]['type'] == 'PackDetInputs':
        i = next(i for i, step in enumerate(steps) if step['type'] == 'Resize')
        # A crop of half to all of each side, resized to half to all of the usual size: no image needs more memory.
        steps[i:i + 1] = [dict(type='RandomCrop', crop_type='relative_range', crop_size=(0.5, 0.5),
                               allow_negative_crop=True),  # or images without objects would be dropped
                          dict(type='RandomResize', scale=steps[i]['scale'], ratio_range=(0.5, 1.), keep_ratio=True),
                          dict(type='PhotoMetricDistortion')]
    elif augment == 'strong':
        steps[-1:-1] = [dict(type='RandomRotate', prob=0.5, degree=20., **rotate),
                        dict(type='RandomCutOut', prob=0.5, n_holes=(1, 3), cutout_ratio=[(0.1, 0.1), (0.2, 0.2)])]
    return steps


def train_transform(image_size: int, augment: str) -> dict[str, Any]:
    """Return the arguments of timm's ``create_transform`` for the training of a classifier.

    Args:
        image_size: side in pixels.
        augment: 'standard': crops, flips and colours; 'none': the centre of the image; 'strong': smaller crops, flips
            and RandAugment.

    Raises:
        UserError: one of them is not allowed.
    """
    _choose('augment', augment, 'none', 'standard', 'strong')
    _check_number('image_size', image_size, MIN_IMAGE_SIZE)
    settings = dict(input_size=image_size, is_training=True, interpolation='bicubic')
    kinds = dict(none=dict(no_aug=True), standard=dict(scale=(0.4, 1.0), hflip=0.5, color_jitter=0.2),
                 strong=dict(scale=(0.2, 1.0), hflip=0.5, auto_augment='rand-m9-mstd0.5-inc1'))
    return settings | kinds[augment]


def scale(image_size: int, kind: str) -> tuple[int, int]:
    """Return the longest long side and the short side for ``image_size``; ``kind`` is a key of :data:`LONGEST`."""
    _check_number('image_size', image_size, MIN_IMAGE_SIZE)
    return round(image_size * LONGEST[kind]), image_size


def resized(pipeline: Sequence[dict[str, Any]], image_size: int, kind: str, **crop: Any) -> list[dict[str, Any]]:
    """Return a pipeline for images of another size.

    Args:
        pipeline: steps of the pipeline, which are not changed.
        image_size: short side in pixels.
        kind: 'detection' or 'segmentation'.
        **crop: changes to the random crop.
    """
    steps = []
    for step in pipeline:
        step = dict(step)
        if step['type'] in ('Resize', 'RandomResize'):
            step['scale'] = scale(image_size, kind)
        elif step['type'] == 'RandomCrop':
            step.update(crop_size=(image_size, image_size), **crop)
        elif step['type'] == 'TestTimeAug':
            base = {'detection': 800, 'segmentation': 512}[kind]
            step['transforms'] = [[_at_ratio(view, image_size / base) for view in views]
                                  for views in step['transforms']]
        steps.append(step)
    return steps


def _at_ratio(view: dict[str, Any], ratio: float) -> dict[str, Any]:
    return dict(view, scale=tuple(round(side * ratio) for side in view['scale'])) if 'scale' in view else view


# -- the run ---------------------------------------------------------------------------------------


def loop(max_iters: int) -> dict[str, Any]:
    """Return the ``train_cfg`` of a run of ``max_iters`` iterations, which is evaluated after every :func:`_part`.

    Raises:
        UserError: ``max_iters`` is no whole number from 1.
    """
    _check_number('max_iters', max_iters, 1)
    return dict(_delete_=True, type='IterBasedTrainLoop', max_iters=max_iters, val_interval=_part(max_iters))


def schedule(max_iters: int) -> list[dict[str, Any]]:
    """Return the ``param_scheduler`` of a run of ``max_iters`` iterations.

    The learning rate rises for a twentieth, at most 1000 iterations and not at all below 40, then falls linearly to 0.
    """
    # MMEngine's warm-up of one iteration stays at its first, lowest rate.
    warmup = min(max_iters // 20, 1000) if max_iters >= 40 else 0
    falling = dict(type='PolyLR', eta_min=0., power=1., by_epoch=False, begin=warmup, end=max_iters)
    rising = dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=warmup)
    return [rising, falling] if warmup else [falling]


def hooks(max_iters: int, best: str, patience: int | None) -> dict[str, Any]:
    """Return the ``default_hooks`` of a run of ``max_iters`` iterations, which is saved after every :func:`_part`.

    Args:
        max_iters: iterations.
        best: the metric whose best checkpoint is kept.
        patience: evaluations without a better ``best`` after which the training ends; None: it goes on to its end.

    Raises:
        UserError: ``patience`` is below 1.
    """
    settings = dict(
        logger=dict(interval=min(50, max(max_iters // 10, 1)), log_metric_by_epoch=False),
        checkpoint=dict(by_epoch=False, interval=_part(max_iters), save_best=best))
    if patience is not None:
        _check_number('patience', patience, 1)
        settings['early_stopping'] = dict(type='cvt_dense.EarlyStoppingHook', monitor=best, patience=patience)
    return settings


def _part(max_iters: int) -> int:
    """Return the iterations between two evaluations: a tenth of all, but at least 100 in a run of 100 or more."""
    return max(max_iters // 10, 1) if max_iters < 100 else -(-max_iters // min(10, max_iters // 100))


def optimizer(arch: str, lr: float, max_norm: float, factor: float = 1., **options: Any) -> dict[str, Any]:
    """Return the changes to the optimizer of ``_base_``: its learning rate, or the optimizer of a size.

    Args:
        arch: as in :func:`network`.
        lr: learning rate of ``_base_``'s optimizer, for 16 images a step.
        max_norm: norm to which the gradients are clipped for the optimizer of a size.
        factor: of the learning rate, see :func:`rate_factor`.
        **options: further arguments of either optimizer.
    """
    if not (values := _values(arch, 'optimizer')):
        return dict(optimizer=dict(lr=lr * factor, **options))
    return dict(optimizer=values | dict(lr=values['lr'] * factor) | options, clip_grad=dict(max_norm=max_norm))
