"""The harness that tests of the tool share."""

from pathlib import Path

import pytest

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.testing.clock import ManualClock
from tests.harness.ctl import ToolHarness


@pytest.fixture
def harness(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> ToolHarness:
    clock = ManualClock()
    return ToolHarness(tmp_path, capsys, clock, MemoryDatastore(clock=clock))
