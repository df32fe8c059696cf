"""The lines at the top of configs/*_custom.py are all one edits: what follows from each."""
import json

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DATASETS, HOOKS, MODELS, DefaultScope
from templates_edited import write_detector, write_template

from cvt_dense.errors import UserError
from cvt_dense.launch.runs import TrainRun
from cvt_dense.launch.start import start_training
from cvt_dense.pretraining.transforms import build_transform
from cvt_dense.shapes import CLASSES
from cvt_dense.weights import load_weights_file

COCO = tuple(f'{name}_cvt13_custom' for name in ('maskrcnn', 'fasterrcnn', 'gfl'))
DENSE = (*COCO, 'upernet_cvt13_custom')
TEMPLATES = (*DENSE, 'cvt13_custom')


@pytest.fixture
def read(tmp_path):
    """Read a template with other lines at its top."""
    return lambda template, **lines: Config.fromfile(write_template(tmp_path, template, **lines))


def built(cfg):
    with DefaultScope.overwrite_default_scope(cfg.default_scope), torch.device('meta'):
        return MODELS.build(cfg.model)


def steps(loader, *types):
    return [step for step in loader.dataset.pipeline if step.type in types]


@pytest.mark.parametrize('template', TEMPLATES)
def test_head_edited_in_a_copy_elsewhere(template, read):
    lines = dict(data_root='/my/data', arch='cvt-nano', pretrained='mine.pth', image_size=96, batch_size=3,
                 max_iters=50, patience=3)
    if template in DENSE:
        lines.update(classes=('a', 'b', 'c'), train_ann__train_images=('t.json', 't/'),
                     test_ann__test_images=('x.json', 'x/'))
    cfg = read(template, **lines)
    model = built(cfg)
    assert model.backbone.out_channels[-1] == 128 and not model.backbone.norm_eval
    assert cfg.model.backbone.init_cfg == dict(type='Pretrained', checkpoint='mine.pth')
    assert cfg.train_cfg == dict(type='IterBasedTrainLoop', max_iters=50, val_interval=5)
    hooks = cfg.default_hooks
    assert (hooks.early_stopping.monitor, hooks.early_stopping.patience) == (hooks.checkpoint.save_best, 3)
    assert hooks.checkpoint.interval == 5 and not hooks.checkpoint.by_epoch
    assert [(step.begin, step.end) for step in cfg.param_scheduler] == [(0, 2), (2, 50)]
    assert cfg.train_dataloader.batch_size == 3 and cfg.optim_wrapper.optimizer.lr == (1e-3, 6e-3)[template in DENSE]
    loaders = cfg.train_dataloader, cfg.val_dataloader, cfg.test_dataloader
    assert [loader.dataset.data_root for loader in loaders] == ['/my/data'] * 3
    if template == 'cvt13_custom':
        assert [loader.dataset.transform.input_size for loader in loaders] == [96] * 3
        assert cfg.default_hooks.checkpoint.save_best == 'accuracy/top1' and 'num_classes' not in cfg.model
        assert HOOKS.build(dict(cfg.default_hooks.checkpoint, save_best='accuracy/loss')).metrics[0].rule == 'less'
        return
    assert [loader.dataset.metainfo.classes for loader in loaders] == [('a', 'b', 'c')] * 3
    assert cfg.optim_wrapper.optimizer.type == 'timm.optim.Muon' and cfg.optim_wrapper.optimizer.nesterov
    masks = template.startswith('mask')
    if template == 'upernet_cvt13_custom':
        assert [head.num_classes for head in (cfg.model.decode_head, cfg.model.auxiliary_head)] == [3, 3]
        assert [loader.dataset.data_prefix.img_path for loader in loaders] == ['t/', 'images/val', 'x/']
        assert [loader.dataset.data_prefix.seg_map_path for loader in loaders] == ['t.json', 'labels/val', 'x.json']
        assert [steps(loader, 'Resize', 'RandomResize')[0].scale for loader in loaders] == [(384, 96)] * 3
        assert steps(loaders[0], 'RandomCrop')[0].crop_size == cfg.model.data_preprocessor.size == (96, 96)
        assert cfg.default_hooks.checkpoint.save_best == 'mIoU'
    else:
        head = cfg.model.bbox_head if template.startswith('gfl') else cfg.model.roi_head.bbox_head
        assert head.num_classes == 3 and [loader.dataset.data_prefix.img for loader in loaders] == ['t/', 'val/', 'x/']
        assert [evaluator.ann_file for evaluator in (cfg.val_evaluator, cfg.test_evaluator)] == [
            '/my/data/annotations/val.json', '/my/data/x.json']
        assert [steps(loader, 'Resize')[0].scale for loader in loaders] == [(160, 96)] * 3
        assert cfg.default_hooks.checkpoint.save_best == ('coco/segm_mAP' if masks else 'coco/bbox_mAP')
        assert cfg.val_evaluator.metric == (['bbox', 'segm'] if masks else 'bbox')


