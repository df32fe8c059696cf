"""Options of the command line, and checks of a config: its options, its heads, and the length of a training."""
import argparse
import inspect
import re
from pathlib import Path

import mmdet
import pytest
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from mmengine.runner import Runner
from templates_edited import ROOT, recipe

from cvt_dense.cli.options import OptionsAction
from cvt_dense.config import READ_FROM_CONFIG, check_variables, merge_options, values
from cvt_dense.errors import UserError
from cvt_dense.launch.checks.heads import heads_of
from cvt_dense.published import read_config
from cvt_dense.weights.strict_loading import StrictPretrainedInit

# -- --cfg-options ---------------------------------------------------------------------------------


def parse(option):
    parser = argparse.ArgumentParser()
    parser.add_argument('--cfg-options', nargs='+', action=OptionsAction)
    return parser.parse_args(['--cfg-options', option]).cfg_options


@pytest.mark.parametrize('text, value', [
    ('1', 1), ('1e-3', 1e-3), ('-1', -1), ('007', 7), ("'007'", '007'), ('true', True), ('False', False),
    ('None', None), ('1,2', [1, 2]), ('(1,2)', (1, 2)), ('[1]', [1]), ('[a,b]', ['a', 'b']), ('a,b', ['a', 'b']),
    ('(cat,)', ('cat', )), ('[a,b,]', ['a', 'b']), ('[a,"b,c"]', ['a', 'b,c']), ('[(a,),(b,)]', [('a', ), ('b', )]),
    ('[(a,b),[c d,1]]', [('a', 'b'), ['c d', 1]]), ('(a,b)', ('a', 'b')), ('[a (b),c]', ['a (b)', 'c']),
    ('[traffic light, car]', ['traffic light', 'car']), ('cvt-13', 'cvt-13'), ('hf://microsoft/cvt-13',) * 2,
    ('data/my photos/', 'data/my photos/'), ("'data/a,b'", 'data/a,b'), ("Anna's, x", ["Anna's", 'x']), ('a=b', 'a=b')])
def test_text_becomes_the_value_that_it_means(text, value):
    parsed = parse(f'data_root={text}')['data_root']
    assert parsed == value and type(parsed) is type(value)


@pytest.mark.parametrize('name, option, meant', [
    ('cvt13_in1k', 'num_workers', 'train_dataloader.num_workers'), ('cvt13_in1k', 'lode_from', 'load_from'),
    ('cvt_nano_shapes', 'max_epochs', 'train_cfg.max_epochs'), ('cvt_nano_shapes', 'warmup_epochs', 'computed'),
    ('cvt13_in1k', 'train_dataloder.batch_size', 'train_dataloader.batch_size'),
    ('cvt13_in1k', 'test_cfg.fp', 'fp16'), ('cvt13_in1k', 'optim_wrapper.paramwise_cfg.custom_keys.a.lr_mul', 'mult'),
    ('cvt13_custom', 'train_cfg.max_iter', 'max_iters'), ('cvt13_in1k', 'env_cfg.dist_cfg.backnd', 'backend'),
    ('maskrcnn_cvt13_coco', 'model.test_cfg.rcnn.nms.iou_thr', 'iou_threshold'),
    ('maskrcnn_cvt13_coco', 'train_dataloader.dataset.filter_cfg.foo', 'filter_empty_gt'),
    ('maskrcnn_cvt13_coco', 'model.test_cfg.rcnn.anything', 'score_thr'),
    ('cvt13_in1k', 'auto_scale_lr.enabled', 'enable'), ('cvt13_in1k', 'optim_wrapper.clip_grad.max_nor', 'max_norm'),
    ('maskrcnn_cvt13_coco', 'model.backbone.init_cfg.checkpint', 'checkpoint'),
    ('cascademaskrcnn_cvt13_coco_3x', 'model.roi_head.bbox_head.num_classes', 'list')])
def test_an_option_without_effect_is_an_error_with_the_setting_to_give(name, option, meant):
    with pytest.raises(UserError, match=option) as error:
        merge_options(recipe(name), {option: 8})
    assert meant in str(error.value)


def test_a_setting_of_the_file_that_is_misspelt():
    with pytest.raises(UserError, match='score_thr'):
        merge_options(Config(dict(model=dict(test_cfg=dict(rcnn=dict(score_th=0.1))))), {})


def test_settings_that_mmengine_and_mmdet_read_are_taken():
    assert {*inspect.signature(Runner.__init__).parameters} - {'self', 'cfg', 'data_preprocessor'} <= READ_FROM_CONFIG
    options = {f'model.backbone.init_cfg.{name}': '' for name in inspect.signature(StrictPretrainedInit).parameters}
    merge_options(recipe('maskrcnn_cvt13_coco'), options)
    for name in ('ddod/ddod_r50_fpn_1x_coco', 'grid_rcnn/grid-rcnn_r50_fpn_gn-head_2x_coco',
                 'tood/tood_r50_fpn_anchor-based_1x_coco',
                 'guided_anchoring/ga-rpn_r50_fpn_1x_coco', 'yolo/yolov3_d53_8xb8-320-273e_coco'):
        merge_options(Config.fromfile(Path(mmdet.__file__).parent / f'.mim/configs/{name}.py'), {})


def test_new_settings_are_taken():
    options = {
        'model.backbone.with_cp': True, 'optim_wrapper.accumulative_counts': 4,
        'optim_wrapper.paramwise_cfg.custom_keys.neck.lr_mult': 0.1, 'model.test_cfg.rcnn.max_num': 1,
        'default_hooks.mine.type': 'EMAHook', 'compile': True, 'model_wrapper_cfg.type': 'MMDistributedDataParallel',
        'train_dataloader.dataset.pipeline.2.scale': (96, 96), 'train_dataloader.dataset.indices': 8, 'resume': True,
        'train_dataloader.prefetch_factor': 4, 'model.backbone.init_cfg': None}
    cfg = recipe('maskrcnn_cvt13_coco')
    merge_options(cfg, options)
    assert dict(values(cfg.to_dict())).items() >= options.items()


@pytest.mark.parametrize('line', ['max_iters = 3', 'batch_size = 2', 'patience = 1', "data_root = 'mine'"])
def test_a_child_cannot_set_a_line_from_which_its_base_has_computed_others(tmp_path, line):
    child, base = tmp_path / 'child.py', ROOT / 'configs/cvt13_custom.py'

    def check(text: str) -> None:
        child.write_text(f"_base_ = '{base}'\n{text}\n")
        check_variables(read_config(str(child)))

    with pytest.raises(UserError, match=line.split()[0]):
        check(line)
    check('max_iters = 3\ntrain_cfg = dict(max_iters=max_iters)')
    check(re.findall('^patience = .*', base.read_text(), re.M)[0])


# -- checks ----------------------------------------------------------------------------------------


def test_the_last_of_several_decode_heads_predicts_the_classes_of_the_data():
    cfg = recipe('upernet_cvt_nano_shapes')
    cfg.model.update(type='CascadeEncoderDecoder', num_stages=2, decode_head=[
        dict(cfg.model.decode_head, num_classes=9), cfg.model.decode_head])
    with DefaultScope.overwrite_default_scope('mmseg'):
        assert [*heads_of(MODELS.build(cfg.model))] == ['decode_head.1']
