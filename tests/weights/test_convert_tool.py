"""tools/convert_checkpoint.py as users run it."""
from functools import partial

import pytest
import torch
from load_tool import run_tool

from cvt_dense.pretraining import ImageClassifier
from cvt_dense.weights import convert, load_weights_file

ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 2, 3), num_heads=(1, 3, 6))


run = partial(run_tool, 'convert_checkpoint')


@pytest.fixture(scope='module')
def model():
    torch.manual_seed(0)
    return ImageClassifier(dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token'), num_classes=5)


def test_round_trip_is_bit_identical_and_keeps_the_names_of_classes(tmp_path, model):
    start = convert({key: torch.randn(value.shape).to(value.dtype) for key, value in model.state_dict().items()},
                    'microsoft')
    meta = dict(dataset_meta=dict(classes=tuple('abcde')))
    torch.save(dict(state_dict=start, meta=meta), tmp_path / 'authors.pth')
    run(tmp_path / 'authors.pth', tmp_path / 'ours.safetensors', '--to', 'cvt_dense')
    read = load_weights_file(str(tmp_path / 'ours.safetensors'))
    assert read['meta']['dataset_meta']['classes'] == list('abcde')
    run(tmp_path / 'ours.safetensors', tmp_path / 'hub.safetensors', '--to', 'huggingface')
    assert (tmp_path / 'hub.safetensors').stat().st_mode & 0o44 == 0o44  # others read it
    run(tmp_path / 'hub.safetensors', tmp_path / 'back.pth', '--to', 'microsoft')
    end = torch.load(tmp_path / 'back.pth')
    assert set(end) == set(start)
    assert all(end[key].dtype == start[key].dtype and torch.equal(end[key], start[key]) for key in start)


def test_files_are_not_overwritten_and_those_of_other_networks_refused(tmp_path, model):
    torch.save(model.state_dict(), tmp_path / 'ours.pth')
    args = tmp_path / 'ours.pth', tmp_path / 'hub.pth', '--to', 'huggingface'
    (tmp_path / 'hub.pth').write_text('mine')
    assert '--force' in run(*args, rc=2) and (tmp_path / 'hub.pth').read_text() == 'mine'
    run(*args, '--force')
    for name in ('ours.pth', 'folder'):
        run(tmp_path / 'ours.pth', tmp_path / name, '--to', 'microsoft', '--force', rc=2)
    assert torch.load(tmp_path / 'ours.pth').keys() == model.state_dict().keys()
    torch.save({'fc.weight': torch.zeros(1)}, tmp_path / 'theirs.pth')
    assert 'fc.weight' in run(tmp_path / 'theirs.pth', tmp_path / 'new.pth', '--to', 'microsoft', rc=2)
