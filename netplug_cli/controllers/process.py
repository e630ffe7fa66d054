"""The process ``netplug-controllers``: its command line, and what it says of itself over HTTP."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from netplug_cli.controllers.nodes import CONFIGURATION_CHANGED
from netplug_cli.http_server import METRICS_TYPE, Page, Pages, PageServer
from netplug_cli.loopback import CannotListen, listen_to_this_machine, port_argument
from netplug_cli.runtime.controllers import Runtime
from netplug_core.errors import Unavailable
from netplug_core.installation.controllers import CONTROLLERS_PORT
from netplug_core.log import Log
from netplug_core.reconcile.controller import Controller, Plan
from netplug_core.reconcile.kubecontrollers import RunningControllers
from netplug_core.resources.fields import Switch

if TYPE_CHECKING:
    from netplug_cli.controllers.metrics import ControllersMetrics, Election

__all__ = ["ControllersArguments", "MetricsPort", "controllers_pages", "parse_arguments"]


# --- arguments --------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ControllersArguments:
    """``health_port`` is one of 127.0.0.1."""

    health_port: int


def parse_arguments(arguments: Sequence[str]) -> ControllersArguments:
    """The arguments; a mistake ends the process with status 2."""
    parser = argparse.ArgumentParser(
        prog="netplug-controllers",
        description="Keep the records of the cluster in order: nodes, host endpoints, addresses in use no more.",
    )
    parser.add_argument(
        "--health-port",
        type=port_argument,
        default=CONTROLLERS_PORT,
        metavar="N",
        help="serve /livez, /readyz and /metrics at this port of 127.0.0.1 (default: %(default)s)",
    )
    return ControllersArguments(health_port=parser.parse_args(arguments).health_port)


# --- pages ------------------------------------------------------------------------------------------------------------


def controllers_pages(
    runtime: Runtime,
    election: Election,
    metrics: ControllersMetrics,
    find_unready: Callable[[], str],
    find_running: Callable[[], RunningControllers | None],
) -> Pages:
    """The pages by their paths. ``find_unready`` says what of the datastore is not known yet; empty: nothing."""

    def probe(find_problem: Callable[[], str]) -> Page:
        running = find_running()
        is_off = running is not None and running.spec.health_checks is Switch.DISABLED
        return _page_of("" if is_off else find_problem())

    def show_metrics() -> Page:
        running = find_running()
        if running is not None and not running.spec.metrics_port:
            return Page(body=b"prometheusMetricsPort is 0: there are no metrics\n", status=HTTPStatus.NOT_FOUND)
        return Page(body=metrics.render(), media_type=METRICS_TYPE)

    return {
        "/livez": lambda: probe(lambda: _find_dead(runtime)),
        "/readyz": lambda: probe(
            lambda: _find_dead(runtime) or _find_unforeseen(runtime) or election.problem or find_unready()
        ),
        "/metrics": show_metrics,
    }


@define(kw_only=True, eq=False)
class MetricsPort:
    """Shows the metrics at a port of their own too, while the settings name another one than the default."""

    find_running: Callable[[], RunningControllers | None]
    render: Callable[[], bytes]
    log: Log
    _server: PageServer | None = field(default=None, init=False)
    _port: int = field(default=0, init=False)

    def controller(self) -> Controller[int, int]:
        """What listens at another port when the settings change."""
        return Controller(
            name="metrics port",
            observe=lambda _deadline: self._wanted(),
            plan=lambda port: Plan(actions=() if port == self._port else (port,)),
            act=lambda port, _deadline: self._listen(port),
            failure="the metrics are not shown at prometheusMetricsPort",
            inputs=frozenset((CONFIGURATION_CHANGED,)),
        )

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.stop()
        self._server, self._port = None, 0

    def _wanted(self) -> int:
        running = self.find_running()
        port = 0 if running is None else running.spec.metrics_port
        return 0 if port == CONTROLLERS_PORT else port

    def _listen(self, port: int) -> None:
        self.close()
        if not port:
            return
        try:
            listening = listen_to_this_machine(port)
        except CannotListen as error:
            raise Unavailable("prometheusMetricsPort", str(error)) from error
        pages = {"/metrics": lambda: Page(body=self.render(), media_type=METRICS_TYPE)}
        self._server, self._port = PageServer(listening, pages, self.log), port
        self._server.start()


def _find_dead(runtime: Runtime) -> str:
    """Why the process has to be started again; empty if its threads run and move."""
    if not runtime.are_alive:
        return "a thread has ended"
    return next((f"the controller {health.name} is stuck" for health in runtime.healths if health.is_stuck), "")


def _find_unforeseen(runtime: Runtime) -> str:
    problems = (problem for health in runtime.healths for problem in health.problems)
    return next((f"{problem.message}: {problem.cause}" for problem in problems if problem.trace), "")


def _page_of(problem: str) -> Page:
    if problem:
        return Page(body=f"{problem}\n".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
    return Page(body=b"ok\n")
