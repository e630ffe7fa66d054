"""When the packet filter is programmed, and what the log says of it."""

from collections.abc import Iterator

from attrs import define, field

from netplug_cli.node.tasks import CHECK_EVERY_S, packet_filter_controller
from netplug_core.dataplane.protocol import KernelError
from netplug_core.testing.clock import ManualClock
from tests.harness.controllers import DrivenControllers
from tests.harness.node_server import Lines

NOT_PROGRAMMED = "WARNING the packet filter is not programmed: pods with a mapped port reach the node's 127.0.0.1"
MISSING, PRESENT = True, False
REFUSED = KernelError("reading the packet filter", "Operation not permitted")


@define
class ScriptedFilter:
    """Answers of a kernel, one for each look: whether the rule was missing, or an error."""

    answers: Iterator[bool | Exception]
    clock: ManualClock = field(factory=ManualClock)
    looked_at: list[float] = field(factory=list)

    def program(self) -> bool:
        self.looked_at.append(self.clock.monotonic())
        answer = next(self.answers, False)
        if isinstance(answer, Exception):
            raise answer
        return answer


def looks_of(*answers: bool | Exception, seconds: float = 1000.0) -> tuple[list[str], list[float]]:
    """The lines about a kernel that answers so, and then finds the rule as it should be; and when it was asked."""
    log, scripted = Lines(), ScriptedFilter(iter(answers))
    driven = DrivenControllers([packet_filter_controller(scripted, log=log)], clock=scripted.clock, log=log)
    driven.pass_time(seconds)
    return log.texts, scripted.looked_at


def log_of(*answers: bool | Exception) -> list[str]:
    return looks_of(*answers)[0]


def test_it_is_programmed_at_the_start() -> None:
    assert log_of(MISSING, PRESENT, PRESENT) == ["INFO the packet filter is programmed"]


def test_what_an_earlier_process_left_is_nothing_new() -> None:
    assert log_of(PRESENT, PRESENT) == []


def test_it_is_programmed_again_if_others_remove_it() -> None:
    assert log_of(PRESENT, MISSING, PRESENT) == [
        "WARNING the packet filter is programmed again: another program has removed it"
    ]


def test_a_failure_is_a_line_until_it_is_another_one() -> None:
    busy = KernelError("programming the packet filter", "Device or resource busy")
    assert log_of(REFUSED, REFUSED, busy, REFUSED, MISSING, REFUSED) == [
        f"{NOT_PROGRAMMED} cause={REFUSED}",
        f"{NOT_PROGRAMMED} cause={busy}",
        f"{NOT_PROGRAMMED} cause={REFUSED}",
        "INFO the packet filter is programmed",
        f"{NOT_PROGRAMMED} cause={REFUSED}",
    ]


def test_it_is_looked_at_every_few_seconds_and_sooner_after_a_failure() -> None:
    assert looks_of(PRESENT, seconds=2 * CHECK_EVERY_S)[1] == [0, CHECK_EVERY_S, 2 * CHECK_EVERY_S]
    _lines, looks = looks_of(*[REFUSED] * 100, seconds=100)
    assert looks[:6] == [0, 0.5, 1.5, 3.5, 7.5, 7.5 + CHECK_EVERY_S / 2]
