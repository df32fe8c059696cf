"""--cfg-options: values keep what was typed, and an option without effect is an error."""
import argparse

import pytest
from templates_edited import recipe

from cvt_dense.config.options import OptionsAction, merge_options
from cvt_dense.config.settings import values
from cvt_dense.errors import UserError


def parse(option):
    parser = argparse.ArgumentParser()
    parser.add_argument('--cfg-options', nargs='+', action=OptionsAction)
    return parser.parse_args(['--cfg-options', option]).cfg_options


@pytest.mark.parametrize('text, value', [
    ('1', 1), ('1e-3', 1e-3), ('-1', -1), ('007', '007'), ('nan', 'nan'), ('true', True), ('False', False),
    ('None', None), ('1,2', (1, 2)), ('(1,2)', (1, 2)), ('[1]', [1]), ('[a,b]', ['a', 'b']), ('a,b', 'a,b'),
    ('[(a,b),[c d,1]]', [('a', 'b'), ['c d', 1]]), ('(a,b)', ('a', 'b')), ('[a (b),c]', ['a (b)', 'c']),
    ('[traffic light, car]', ['traffic light', 'car']), ('cvt-13', 'cvt-13'), ('hf://microsoft/cvt-13',) * 2,
    ('data/my photos/', 'data/my photos/'), ("'data/a,b'", 'data/a,b'), ("Anna's, x", "Anna's, x"), ('a=b', 'a=b')])
def test_text_becomes_the_value_that_it_means(text, value):
    parsed = parse(f'data_root={text}')['data_root']
    assert parsed == value and type(parsed) is type(value)


@pytest.mark.parametrize('name, option, meant', [
    ('cvt13_in1k', 'num_workers', 'train_dataloader.num_workers'),
    ('cvt_nano_shapes', 'max_epochs', 'train_cfg.max_epochs'),
    ('cvt_nano_shapes', 'warmup_epochs', 'computed'),
    ('cvt13_in1k', 'train_dataloder.batch_size', 'train_dataloader.batch_size'),
    ('cvt13_in1k', 'lode_from', 'load_from'),
])
def test_an_option_without_effect_is_an_error_with_the_setting_to_give(name, option, meant):
    with pytest.raises(UserError, match=option) as error:
        merge_options(recipe(name), {option: 8})
    assert meant in str(error.value)


def test_new_settings_are_taken():
    options = {
        'backend_args.backend': 'lmdb', 'model.backbone.with_cp': True, 'optim_wrapper.accumulative_counts': 4,
        'optim_wrapper.paramwise_cfg.custom_keys.neck.lr_mult': 0.1, 'model.test_cfg.rcnn.anything': 1,
        'default_hooks.mine.type': 'EMAHook', 'compile': True, 'model_wrapper_cfg.type': 'MMDistributedDataParallel',
        'train_dataloader.dataset.pipeline.2.scale': (96, 96), 'train_dataloader.dataset.indices': 8, 'resume': True,
        'train_dataloader.prefetch_factor': 4, 'model.backbone.init_cfg': None}
    cfg = recipe('maskrcnn_cvt13_coco')
    merge_options(cfg, options)
    merged = dict(values(cfg.to_dict()))
    assert {key: merged[key] for key in options} == options
