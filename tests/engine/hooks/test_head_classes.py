"""Fine-tuning on other classes: what heads keep and what is new, by the classes' names."""
import functools
from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.registry import MODELS, DefaultScope
from tiny_training import ROOT
from torch import nn

from cvt_dense.config import walk
from cvt_dense.engine import HeadClassesHook
from cvt_dense.pretraining import ImageClassifier

ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6))
THREE = ['cat', 'frog', 'ship']


def classifier(outputs):
    model = ImageClassifier(dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token'), num_classes=outputs)
    nn.init.normal_(model.head.bias)
    return model


def load(old, new, model, saved, resume=False):
    """Call the hook; return the model's tensors, and the checkpoint's before and after."""
    runner = SimpleNamespace(
        resuming=resume, optim_wrapper=object(), model=model, logger=MMLogger.get_current_instance(),
        train_dataloader=SimpleNamespace(dataset=SimpleNamespace(metainfo=dict(classes=tuple(new)))))
    saved = dict(saved.state_dict())
    checkpoint = dict(state_dict=dict(saved), meta=dict(dataset_meta=dict(classes=tuple(old))))
    HeadClassesHook().after_load_checkpoint(runner, checkpoint)
    return model.state_dict(), saved, checkpoint['state_dict']


@pytest.mark.parametrize('outputs, new, rows', [
    (3, THREE, [0, 1, 2]), (3, ['dog', 'truck', 'bird'], [None] * 3), (3, ['ship', 'cat', 'frog'], [2, 0, 1]),
    (3, ['bird', 'cat', 'frog', 'ship'], [None, 0, 1, 2]),
    (3, ['Ship', 'Cat'], [2, 0]), (7, ['bird', 'frog'], [None, 1])])  # trained with more outputs than classes
def test_rows_follow_names(outputs, new, rows):
    current, saved, loaded = load(THREE, new, classifier(len(new)), classifier(outputs))
    for key in ('head.weight', 'head.bias'):
        assert loaded[key].shape == current[key].shape
        for i, row in enumerate(rows):
            assert torch.equal(loaded[key][i], current[key][i] if row is None else saved[key][row])
    assert all(torch.equal(loaded[key], saved[key]) for key in saved if not key.startswith('head.'))


def test_a_resumed_run_is_left_alone():
    _, saved, loaded = load(THREE, THREE[::-1], classifier(3), classifier(3), resume=True)
    assert torch.equal(loaded['head.weight'], saved['head.weight'])


# Per recipe: for tensors of its heads, the rows of class c of n, or of the background with c = n.
ROWS = {
    'maskrcnn_cvt13_coco': {
        'roi_head.bbox_head.fc_cls.weight': lambda c, n: [c],
        'roi_head.bbox_head.fc_reg.bias': lambda c, n: range(4 * c, 4 * c + 4) if c < n else [],
        'roi_head.mask_head.conv_logits.weight': lambda c, n: [c] if c < n else []},
    'retinanet_cvt13_coco': {
        'bbox_head.retina_cls.weight': lambda c, n: range(c, 9 * n, n) if c < n else []},
    'dino_cvt13_coco': {
        'bbox_head.cls_branches.6.bias': lambda c, n: [c] if c < n else [],
        'dn_query_generator.label_embedding.weight': lambda c, n: [c] if c < n else []},
    'upernet_cvt_nano_shapes': {
        'decode_head.conv_seg.weight': lambda c, n: [c] if c < n else [],
        'auxiliary_head.conv_seg.bias': lambda c, n: [c] if c < n else []},
    'mask2former_cvt13_ade20k': {'decode_head.cls_embed.weight': lambda c, n: [c]}}


@functools.cache
def head(recipe, classes):
    """The heads of a recipe's model, narrow, with random weights."""
    cfg = Config.fromfile(ROOT / f'configs/{recipe}.py')
    for path, node in walk(cfg.model):
        if 'num_classes' in node and 'rpn' not in path:
            node['num_classes'] = classes
    if 'mask2former' in recipe:
        cfg.model.decode_head.loss_cls.class_weight = [1.] * classes + [.1]
    with DefaultScope.overwrite_default_scope(cfg.default_scope), torch.device('meta'):
        model = MODELS.build(cfg.model)
    model.backbone = nn.Identity()
    torch.manual_seed(classes)
    weights = {key: torch.randn(value.shape) for key, value in model.state_dict().items()}
    model.state_dict = weights.copy
    return model


@pytest.mark.slow
@pytest.mark.parametrize('recipe, new', [*((recipe, ['bird', 'ship', 'cat', 'dog']) for recipe in ROWS),
                                         ('maskrcnn_cvt13_coco', ['dog', 'ship', 'cat'])])
def test_heads_of_detectors_and_segmentors_follow_names(recipe, new):
    current, saved, loaded = load(THREE, new, head(recipe, len(new)), head(recipe, 3))
    for key, rows in ROWS[recipe].items():
        for c, name in enumerate([*new, 'background']):
            old = [*THREE, 'background'].index(name) if name in [*THREE, 'background'] else None
            expected = current[key][list(rows(c, len(new)))] if old is None else saved[key][list(rows(old, 3))]
            assert torch.equal(loaded[key][list(rows(c, len(new)))], expected), (key, name)
    changed = {key for key in saved if not torch.equal(saved[key], loaded[key])}
    assert set(ROWS[recipe]) <= changed
    assert len(new) == 3 or all(saved[key].shape != current[key].shape for key in changed)
    assert all(loaded[key].shape == current[key].shape for key in saved)
