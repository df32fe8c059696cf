"""model-index.yml: mim can read it, and it agrees with the configs, the documents and the weights' code."""
import re
from pathlib import Path

import yaml
from load_tool import ROOT

from cvt_dense.weights import HUB_FILES

INDEX = yaml.safe_load((ROOT / 'model-index.yml').read_text())
MODELS = {model['Name']: model for model in INDEX['Models']}


def test_is_what_mim_reads():
    """mim finds a model by its name in lower case, joins ``Weights`` and ``Config`` unless they are texts."""
    assert set(INDEX) == {'Collections', 'Models'} and len(MODELS) == len(INDEX['Models']) == 7
    collections = {collection['Name'] for collection in INDEX['Collections']}
    for name, model in MODELS.items():
        assert name == name.lower() == Path(model['Config']).stem and (ROOT / model['Config']).is_file()
        assert model['In Collection'] in collections
        assert isinstance(model['Weights'], str) and isinstance(model['Metadata'], dict)
        assert all(set(result) == {'Task', 'Dataset', 'Source', 'Metrics'} for result in model['Results'])
    assert all((ROOT / collection['Code']).is_file() for collection in INDEX['Collections'])


def test_every_repository_that_a_config_loads_is_listed():
    named = {name for path in (ROOT / 'configs').rglob('*.py')
             for name in re.findall(r"'(hf://.*?)'", path.read_text())}
    assert len(named) >= 4 and named <= {model['Hub'] for model in MODELS.values()}
    for model in MODELS.values():
        url, file = model['Weights'].rsplit('/', 1)
        assert url == model['Hub'].replace('hf://', 'https://huggingface.co/') + '/resolve/main' and file in HUB_FILES
