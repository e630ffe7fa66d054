"""The locks of a call: how long it waits, when it goes on without one, and what it says."""

import pytest

from netplug_core.locks import HOST_LOCK_S, AttachmentBusy, CallLocks
from netplug_core.log import Level
from netplug_core.names import attachment_lock_offset
from tests.harness.cni_node import LOCK_FILE, CNINodeHarness

ATTACHMENT = ("net1", "c1", "eth0")
OFFSET = attachment_lock_offset(*ATTACHMENT)
DENIED = PermissionError(13, "Permission denied", LOCK_FILE)


def locks_of(harness: CNINodeHarness) -> CallLocks:
    return harness.world.locks


def test_the_hosts_lock_is_held_until_the_block_ends(harness: CNINodeHarness) -> None:
    with locks_of(harness).host_lock():
        assert harness.host.locks.held == {(LOCK_FILE, 0)}
    assert (harness.host.locks.held, harness.log.lines) == (frozenset(), [])


def test_the_hosts_lock_may_be_released_before(harness: CNINodeHarness) -> None:
    with locks_of(harness).host_lock() as lock:
        lock.release()
        assert harness.host.locks.held == frozenset()
        with locks_of(harness).host_lock():
            assert harness.host.locks.held == {(LOCK_FILE, 0)}


def test_a_holder_of_the_hosts_lock_that_hangs_stops_nobody(harness: CNINodeHarness) -> None:
    harness.host.locks.try_lock(LOCK_FILE, 0)
    with locks_of(harness).host_lock():
        assert harness.clock.monotonic() == HOST_LOCK_S
    fields = {"path": LOCK_FILE, "cause": "another call has held it for 2 s"}
    assert harness.log.lines == [(Level.WARNING, "going on without the host lock", fields)]
    assert harness.host.locks.held == {(LOCK_FILE, 0)}, "the holder's"


def test_check_59_a_hosts_lock_that_cannot_be_taken_stops_nobody(harness: CNINodeHarness) -> None:
    harness.host.locks.errors[LOCK_FILE] = DENIED
    with locks_of(harness).host_lock():
        assert harness.clock.monotonic() == 0
    assert harness.log.lines == [
        (Level.ERROR, "going on without the host lock", {"path": LOCK_FILE, "cause": str(DENIED)})
    ]


def test_an_attachment_has_a_lock_of_its_own(harness: CNINodeHarness) -> None:
    locks = locks_of(harness)
    with locks.attachment_lock(*ATTACHMENT, wait_s=1) as is_exclusive:
        assert is_exclusive
        assert harness.host.locks.held == {(LOCK_FILE, OFFSET)}
        for other in (("net1", "c1", "net1"), ("net1", "c2", "eth0"), ("net2", "c1", "eth0")):
            with locks.attachment_lock(*other, wait_s=1), locks.host_lock():
                pass
    assert (harness.host.locks.held, harness.log.lines) == (frozenset(), [])


def test_a_call_of_a_busy_attachment_is_for_later(harness: CNINodeHarness) -> None:
    harness.host.locks.try_lock(LOCK_FILE, OFFSET)
    with pytest.raises(AttachmentBusy) as refusal, locks_of(harness).attachment_lock(*ATTACHMENT, wait_s=10):
        raise AssertionError("it was taken")
    assert refusal.value.code == 11
    assert harness.clock.monotonic() == 10
    assert str(refusal.value) == (
        "another call is at work on the interface 'eth0' of container 'c1' on network 'net1' and has not ended within"
        " 10 s; repeat this call when it has"
    )


def test_a_machine_that_locks_nothing_says_so(harness: CNINodeHarness) -> None:
    harness.host.locks.errors[LOCK_FILE] = DENIED
    with locks_of(harness).attachment_lock(*ATTACHMENT, wait_s=10) as is_exclusive:
        assert not is_exclusive
    assert harness.log.lines == [
        (Level.ERROR, "going on without the attachment lock", {"path": LOCK_FILE, "cause": str(DENIED)})
    ]


def test_a_lock_is_free_after_a_failure(harness: CNINodeHarness) -> None:
    locks = locks_of(harness)
    with pytest.raises(ZeroDivisionError), locks.attachment_lock(*ATTACHMENT, wait_s=10), locks.host_lock():
        raise ZeroDivisionError
    assert harness.host.locks.held == frozenset()
