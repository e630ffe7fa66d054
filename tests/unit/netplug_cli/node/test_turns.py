"""Calls of a process one after another, and what they do when the one before them does not end."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Lock, Thread

import pytest
from attrs import define

from netplug_cli.node import turns
from netplug_cli.node.turns import in_turn
from netplug_core.locks import HeldLock
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until


@define
class HostLock:
    """The lock of a host, which counts."""

    taken: int = 0
    released: int = 0

    @contextmanager
    def take(self) -> Iterator[HeldLock]:
        self.taken += 1
        yield self

    def release(self) -> None:
        self.released += 1


def test_a_call_waits_until_the_one_before_it_ends() -> None:
    turn, host, may_end, begun, inside, most = Lock(), HostLock(), Event(), [], set(), []

    def call(number: int) -> None:
        with in_turn(turn, host.take):
            begun.append(number)
            inside.add(number)
            assert may_end.wait(EMERGENCY_STOP_S)
            most.append(len(inside))
            inside.remove(number)

    threads = [Thread(target=call, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: begun != [], "one call has begun")
    assert (len(begun), host.taken) == (1, 1)
    may_end.set()
    for thread in threads:
        thread.join(EMERGENCY_STOP_S)
    assert sorted(begun) == [0, 1, 2]
    assert most == [1, 1, 1]
    assert not turn.locked()


def test_a_turn_that_is_released_early_is_the_next_ones() -> None:
    turn, host = Lock(), HostLock()
    with in_turn(turn, host.take) as held:
        held.release()
        assert (turn.locked(), host.released) == (False, 1)
        with in_turn(turn, host.take):
            held.release()
            assert turn.locked(), "it releases only its own turn"
        assert not turn.locked()
    assert not turn.locked()


def test_a_call_whose_turn_does_not_come_goes_on_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", 0.01)
    turn, host = Lock(), HostLock()
    with turn:
        with in_turn(turn, host.take):
            assert host.taken == 1
        assert turn.locked(), "the turn of another call stays"


def test_an_error_ends_the_turn() -> None:
    turn = Lock()

    def refused() -> AbstractContextManager[HeldLock]:
        raise OSError

    with pytest.raises(OSError), in_turn(turn, refused):  # noqa: PT011  the error of the lock itself
        raise AssertionError
    assert not turn.locked()
