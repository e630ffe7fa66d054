"""Notifications of systemd: where they go, and that nothing depends on them."""

import os
from pathlib import Path

import pytest

from netplug_cli.node.process import ServiceManager
from tests.harness.node_server import Lines
from tests.harness.service_managers import open_notified


@pytest.mark.parametrize("form", ["{}/notify", "@{}/notify"])
def test_assignments_are_sent_together(tmp_path: Path, form: str) -> None:
    environ = {"NOTIFY_SOCKET": form.format(tmp_path), "WATCHDOG_USEC": "60000000", "OTHER": "stays"}
    with open_notified(environ["NOTIFY_SOCKET"]) as notified:
        manager = ServiceManager.find(environ, Lines())
        assert (manager.is_there, manager.watchdog_s) == (True, 60)
        manager.notify("READY=1", "STATUS=serves")
        assert notified.receive() == ["READY=1", "STATUS=serves"]
    assert environ == {"OTHER": "stays"}


@pytest.mark.parametrize(
    "more,watchdog_s",
    [
        ({}, None),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid())}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "²"}, None),
    ],
)
def test_a_watchdog_is_fed_if_this_process_is_asked_to(more: dict[str, str], watchdog_s: float | None) -> None:
    environ = {"NOTIFY_SOCKET": "/run/notify", **more}
    assert ServiceManager.find(environ, Lines()).watchdog_s == watchdog_s
    assert environ == {}


def test_without_a_service_manager_nothing_is_sent() -> None:
    log = Lines()
    manager = ServiceManager.find({"WATCHDOG_USEC": "500000"}, log)
    assert (manager.is_there, manager.watchdog_s) == (False, None)
    manager.notify("READY=1")
    assert log.texts == []


def test_a_service_manager_that_cannot_be_reached_is_logged_once(tmp_path: Path) -> None:
    log, address = Lines(), str(tmp_path / "notify")
    manager = ServiceManager(address, None, log)
    manager.notify("READY=1")
    manager.notify("STATUS=serves")
    assert log.texts == ["WARNING the service manager cannot be notified cause=No such file or directory"]
    with open_notified(address) as notified:
        manager.notify("STATUS=serves")
        assert notified.receive() == ["STATUS=serves"]
    manager.notify("STATUS=serves")
    assert log.texts[1:] == ["WARNING the service manager cannot be notified cause=Connection refused"]