@pytest.mark.slow
@pytest.mark.parametrize('template, arch, weights', [
    *((template, 'timm:resnet18', 'timm') for template in DENSE[1:]), ('gfl_cvt13_custom', 'cvt-13', 'hf://microsoft/cvt-13'),
    ('upernet_cvt13_custom', 'cvt-nano', 'cvt_dense://cvt-nano'),
    ('maskrcnn_cvt13_custom', 'timm:swin_tiny_patch4_window7_224', 'timm')])
def test_arch_and_pretrained(read, template, arch, weights):
    """Necks and heads follow the width of the backbone's maps."""
    cfg = read(template, arch=arch)
    assert cfg.model.backbone.init_cfg.checkpoint == weights
    model = built(cfg).eval()
    head = getattr(model, 'decode_head', getattr(model, 'rpn_head', getattr(model, 'bbox_head', None)))
    assert head(model.extract_feat(torch.zeros(2, 3, 64, 64, device='meta'))) is not None
    cfg = read(template, arch=arch, pretrained=None)
    assert cfg.model.backbone.init_cfg is None and not cfg.model.backbone.norm_eval


@pytest.mark.parametrize('template, setting, values', [
    ('maskrcnn_cvt13_custom', 'model.train_cfg.rpn.sampler.num', (256, 64)),
    ('gfl_cvt13_custom', 'model.bbox_head.stacked_convs', (4, 2)),
    ('upernet_cvt13_custom', 'model.decode_head.channels', (512, 64)),
    ('cvt13_custom', 'model.backbone.out_type', ('cls_token', 'avg_featmap')),
    ('gfl_cvt13_custom', 'optim_wrapper.optimizer.type', ('AdamW', 'timm.optim.Muon'))])
def test_a_size_has_its_own_values(read, template, setting, values):
    for arch, value in zip(('cvt-13', 'cvt-nano'), values):
        found = read(template, arch=arch)
        for name in setting.split('.'):
            found = found[name]
        assert found == value


def test_a_small_detector_starts_from_the_published_one_and_keeps_the_classes_with_equal_names(tmp_path, shapes):
    """All of its tensors are loaded but the rows of new classes; a weight file for the backbone turns it off."""
    annotations = json.loads((shapes / 'detection/annotations/instances_train.json').read_text())
    annotations['categories'][2]['name'] = 'person'
    (tmp_path / 'train.json').write_text(json.dumps(annotations))
    data, classes = (str(tmp_path / 'train.json'), 'train/'), (*CLASSES[:2], 'person', *CLASSES[3:])
    template = write_detector(tmp_path, shapes, 'gfl_cvt13_custom', classes=classes, train_ann__train_images=data,
                              val_ann__val_images=data)
    runner = start_training(TrainRun(template, work_dir=tmp_path / 'run'))
    runner.optim_wrapper = runner.build_optim_wrapper(runner.optim_wrapper)
    runner.param_schedulers = runner.build_param_scheduler(runner.param_schedulers)
    new = runner.model.bbox_head.gfl_cls.weight.detach().clone()
    runner.load_or_resume()
    published = load_weights_file('cvt_dense://cvt-nano-coco')
    person = published['meta']['dataset_meta']['classes'].index('person')
    for name, value in runner.model.state_dict().items():
        saved = published['state_dict'][name]
        if 'gfl_cls' in name:
            assert torch.equal(value[2], saved[person].float())
        else:
            assert torch.equal(value, saved.to(value)), name
    others = [0, 1, *range(3, 8)]
    assert torch.equal(runner.model.bbox_head.gfl_cls.weight[others], new[others])
    assert Config.fromfile(write_template(tmp_path, 'gfl_cvt13_custom', arch='cvt-nano',
                                          pretrained='cvt_dense://cvt-nano')).get('load_from') is None


@pytest.mark.parametrize('classes, pretrained, lr', [
    (('TV monitor', 'person'), 'published', 6e-3), (('dining_table', 'Person'), 'published', 6e-4),
    (('person', ), 'cvt_dense://cvt-nano', 6e-3)])
def test_classes_that_the_published_detector_knows_are_not_overwritten(read, classes, pretrained, lr):
    cfg = read('gfl_cvt13_custom', arch='cvt-nano', classes=classes, pretrained=pretrained)
    assert cfg.optim_wrapper.optimizer.lr == pytest.approx(lr)


