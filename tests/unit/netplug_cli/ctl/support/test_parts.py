"""What becomes of a part whose reading fails."""

from collections.abc import Iterator

import pytest

from netplug_cli.ctl.commands.support import absent, failed, read_guarded
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.support import Part, TextPart
from netplug_core.testing.clock import ManualClock

TEXT = TextPart(path="a", text="x\n")


@pytest.mark.parametrize(
    "error, reason",
    [
        (ConfigurationError("where", "7", "a text"), str(ConfigurationError("where", "7", "a text"))),
        (FileNotFoundError(2, "No such file", "/f"), "/f: No such file"),
        (OSError("odd"), "odd"),
        (KeyError("k"), "internal error: KeyError: 'k'"),
    ],
)
def test_what_was_read_before_an_error_is_kept(error: Exception, reason: str) -> None:
    def read() -> Iterator[Part]:
        yield TEXT
        raise error

    deadline = Deadline.after(ManualClock(), 1)
    assert list(read_guarded("a", read, deadline)) == [TEXT, failed("a", reason)]


def test_nothing_is_read_when_the_time_is_over() -> None:
    clock = ManualClock()
    deadline = Deadline.after(clock, 1)
    clock.sleep(2)
    assert list(read_guarded("a", lambda: [TEXT], deadline)) == [failed("a", "not read: the time is over")]
    assert absent("a", "x") != failed("a", "x")


def test_errors_that_concern_the_other_parts_too_are_raised() -> None:
    def read() -> Iterator[Part]:
        yield TEXT
        raise Unavailable("store", "away")

    with pytest.raises(Unavailable):
        list(read_guarded("a", read, Deadline.after(ManualClock(), 1), passed_on=(Unavailable,)))
