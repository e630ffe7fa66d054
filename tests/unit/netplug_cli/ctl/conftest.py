"""The bench that tests of the tool share."""

from pathlib import Path

import pytest

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.testing.clock import ManualClock
from tests.unit.netplug_cli.ctl.bench import Bench


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    clock = ManualClock()
    return Bench(tmp_path, capsys, clock, MemoryDatastore(clock=clock))
