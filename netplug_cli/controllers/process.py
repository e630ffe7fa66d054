"""The process ``netplug-controllers``: its command line, and what it says of itself over HTTP."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from attrs import frozen

from netplug_cli.http_server import METRICS_TYPE, Page, Pages
from netplug_cli.loopback import port_argument
from netplug_cli.runtime.controllers import Runtime
from netplug_core.installation.controllers import CONTROLLERS_NAME, CONTROLLERS_PORT, LEASE_NAMESPACE
from netplug_core.operator.state import ObjectRef

if TYPE_CHECKING:
    from netplug_cli.controllers.metrics import ControllersMetrics, Election

__all__ = [
    "CONTROLLERS_LEASE", "ControllersArguments",
    "controllers_pages", "parse_arguments",
]  # fmt: skip

CONTROLLERS_LEASE: Final = ObjectRef("coordination.k8s.io/v1", "Lease", CONTROLLERS_NAME, LEASE_NAMESPACE)
"""Whose holder acts, one for the whole cluster."""


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
    runtime: Runtime, election: Election, metrics: ControllersMetrics, find_unready: Callable[[], str]
) -> Pages:
    """The pages by their paths. ``find_unready`` says what of the datastore is not known yet; empty: nothing."""
    return {
        "/livez": lambda: _page_of(_find_dead(runtime)),
        "/readyz": lambda: _page_of(
            _find_dead(runtime) or _find_unforeseen(runtime) or election.problem or find_unready()
        ),
        "/metrics": lambda: Page(body=metrics.render(), media_type=METRICS_TYPE),
    }


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
