import logging

import pytest
from mmengine.logging import MMLogger


@pytest.fixture
def report(caplog):
    """What was reported: the part of each line before the source."""
    logger = MMLogger.get_current_instance()
    logger.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, logger=logger.name)
    yield lambda: [r.message.split('; from')[0] for r in caplog.records if 'tensors loaded' in r.message]
    logger.removeHandler(caplog.handler)
