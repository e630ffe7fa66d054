"""Plugins that the host of a node process lacks: what the log says, and when the orchestrator gets a report."""

from __future__ import annotations

from attrs import define, field

from netplug_cli.node.tasks import PLUGINS_EVERY_S, HelperPlugins
from netplug_core.clock import Deadline
from netplug_core.cni.plugins import LOOPBACK, REPORT_AGAIN_S, MissingPlugin, NeededPlugin
from netplug_core.errors import Unavailable
from netplug_core.testing.clock import ManualClock
from tests.harness.controllers import DrivenControllers
from tests.harness.node_server import Lines

LOST = (MissingPlugin(NeededPlugin("portmap", "/etc/cni/net.d/10.conflist"), ("/opt/cni/bin",)),)
BOTH = (MissingPlugin(LOOPBACK, ("/opt/cni/bin",)), *LOST)
WARNING = "WARNING each start of a pod on this node fails, and gets an address first: a plugin is missing"


@define
class Host:
    """A host and an orchestrator that takes reports."""

    missing: tuple[MissingPlugin, ...] = ()
    error: Unavailable | None = None
    reports: list[tuple[MissingPlugin, ...]] = field(factory=list)

    def report(self, missing: tuple[MissingPlugin, ...], _deadline: Deadline) -> None:
        if self.error is not None:
            raise self.error
        self.reports.append(missing)


def running(host: Host, *, has_orchestrator: bool = True) -> tuple[HelperPlugins, DrivenControllers, Lines]:
    clock, log = ManualClock(), Lines()
    plugins = HelperPlugins(look=lambda: host.missing, report=host.report if has_orchestrator else None, clock=clock)
    return plugins, DrivenControllers((plugins.controller(),), clock=clock, log=log), log


def test_a_host_that_has_all_of_them_says_nothing_and_reports_nothing() -> None:
    host = Host()
    plugins, driven, log = running(host)
    driven.pass_time(3 * REPORT_AGAIN_S)
    assert (plugins.missing, log.texts, host.reports) == ((), [], [])


def test_a_change_is_one_warning_and_one_report_and_so_is_the_end() -> None:
    host = Host(missing=LOST)
    plugins, driven, log = running(host)
    driven.pass_time(3 * PLUGINS_EVERY_S)
    assert plugins.missing == LOST
    assert log.texts == [f"{WARNING} cause={LOST[0]}"]
    assert host.reports == [LOST]
    host.missing = BOTH
    driven.pass_time(3 * PLUGINS_EVERY_S)
    assert log.texts[1:] == [f"{WARNING} cause={BOTH[0]}"]
    assert host.reports == [LOST, BOTH]
    host.missing = ()
    driven.pass_time(3 * PLUGINS_EVERY_S)
    assert log.texts[2:] == ["INFO no plugin is missing any more"]
    assert list(plugins.missing) == []
    assert host.reports == [LOST, BOTH, ()]


def test_what_stays_missing_is_reported_again_because_events_are_forgotten() -> None:
    host = Host(missing=LOST)
    _plugins, driven, log = running(host)
    driven.pass_time(2 * REPORT_AGAIN_S + 2 * PLUGINS_EVERY_S)
    assert host.reports == [LOST] * 3
    assert len(log.texts) == 1


def test_a_report_that_fails_is_tried_again_and_what_is_missing_is_known_all_the_same() -> None:
    host = Host(missing=LOST, error=Unavailable("the API server", "no answer"))
    plugins, driven, log = running(host)
    driven.pass_time(2 * PLUGINS_EVERY_S)
    assert plugins.missing == LOST
    assert log.texts == [
        f"{WARNING} cause={LOST[0]}",
        "WARNING missing plugins cannot be reported to the orchestrator cause=the API server: no answer",
    ]
    host.error = None
    driven.pass_time(60 + PLUGINS_EVERY_S)
    assert host.reports == [LOST]


def test_without_an_orchestrator_the_log_says_it() -> None:
    host = Host(missing=LOST)
    _plugins, driven, log = running(host, has_orchestrator=False)
    driven.pass_time(REPORT_AGAIN_S + PLUGINS_EVERY_S)
    assert (len(log.texts), host.reports) == (1, [])
