"""Parameters and multiplications of the published models: model-index.yml has what is counted and what is published."""
import pytest
import torch
import yaml
from load_tool import ROOT
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from cvt_dense.pretraining import ImageClassifier

MODELS = yaml.safe_load((ROOT / 'model-index.yml').read_text())['Models']
PUBLISHED = {('cvt-13', '224x224'): 4.53, ('cvt-21', '224x224'): 7.13, ('cvt-w24', '384x384'): 193.2}


@pytest.mark.parametrize('metadata', [entry['Metadata'] for entry in MODELS], ids=[entry['Name'] for entry in MODELS])
def test_the_model_index_holds_what_is_counted(metadata):
    arch = metadata['Architecture']
    with torch.device('meta'):
        model = ImageClassifier(dict(type='cvt_dense.CvT', arch=arch, out_type='cls_token')).eval()
    assert metadata['Parameters'] == sum(p.numel() for p in model.parameters())
    for size, listed in metadata['GMACs'].items():
        network = model.backbone if size == '800x1280' else model
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # it counts products of matrices
            network(torch.rand(1, 3, *map(int, size.split('x')), device='meta'))
        assert listed == round(counter.get_total_flops() / 2e9, 2)
        assert listed == pytest.approx(PUBLISHED.get((arch, size), listed), rel=0.01)
