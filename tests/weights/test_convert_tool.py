"""tools/convert_checkpoint.py as users run it."""
import safetensors.torch
import torch

from cvt_dense.models import ImageClassifier
from cvt_dense.weights import convert

ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 2, 3), num_heads=(1, 3, 6))
TOOL = 'tools/convert_checkpoint.py'


def test_round_trip_is_bit_identical_and_transformers_reads_it(tmp_path, run_tool):
    model = ImageClassifier(dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token'), num_classes=5)
    start = convert({key: torch.randn(value.shape).to(value.dtype) for key, value in model.state_dict().items()},
                    'microsoft')
    torch.save(start, tmp_path / 'authors.pth')
    output = run_tool(TOOL, tmp_path / 'authors.pth', tmp_path / 'ours.pth', '--to', 'cvt_dense').stdout
    assert f'{len(start)} tensors from' in output and 'sha256' in output
    options = '--to', 'huggingface', '--num-heads', 1, 3, 6
    output = run_tool(TOOL, tmp_path / 'ours.pth', tmp_path / 'hub', *options).stdout
    assert 'exact GELU' in output
    run_tool(TOOL, tmp_path / 'hub', tmp_path / 'again.safetensors', '--to', 'cvt_dense')
    run_tool(TOOL, tmp_path / 'again.safetensors', tmp_path / 'back.pth', '--to', 'microsoft')
    end = torch.load(tmp_path / 'back.pth')
    assert set(end) == set(start)
    assert all(end[key].dtype == start[key].dtype and torch.equal(end[key], start[key]) for key in start)

    from transformers import CvtForImageClassification
    theirs = CvtForImageClassification.from_pretrained(tmp_path / 'hub').eval()
    assert theirs.num_labels == 5
    model.load_strictly(start, 'authors.pth')
    assert all(torch.equal(value, model.state_dict()[key])
               for key, value in convert(theirs.state_dict(), 'cvt_dense').items())

    run_tool(TOOL, tmp_path / 'hub', tmp_path / 'backbone.safetensors', '--to', 'backbone')
    bare = safetensors.torch.load_file(tmp_path / 'backbone.safetensors')
    assert len(bare) == len(start) - 2 and all(torch.equal(bare[key], start[key]) for key in bare)


def test_head_of_other_classes(tmp_path, run_tool):
    model = ImageClassifier(dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token'), num_classes=3)
    torch.save(model.state_dict(), tmp_path / 'old.pth')
    (tmp_path / 'old.txt').write_text('n01\nn02\nn03\n')
    (tmp_path / 'new.txt').write_text('n03\nn01\n')
    run_tool(TOOL, tmp_path / 'old.pth', tmp_path / 'new.pth', '--to', 'cvt_dense', '--map-head', tmp_path / 'old.txt',
             tmp_path / 'new.txt')
    new = torch.load(tmp_path / 'new.pth')['state_dict']
    for key, value in model.state_dict().items():
        assert torch.equal(new[key], value[[2, 0]] if key.startswith('head.') else value)


def test_a_mistake_ends_with_a_paragraph(tmp_path, run_tool):
    torch.save({'conv1.weight': torch.zeros(1)}, tmp_path / 'resnet.pth')
    output = run_tool(TOOL, tmp_path / 'resnet.pth', tmp_path / 'x.pth', '--to', 'cvt_dense', rc=2).stdout
    assert output.strip().splitlines()[-1].startswith('error: ') and 'Traceback' not in output
    assert "resnet.pth holds no CvT weights: its first keys are ['conv1.weight']" in output
    assert not (tmp_path / 'x.pth').exists()
