"""tools/get_flops.py against the closed form, the published figures, and real detectors and segmentors."""
import pytest
import torch
import yaml
from load_tool import ROOT, load_tool, run_tool

from cvt_dense.models import CvT
from cvt_dense.pretraining import ImageClassifier

PUBLISHED = {('cvt-13', (224, 224)): 4.53e9, ('cvt-21', (224, 224)): 7.13e9, ('cvt-w24', (384, 384)): 193.2e9}
get_flops = load_tool('get_flops')


def closed_form(arch, size):
    """MACs of each stage, from the shapes of every product."""
    macs, in_channels, (height, width) = [], 3, size
    for i, (dims, depth) in enumerate(zip(arch['embed_dims'], arch['depths'])):
        kernel, stride, padding = ((7, 4, 2), (3, 2, 1), (3, 2, 1))[i]
        height, width = ((side + 2 * padding - kernel) // stride + 1 for side in (height, width))
        cls_token = int(i == 2)
        queries, keys = height * width, -(-height // 2) * -(-width // 2)
        embed = queries * dims * in_channels * kernel**2
        depthwise = (queries + 2 * keys) * dims * 9
        queries, keys = queries + cls_token, keys + cls_token
        linear = (2 * queries + 2 * keys) * dims**2  # q and the output, k and v
        attention = 2 * queries * keys * dims
        mlp = 2 * queries * dims * 4 * dims
        macs.append(embed + depth * (depthwise + linear + attention + mlp))
        in_channels = dims
    return macs


@pytest.mark.parametrize('name, size', [('cvt-13', (224, 224)), ('cvt-13', (255, 337)), ('cvt-21', (224, 224)),
                                        ('cvt-w24', (384, 384))])
def test_every_stage_is_counted_as_the_closed_form_says(name, size):
    with torch.device('meta'):
        model = get_flops.build_model(name)
    parts = get_flops.count_parts(model, size)
    counted = [parts[f'backbone.stage{i}'][1] for i in range(3)]
    assert counted == closed_form(CvT.arch_zoo[name], size)
    if (name, size) in PUBLISHED:
        assert parts['total'][1] == pytest.approx(PUBLISHED[name, size], rel=0.01)


def test_the_model_index_holds_what_is_counted():
    models = yaml.safe_load((ROOT / 'model-index.yml').read_text())['Models']
    for entry in models:
        metadata, arch = entry['Metadata'], CvT.arch_zoo[entry['Metadata']['Architecture']]
        with torch.device('meta'):
            model = ImageClassifier(dict(type='cvt_dense.CvT', arch=metadata['Architecture'], out_type='cls_token'))
        assert metadata['Parameters'] == sum(p.numel() for p in model.parameters())
        for size, listed in metadata['GMACs'].items():
            size = tuple(map(int, size.split('x')))
            head = 0 if size == (800, 1280) else 1000 * arch['embed_dims'][-1]
            assert listed == round((sum(closed_form(arch, size)) + head) / 1e9, 2)


@pytest.mark.slow
@pytest.mark.parametrize('config, parts', [
    ('maskrcnn_cvt13_coco', ['neck', 'rpn_head', 'roi_head']), ('semfpn_cvt13_ade20k', ['neck', 'decode_head'])])
def test_a_detector_and_a_segmentor(config, parts):
    output = run_tool('get_flops', f'configs/{config}.py', '--size', '64x96')
    macs = {cells[0]: float(cells[2]) for cells in map(str.split, output.splitlines())
            if len(cells) == 3 and cells[1][0].isdigit()}
    expected = [number / 1e9 for number in closed_form(CvT.arch_zoo['cvt-13'], (64, 96))]
    assert [macs[f'backbone.stage{i}'] for i in range(3)] == pytest.approx(expected, abs=1e-3)
    assert all(macs[part] > 0 for part in parts) and macs.pop('total') == pytest.approx(sum(macs.values()), abs=0.01)
