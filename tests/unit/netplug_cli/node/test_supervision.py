"""When a service manager is notified, and of what."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from netplug_cli.node.process import ServiceManager, Supervision
from netplug_core.testing.clock import RealClock
from tests.harness.node_server import Lines
from tests.harness.service_managers import Notified, open_notified
from tests.harness.waiting import wait_until


@contextmanager
def supervised(
    folder: Path, dead: list[str], *, watchdog_s: float | None = None, log: Lines | None = None
) -> Iterator[tuple[Supervision, Notified]]:
    """A process whose faults are those of a list."""
    with open_notified(f"{folder}/notify") as notified:
        log = log or Lines()
        supervision = Supervision(
            manager=ServiceManager(notified.address, watchdog_s, log),
            find_dead=lambda: tuple(dead),
            describe=lambda: "3 calls served",
            clock=RealClock(),
            log=log,
        )
        supervision.start()
        yield supervision, notified
        supervision.stop()


def test_it_is_ready_then_does_its_work_and_then_ends(tmp_path: Path) -> None:
    with supervised(tmp_path, []) as (supervision, notified):
        assert notified.receive() == ["READY=1"]
        assert notified.receive() == ["STATUS=3 calls served"]
        supervision.note_end()
        assert notified.receive() == ["STOPPING=1", "STATUS=ends the calls that have begun: 3 calls served"]


def test_the_watchdog_is_fed_also_while_it_ends_until_a_fault_is_found(tmp_path: Path) -> None:
    dead, log = list[str](), Lines()
    with supervised(tmp_path, dead, watchdog_s=0.002, log=log) as (supervision, notified):
        assert [notified.receive() for _ in range(3)] == [["READY=1"], *[["WATCHDOG=1", "STATUS=3 calls served"]] * 2]
        supervision.note_end()
        notified.receive_until("STOPPING=1")
        wait_until(lambda: notified.receive() == ["WATCHDOG=1"], "the status stays as it is")
    (tmp_path / "notify").unlink()
    with supervised(tmp_path, dead, watchdog_s=0.002, log=log) as (_supervision, notified):
        dead += ["a thread has ended", "and more"]
        notified.receive_until("STATUS=a thread has ended; and more")
        assert notified.receive() == ["STATUS=a thread has ended; and more"]
        dead.clear()
        assert notified.receive_until("WATCHDOG=1") == ["WATCHDOG=1", "STATUS=3 calls served"]
    text = "the process does not work; a watchdog starts it again"
    assert f"ERROR {text} cause=a thread has ended; and more" in log.texts


def test_without_a_service_manager_no_thread_is_started() -> None:
    log, asked = Lines(), list[str]()

    def find_dead() -> tuple[str, ...]:
        asked.append("whether it lives")
        return ()

    supervision = Supervision(
        manager=ServiceManager("", None, log), find_dead=find_dead, describe=str, clock=RealClock(), log=log
    )
    supervision.start()
    supervision.note_end()
    supervision.stop()
    assert (asked, log.texts) == ([], [])