def test_a_classifier_of_timm(read):
    """Takes the pooled features of the network, with weights from a file."""
    cfg = read('cvt13_custom', arch='timm:resnet18', pretrained='mine.pth')
    assert cfg.model.backbone.init_cfg.checkpoint == 'mine.pth'
    cfg.model.num_classes = 3
    assert built(cfg).eval()(torch.zeros(2, 3, 64, 64, device='meta'), mode='tensor').shape == (2, 3)


@pytest.mark.slow
@pytest.mark.parametrize('template', TEMPLATES)
def test_augment_changes_the_training_pipeline_alone(read, shapes, template):
    """None has no random step but crops; strong samples are no larger than standard ones, also without objects."""
    segments, lines = template.startswith('upernet'), {}
    if segments:
        lines = dict(classes=('background', *CLASSES), data_root=f'{shapes}/segmentation/', ignore_index=100,
                     train_ann__train_images=('annotations/training', 'images/training'),
                     img_suffix__seg_map_suffix=('.png', '.png'))
    elif template in COCO:
        lines = dict(classes=CLASSES, data_root=f'{shapes}/detection/',
                     train_ann__train_images=('annotations/instances_train.json', 'train/'))
    cfgs = {name: read(template, arch='cvt-nano', augment=name, **lines) for name in ('none', 'standard', 'strong')}
    assert len({f'{cfg.val_dataloader}{cfg.test_dataloader}' for cfg in cfgs.values()}) == 1
    if template == 'cvt13_custom':
        transforms = {name: cfg.train_dataloader.dataset.transform for name, cfg in cfgs.items()}
        assert transforms['standard'] == dict(input_size=64, is_training=True, scale=(0.4, 1.0), hflip=0.5,
                                              interpolation='bicubic', color_jitter=0.2)
        built = {name: [type(step).__name__ for step in build_transform(**settings)[1]]
                 for name, settings in transforms.items()}
        assert not [step for step in built['none'] if 'Random' in step or 'Jitter' in step]
        assert 'RandAugment' in built['strong'] and 'RandAugment' not in built['standard']
        return
    types = {name: [step.type for step in cfg.train_dataloader.dataset.pipeline] for name, cfg in cfgs.items()}
    assert [name for name in types['none'] if 'Random' in name] == (['RandomCrop'] if segments else [])
    assert 'RandomFlip' in types['standard'] and set(types['standard']) < set(types['strong']) | {'Resize'}
    with DefaultScope.overwrite_default_scope(cfgs['strong'].default_scope):
        dataset = DATASETS.build(cfgs['strong'].train_dataloader.dataset)
    for i in range(8):
        sample = dataset[i]
        assert max(sample['inputs'].shape[1:]) <= (224 if segments else 373) and min(sample['inputs'].shape[1:]) <= 224
        if segments:
            assert set(sample['data_samples'].gt_sem_seg.data.unique().tolist()) <= {*range(9), 100}
        else:
            empty = dataset.pipeline(dict(dataset.get_data_info(i), instances=[]))
            assert not len(empty['data_samples'].gt_instances)


@pytest.mark.slow
def test_balance_wraps_the_training_set(read):
    for template in (*COCO, 'cvt13_custom'):
        plain, cfg = (read(template, balance=value).train_dataloader.dataset for value in (None, 'images'))
        assert cfg.type == 'cvt_dense.BalancedDataset' and cfg.dataset == plain and set(cfg) == {'type', 'dataset'}


def test_the_ignored_label_reaches_heads_metric_padding_and_crop(read):
    cfg = read('upernet_cvt13_custom', ignore_index=7)
    assert [head.ignore_index for head in (cfg.model.decode_head, cfg.model.auxiliary_head)] == [7, 7]
    assert cfg.test_evaluator.ignore_index == 7 and cfg.model.data_preprocessor.seg_pad_val == 7
    assert steps(cfg.train_dataloader, 'RandomCrop')[0].ignore_index == 7


@pytest.mark.parametrize('template, line', [
    ('upernet_cvt13_custom', dict(arch='cvt13')), ('fasterrcnn_cvt13_custom', dict(arch='timm:vit_tiny_patch16_224')),
    ('cvt13_custom', dict(patience=0)), ('cvt13_custom', dict(arch='timm:resnet')),
    ('cvt13_custom', dict(image_size=0)),
    ('maskrcnn_cvt13_custom', dict(balance='loss')), ('gfl_cvt13_custom', dict(augment='more')),
    ('upernet_cvt13_custom', dict(classes='cell')), ('gfl_cvt13_custom', dict(classes=('cell', 'cell')))])
def test_values_that_cannot_be(read, template, line):
    with pytest.raises(UserError, match=next(iter(line))):
        read(template, **line)
