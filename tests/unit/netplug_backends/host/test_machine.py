"""This machine: its clock and name, small files, random uids. ``test_locks`` has its locks."""

import time
import uuid
from pathlib import Path

import pytest

from netplug_backends.host.machine import HostMachine, SystemClock
from netplug_core.clock import Clock
from netplug_core.flows.world import Host

MACHINE: Host = HostMachine()
CLOCK: Clock = SystemClock()


def test_the_clock_is_the_machines_clock() -> None:
    before = time.time_ns()
    assert before <= CLOCK.now_ns() <= time.time_ns()
    start = CLOCK.monotonic()
    CLOCK.sleep(0)
    assert CLOCK.monotonic() >= start


def test_the_host_name_is_the_kernels() -> None:
    assert MACHINE.host_name() == Path("/proc/sys/kernel/hostname").read_text().strip()


def test_a_small_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "nodename").write_bytes("nöde\n".encode() + b"\xff")
    assert MACHINE.find_text(str(tmp_path / "nodename")) == "nöde\n\ufffd"


def test_a_missing_file_is_none(tmp_path: Path) -> None:
    assert MACHINE.find_text(str(tmp_path / "nothing" / "here")) is None


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        MACHINE.find_text(str(tmp_path))


def test_identities_are_random_uuids() -> None:
    uids = {MACHINE.new_uid() for _ in range(100)}
    assert len(uids) == 100
    for uid in uids:
        parsed = uuid.UUID(uid)
        assert (str(parsed), parsed.version, parsed.variant) == (uid, 4, uuid.RFC_4122)
