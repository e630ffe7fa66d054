"""The harness that tests of these flows share."""

import pytest

from netplug_backends.memory.datastore import MemoryMode
from tests.harness.resources import ResourceHarness


@pytest.fixture
def harness() -> ResourceHarness:
    return ResourceHarness.with_mode(MemoryMode.ATOMIC)
