"""--cfg-options: each takes effect or is an error."""
from pathlib import Path

import pytest

from cvt_dense.errors import UserError
from cvt_dense.launch.overrides import read_config

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'


def read(name, **options):
    return read_config(str(CONFIGS / f'{name}.py'), {key.replace('__', '.'): value for key, value in options.items()})


def test_variables_at_the_top_take_effect_through_inheritance():
    cfg = read('cvt13_in1k', batch_size=8, num_workers=3)  # both of a base
    assert cfg.train_dataloader.batch_size == cfg.test_dataloader.batch_size == 8
    assert cfg.train_dataloader.num_workers == 3
    cfg = read('cvt_nano_shapes', max_epochs=4)
    assert cfg.train_cfg.max_epochs == cfg.param_scheduler[1].end == 4 and cfg.param_scheduler[1].T_max == 2
    cfg = read('maskrcnn_cvt13_custom', classes=['a', 'b', 'c'], val_images='w/')
    assert cfg.model.roi_head.bbox_head.num_classes == 3 and cfg.val_dataloader.dataset.data_prefix.img == 'w/'
    assert read('cvt13_in1k') .train_dataloader.batch_size == 256, 'an override outlived its reading'


def test_variables_that_nothing_is_computed_from(tmp_path):
    (tmp_path / 'x.py').write_text(
        "num_classes = 5\nsize = (32, 32)\nnote = 'mine'\nmodel = dict(num_classes=10)\n"
        "test_pipeline = [dict(type='Resize', scale=(64, 64))]\n"
        "test_dataloader = dict(dataset=dict(pipeline=test_pipeline))\n")
    with pytest.raises(UserError, match=r"num_classes: 'num_classes' is a variable .* effect: model.num_classes\."):
        read_config(str(tmp_path / 'x.py'), dict(num_classes=3))
    with pytest.raises(UserError, match=r'effect: test_dataloader.dataset.pipeline.0.scale\.'):
        read_config(str(tmp_path / 'x.py'), {'test_pipeline.0.scale': (8, 8)})
    assert read_config(str(tmp_path / 'x.py'), dict(note='yours')).note == 'yours'
    # What a run has written down no longer computes anything.
    dumped = tmp_path / 'dumped.py'
    read('cvt_nano_shapes', max_epochs=4).dump(dumped)
    assert read_config(str(dumped), dict(max_epochs=4)).train_cfg.max_epochs == 4
    with pytest.raises(UserError, match='Set what takes effect: train_cfg.max_epochs'):
        read_config(str(dumped), dict(max_epochs=3))


@pytest.mark.parametrize('name, option, meant', [
    ('cvt13_in1k', 'train_dataloder.batch_size', 'train_dataloader.batch_size'),
    ('cvt13_in1k', 'lode_from', 'load_from'),
    ('cvt13_in1k', 'train_dataloader.batchsize', 'train_dataloader.batch_size'),
    ('cvt13_in1k', 'train_cfg.max_epoch', 'train_cfg.max_epochs'),
    ('cvt13_in1k', 'auto_scale_lr.enabled', 'auto_scale_lr.enable'),
    ('cvt13_in1k', 'default_hooks.checkpont.interval', 'default_hooks.checkpoint.interval'),
    ('cvt13_in1k', 'model.backbone.drop_path', 'model.backbone.drop_path_rate'),
    ('cvt13_custom', 'num_classes', 'model.num_classes'),  # takes one, but the file leaves it to the class folders
    ('upernet_cvt13_ade20k', 'num_classes', 'model.decode_head.num_classes or model.auxiliary_head.num_classes'),
    ('maskrcnn_cvt13_coco', 'train_dataloader.dataset.indicse', 'train_dataloader.dataset.indices'),
    ('maskrcnn_cvt13_coco', 'model.backbone.with_pc', 'model.backbone.with_cp'),
])
def test_misspelt_keys(name, option, meant):
    with pytest.raises(UserError, match=f'has no .*, and nothing reads it. Did you mean {meant}[?]'):
        read_config(str(CONFIGS / f'{name}.py'), {option: 8})


@pytest.mark.parametrize('name, options', [
    ('maskrcnn_cvt21_coco', {
        'model.backbone.init_cfg': None, 'train_dataloader.dataset.pipeline.2.scale': (96, 96),
        'val_dataloader.dataset.pipeline.1.scale': (96, 96), 'train_dataloader.dataset.indices': 8,
        'val_dataloader.dataset.indices': 8, 'train_cfg.max_epochs': 1}),
    ('maskrcnn_cvt13_coco', {
        'backend_args.backend': 'lmdb', 'backend_args.db_path': 'x', 'model.backbone.with_cp': True,
        'optim_wrapper.accumulative_counts': 4, 'optim_wrapper.paramwise_cfg.custom_keys.neck.lr_mult': 0.1,
        'model.test_cfg.rcnn.anything': 1, 'env_cfg.resource_limit': 9, 'default_hooks.mine.type': 'EMAHook',
        'model.backbone.init_cfg.weights': 'raw', 'randomness.deterministic': True, 'compile': True,
        'train_dataloader.sampler.round_up': False, 'visualizer.save_dir': 'x', 'find_unused_parameters': True,
        'model_wrapper_cfg.type': 'MMDistributedDataParallel', 'test_evaluator.outfile_prefix': 'x',
        'default_hooks.checkpoint.priority': 'LOW', 'default_hooks.checkpoint.save_best': 'auto'}),
    ('cvt13_in1k', {
        'custom_hooks.2.max_share': 0.1, 'train_dataloader.sampler.num_repeats': 3, 'param_scheduler': [],
        'val_dataloader.dataset.ann_file': 'x.txt', 'load_from': 'x.pth', 'resume': True,
        'train_dataloader.dataset.transform.re_prob': 0.1, 'model.init_cfg.type': 'Pretrained',
        'model.init_cfg.checkpoint': 'x', 'optim_wrapper.clip_grad.max_norm': 1., 'optim_wrapper.optimizer.eps': 1e-6,
        'val_evaluator.real_labels': 'x.json', 'train_dataloader.prefetch_factor': 4}),
    ('upernet_cvt13_ade20k', {
        'train_cfg.val_begin': 3, 'model.decode_head.ignore_index': 0, 'model.test_cfg.stride': (1, 1),
        'model.decode_head.sampler.type': 'OHEMPixelSampler', 'train_dataloader.dataset.reduce_zero_label': False}),
])
def test_what_is_right_passes(name, options):
    cfg = read_config(str(CONFIGS / f'{name}.py'), options)
    for key, value in options.items():
        node = cfg
        for part in key.split('.'):
            node = node[int(part) if part.isdigit() else part]
        assert node == value


def test_pure_python_config(tmp_path):
    (tmp_path / 'x.py').write_text(
        'from cvt_dense.models import CvT\nmodel = dict(type=CvT, drop_path_rate=0.)\nrate = 0.1\n')
    assert read_config(str(tmp_path / 'x.py'), {'model.with_cp': True}).model.with_cp
    with pytest.raises(UserError, match='Did you mean model.with_cp[?]'):
        read_config(str(tmp_path / 'x.py'), {'model.with_pc': True})
