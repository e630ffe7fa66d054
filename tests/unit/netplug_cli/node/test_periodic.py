"""Work that is done again and again, whatever becomes of it, until it is stopped."""

from threading import Event, Semaphore

from netplug_cli.node.periodic import PeriodicTask
from tests.harness.node_server import Lines


def test_it_is_done_at_once_and_again_until_it_is_stopped() -> None:
    done = Semaphore(0)
    task = PeriodicTask("the work", done.release, every_s=0.001, log=Lines())
    task.start()
    assert all(done.acquire(timeout=60) for _ in range(3))
    task.stop()
    while done.acquire(blocking=False):
        pass
    assert not done.acquire(timeout=0.05)


def test_the_first_time_comes_without_a_pause_and_a_pause_ends_with_the_task() -> None:
    done = Event()
    task = PeriodicTask("the work", done.set, every_s=1e6, log=Lines())
    task.start()
    assert done.wait(60)
    assert task.is_alive
    task.stop()
    assert (task.is_stopping, task.is_alive) == (True, False)


def test_an_error_is_logged_and_not_the_end() -> None:
    times, log = Semaphore(0), Lines()

    def fail() -> None:
        times.release()
        raise ZeroDivisionError

    task = PeriodicTask("the work", fail, every_s=0.001, log=log)
    task.start()
    assert all(times.acquire(timeout=60) for _ in range(2))
    task.stop()
    assert log.texts[0].startswith("ERROR the work: an unexpected error\nTraceback ")
