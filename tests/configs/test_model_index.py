"""model-index.yml: mim can read it. Its figures are compared in tests/models/test_flops.py."""
from pathlib import Path

import yaml
from load_tool import ROOT

INDEX = yaml.safe_load((ROOT / 'model-index.yml').read_text())
MODELS = {model['Name']: model for model in INDEX['Models']}


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
