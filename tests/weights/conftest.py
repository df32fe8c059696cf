import huggingface_hub
import pytest
from mmengine.runner import CheckpointLoader

from cvt_dense.weights.files import SCHEME, load_from_cvt_dense, register_safe_loading


@pytest.fixture
def others_tool(monkeypatch):
    """MMEngine's loaders as in another project's tool, which has imported this package."""
    from mmengine.runner import checkpoint
    monkeypatch.setattr(CheckpointLoader, '_schemes', {SCHEME: load_from_cvt_dense, 'hf://': load_from_cvt_dense})
    CheckpointLoader.register_scheme('', checkpoint.load_from_local)
    CheckpointLoader.register_scheme(('http://', 'https://'), checkpoint.load_from_http)


@pytest.fixture
def our_tool(others_tool):
    """The loaders as this project's tools have them."""
    register_safe_loading()


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Put files into a cache as huggingface_hub lays it out, by revision: a file's name there and the file."""
    monkeypatch.setattr(huggingface_hub.constants, 'HF_HUB_CACHE', str(tmp_path / 'hub'))

    def publish(name, **revisions):
        repository = tmp_path / 'hub' / f'models--{name.replace("/", "--")}'
        for number, (revision, (file, source)) in zip('ab', revisions.items()):
            for path, content in ((f'snapshots/{number * 40}/{file}', source.read_bytes()),
                                  (f'refs/{revision}', (number * 40).encode())):
                (repository / path).parent.mkdir(parents=True, exist_ok=True)
                (repository / path).write_bytes(content)

    return publish
