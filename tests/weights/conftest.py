import logging

import pytest
from mmengine.logging import MMLogger
from mmengine.runner import CheckpointLoader

from cvt_dense.weights import register_safe_loading


@pytest.fixture
def report(caplog):
    """What was reported: the part of each line before the source."""
    logger = MMLogger.get_current_instance()
    level = logger.level  # a runner of another test may have changed it
    logger.addHandler(caplog.handler)
    logger.setLevel(logging.INFO)  # caplog.set_level does not find MMEngine's loggers
    yield lambda: [r.message.split('; from')[0] for r in caplog.records if 'tensors loaded' in r.message]
    logger.removeHandler(caplog.handler)
    logger.setLevel(level)


@pytest.fixture
def others_tool(monkeypatch):
    """MMEngine's loaders as in a tool that never heard of this project."""
    from mmengine.runner import checkpoint
    monkeypatch.setattr(CheckpointLoader, '_schemes', {})
    CheckpointLoader.register_scheme('', checkpoint.load_from_local)
    CheckpointLoader.register_scheme(('http://', 'https://'), checkpoint.load_from_http)


@pytest.fixture
def our_tool(others_tool):
    """The loaders as this project's tools have them."""
    register_safe_loading()
