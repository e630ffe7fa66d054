"""When the packet filter is programmed, and what the log says of it."""

from collections.abc import Iterator
from threading import Semaphore

from attrs import define, field

from netplug_cli.node.filtering import packet_filter_task
from netplug_core.dataplane.protocol import KernelError
from tests.harness.node_server import Lines

NOT_PROGRAMMED = "WARNING the packet filter is not programmed: pods with a mapped port reach the node's 127.0.0.1"
MISSING, PRESENT = True, False
REFUSED = KernelError("reading the packet filter", "Operation not permitted")


@define
class ScriptedFilter:
    """Answers of a kernel, one for each look: whether the rule was missing, or an error."""

    answers: Iterator[bool | Exception]
    looks: Semaphore = field(factory=lambda: Semaphore(0))

    def program(self) -> bool:
        answer = next(self.answers, False)
        self.looks.release()
        if isinstance(answer, Exception):
            raise answer
        return answer


def log_of(*answers: bool | Exception) -> list[str]:
    """The lines about a kernel that answers so, and then finds the rule as it should be."""
    log, scripted = Lines(), ScriptedFilter(iter(answers))
    task = packet_filter_task(scripted, log=log, every_s=0.001)
    task.start()
    assert all(scripted.looks.acquire(timeout=60) for _ in range(len(answers) + 1))
    task.stop()
    return log.texts


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
