"""model-index.yml: mim can read it, and it has the parameters and multiplications that are counted and published."""
import functools
from pathlib import Path

import pytest
import torch
import yaml
from load_tool import ROOT
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from cvt_dense.pretraining import ImageClassifier

INDEX = yaml.safe_load((ROOT / 'model-index.yml').read_text())
MODELS = {model['Name']: model for model in INDEX['Models']}
PUBLISHED = {('cvt-13', '224x224'): 4.53, ('cvt-21', '224x224'): 7.13, ('cvt-w24', '384x384'): 193.2}


@functools.cache
def counted(arch: str, size: str) -> tuple[int, float]:
    """Return the parameters of a classifier, and the GMACs for a size of images."""
    with torch.device('meta'):
        model = ImageClassifier(dict(type='cvt_dense.CvT', arch=arch, out_type='cls_token')).eval()
        image = torch.rand(1, 3, *map(int, size.split('x')))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # it counts products of matrices
        (model.backbone if size == '800x1280' else model)(image)
    return sum(p.numel() for p in model.parameters()), counter.get_total_flops() / 2e9


@pytest.mark.parametrize('name', MODELS)
def test_the_model_index_holds_what_is_counted(name):
    metadata = MODELS[name]['Metadata']
    for size, listed in metadata['GMACs'].items():
        parameters, macs = counted(metadata['Architecture'], size)
        assert (metadata['Parameters'], listed) == (parameters, round(macs, 2))
        assert macs == pytest.approx(PUBLISHED.get((metadata['Architecture'], size), macs), rel=0.01)


def test_is_what_mim_reads():
    """mim finds a model by its name in lower case, joins ``Weights`` and ``Config`` unless they are texts."""
    assert set(INDEX) == {'Collections', 'Models'} and len(MODELS) == len(INDEX['Models'])
    collections = {collection['Name'] for collection in INDEX['Collections']}
    for name, model in MODELS.items():
        assert name == name.lower() == Path(model['Config']).stem and (ROOT / model['Config']).is_file()
        assert model['In Collection'] in collections
        assert isinstance(model['Weights'], str) and isinstance(model['Metadata'], dict)
        assert all(set(result) == {'Task', 'Dataset', 'Source', 'Metrics'} for result in model['Results'])
    assert all((ROOT / collection['Code']).is_file() for collection in INDEX['Collections'])
