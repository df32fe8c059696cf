"""tools/convert_checkpoint.py as users run it."""
import json
from functools import partial

import pytest
import torch
from load_tool import run_tool

from cvt_dense.pretraining import ImageClassifier
from cvt_dense.weights import FORMATS, convert, load_weights_file

ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 2, 3), num_heads=(1, 3, 6))


run = partial(run_tool, 'convert_checkpoint')


@pytest.fixture(scope='module')
def model():
    torch.manual_seed(0)
    return ImageClassifier(dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token'), num_classes=5)


def test_round_trip_is_bit_identical_and_transformers_reads_it(tmp_path, model):
    start = convert({key: torch.randn(value.shape).to(value.dtype) for key, value in model.state_dict().items()},
                    'microsoft')
    torch.save(start, tmp_path / 'authors.pth')
    run(tmp_path / 'authors.pth', tmp_path / 'ours.pth', '--to', 'cvt_dense')
    assert 'exact GELU' in run(tmp_path / 'ours.pth', tmp_path / 'hub', '--to', 'huggingface', '--num-heads', 1, 3, 6)
    run(tmp_path / 'hub', tmp_path / 'again.safetensors', '--to', 'cvt_dense')
    run(tmp_path / 'again.safetensors', tmp_path / 'back.pth', '--to', 'microsoft')
    end = torch.load(tmp_path / 'back.pth')
    assert set(end) == set(start)
    assert all(end[key].dtype == start[key].dtype and torch.equal(end[key], start[key]) for key in start)

    from transformers import CvtForImageClassification
    theirs = CvtForImageClassification.from_pretrained(tmp_path / 'hub').eval()
    assert theirs.num_labels == 5
    assert all(torch.equal(value, start[key]) for key, value in convert(theirs.state_dict(), 'microsoft').items())


@pytest.mark.parametrize('name', FORMATS)
def test_class_names_are_kept(tmp_path, model, name):
    content = dict(state_dict=convert(model.state_dict(), name), meta=dict(dataset_meta=dict(classes=tuple('abcde'))))
    torch.save(content, tmp_path / 'old.pth')
    run(tmp_path / 'old.pth', tmp_path / 'new.safetensors', '--to', 'cvt_dense')
    assert 'class names' in run(tmp_path / 'new.safetensors', tmp_path / 'bare.pth', '--to', 'microsoft')
    assert load_weights_file(str(tmp_path / 'new.safetensors'))['meta']['dataset_meta']['classes'] == list('abcde')


def test_files_are_not_overwritten_and_those_of_other_networks_refused(tmp_path, model):
    torch.save(model.state_dict(), tmp_path / 'ours.pth')
    args = tmp_path / 'ours.pth', tmp_path / 'hub', '--to', 'huggingface', '--num-heads', 1, 3, 6
    (tmp_path / 'hub').mkdir()
    (tmp_path / 'hub/config.json').write_text('mine')
    assert '--force' in run(*args, rc=2) and len(list((tmp_path / 'hub').iterdir())) == 1
    run(*args, '--force')
    assert len(json.loads((tmp_path / 'hub/config.json').read_text())['id2label']) == 5
    run(tmp_path / 'ours.pth', tmp_path / 'ours.pth', '--to', 'microsoft', '--force', rc=2)
    assert torch.load(tmp_path / 'ours.pth').keys() == model.state_dict().keys()
    torch.save({'fc.weight': torch.zeros(1)}, tmp_path / 'theirs.pth')
    assert 'fc.weight' in run(tmp_path / 'theirs.pth', tmp_path / 'new.pth', '--to', 'microsoft', rc=2)
