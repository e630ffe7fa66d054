"""Calls of a process one after another, and what they do when the one before them does not end."""

from threading import Event, Lock, Thread

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_cli.node.turns import in_turn
from netplug_core.clock import Deadline
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until


def soon(seconds: float = EMERGENCY_STOP_S) -> Deadline:
    return Deadline.after(SystemClock(), seconds)


def test_a_call_waits_until_the_one_before_it_ends() -> None:
    turn, may_end, begun, inside, most = Lock(), Event(), [], set(), []

    def call(number: int) -> None:
        with in_turn(turn, soon()):
            begun.append(number)
            inside.add(number)
            assert may_end.wait(EMERGENCY_STOP_S)
            most.append(len(inside))
            inside.remove(number)

    threads = [Thread(target=call, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: begun != [], "one call has begun")
    assert len(begun) == 1
    may_end.set()
    for thread in threads:
        thread.join(EMERGENCY_STOP_S)
    assert sorted(begun) == [0, 1, 2]
    assert most == [1, 1, 1]
    assert not turn.locked()


def test_a_turn_that_is_released_early_is_the_next_ones() -> None:
    turn = Lock()
    with in_turn(turn, soon()) as held:
        held.release()
        assert not turn.locked()
        with in_turn(turn, soon()):
            held.release()
            assert turn.locked(), "it releases only its own turn"
        assert not turn.locked()
    assert not turn.locked()


def test_a_call_whose_turn_does_not_come_goes_on_without_it_while_there_is_time() -> None:
    turn, deadline = Lock(), soon(4)
    with turn:
        with in_turn(turn, deadline) as held:
            assert not deadline.has_passed
            held.release()
            assert turn.locked()
        assert turn.locked(), "the turn of another call stays"


def test_a_call_without_time_does_not_wait() -> None:
    turn = Lock()
    with turn, in_turn(turn, soon(0)):
        assert turn.locked()


def test_an_error_ends_the_turn() -> None:
    turn = Lock()
    with pytest.raises(OSError), in_turn(turn, soon()):  # noqa: PT011  whatever a call raises
        raise OSError
    assert not turn.locked()
