"""The multiplications of the networks against a closed form and the published figures."""
import pytest
import torch
import yaml
from load_tool import ROOT
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from cvt_dense.models import CvT
from cvt_dense.pretraining import ImageClassifier

PUBLISHED = {('cvt-13', (224, 224)): 4.53e9, ('cvt-21', (224, 224)): 7.13e9, ('cvt-w24', (384, 384)): 193.2e9}


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
def test_every_stage_multiplies_as_the_closed_form_says(name, size):
    with torch.device('meta'):
        network, image = CvT(name, out_type='cls_token').eval(), torch.rand(1, 3, *size)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # it counts products of matrices
        network(image)
    flops = counter.get_flop_counts()
    assert [sum(flops[f'CvT.stage{i}'].values()) // 2 for i in range(3)] == closed_form(CvT.arch_zoo[name], size)
    if (name, size) in PUBLISHED:
        assert counter.get_total_flops() // 2 == pytest.approx(PUBLISHED[name, size], rel=0.01)


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
