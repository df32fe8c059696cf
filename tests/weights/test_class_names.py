"""The names of classes, in every form in which they come with weights, and the one rule that compares them."""
import json
from contextlib import nullcontext
from unittest import mock

import pytest
import safetensors.torch
import torch

from cvt_dense.classes import Classes
from cvt_dense.errors import UserError
from cvt_dense.models import CvT
from cvt_dense.weights import convert, load_weights_file, select_weights

NAMES = [f'class {number}' for number in (3, 1, 12, 0, 2, 5, 4, 7, 6, 9, 8, 11, 10)]  # 10 does not follow 1
ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6))


def torch_file(**meta):
    return lambda weights, folder: torch.save(dict(state_dict=weights, meta=meta), folder / 'pytorch_model.bin')


def safetensors_file(naming, **about):
    return lambda weights, folder: safetensors.torch.save_file(
        convert(weights, naming), folder / 'model.safetensors', {key: json.dumps(about[key]) for key in about})


def with_config(save, **config):
    def save_both(weights, folder):
        save(weights, folder)
        (folder / 'config.json').write_text(json.dumps(config))
    return save_both


LABELS = {str(number): NAMES[number] for number in sorted(range(len(NAMES)), key=str)}
FORMS = {
    'MMEngine': torch_file(dataset_meta=dict(classes=tuple(NAMES))),
    'MMDetection 3.0rc': torch_file(dataset_meta=dict(CLASSES=tuple(NAMES))),
    'MMDetection 2': torch_file(CLASSES=tuple(NAMES), PALETTE=None),
    'published': safetensors_file('cvt_dense', dataset_meta=dict(classes=NAMES)),
    'packaged': safetensors_file('cvt_dense', classes=NAMES),
    'transformers': with_config(safetensors_file('huggingface'), id2label=LABELS),
    'transformers, by hand': with_config(safetensors_file('huggingface'), label2id={
        name: number for number, name in enumerate(NAMES)}),
    'transformers, older': with_config(torch_file(), id2label=LABELS),
    'timm': with_config(safetensors_file('microsoft'), label_names=NAMES),
    'placeholders': with_config(safetensors_file('huggingface'), id2label={str(i): f'LABEL_{i}' for i in range(13)}),
    'a name': torch_file(dataset_meta=dict(classes='cat')),
    'no list': with_config(safetensors_file('huggingface'), id2label={'a': 'b'}),
    'no names': safetensors_file('cvt_dense')}


@pytest.fixture(scope='module')
def weights():
    return {f'backbone.{name}': value for name, value in CvT(ARCH).state_dict().items()}


@pytest.mark.parametrize('form', FORMS)
def test_names_of_each_form(weights, tmp_path, form):
    FORMS[form](weights, tmp_path)
    content = load_weights_file(str(tmp_path))
    names = Classes.of_file(content, 'file').names
    assert names == (() if form in ('placeholders', 'a name', 'no list', 'no names') else tuple(NAMES))
    assert select_weights(content).keys() == weights.keys()


@pytest.mark.parametrize('names, wanted, outcome', [
    ('abc', 'abc', 'equal'), ('abc', '', 'equal'), ('', 'abc', 'equal'), ('abc', 'ab', 'equal'), ('ab', 'abc', 'equal'),
    ('abc', 'abd', 'renamed'), ('abc', 'xyz', 'renamed'), ('abc', 'ABc', 'renamed'), ('abc', 'BAc', 'refused'),
    ('abc', 'bac', 'refused'), ('abc', 'bc', 'refused'), ('bc', 'abc', 'refused'), ('abc', 'xay', 'refused'),
    ('abc', 'xy', 'refused'), (range(3), '012', 'equal')])
def test_a_class_has_one_number(names, wanted, outcome):
    with (mock.patch('cvt_dense.classes.print_log') as log,
          pytest.raises(UserError, match='mine.pth') if outcome == 'refused' else nullcontext()):
        Classes(tuple(names), 'mine.pth').check_order(Classes(tuple(wanted), 'data'))
    assert log.call_count == (outcome == 'renamed')


@pytest.mark.parametrize('raw, averaged', [('state_dict', 'state_dict_ema'), ('model', 'model_ema')])
@pytest.mark.parametrize('prefix', ['', 'module.', '_orig_mod.', 'module._orig_mod.'])
def test_averaged_weights_of_timm_and_of_deit(weights, tmp_path, raw, averaged, prefix):
    mean = {name: value + 1 for name, value in weights.items()}
    torch.save({raw: {prefix + name: value for name, value in weights.items()}, averaged: mean, 'epoch': 3},
               tmp_path / 'checkpoint.pth.tar')
    content = load_weights_file(str(tmp_path / 'checkpoint.pth.tar'))
    for choice, expected in (('ema', mean), ('raw', weights)):
        chosen = select_weights(content, choice)
        assert chosen.keys() == expected.keys() and all(torch.equal(chosen[name], expected[name]) for name in expected)
