"""What the operator says of itself over HTTP: whether it lives, whether it is ready, and its metrics."""

from __future__ import annotations

from http import HTTPStatus

from netplug_cli.http_server import Page, Pages
from netplug_cli.operator.election import Election
from netplug_cli.operator.metrics import METRICS_TYPE, OperatorMetrics
from netplug_cli.operator.process import OperatorLoop

__all__ = ["add_values", "find_dead", "operator_pages"]


def find_dead(loop: OperatorLoop, election: Election) -> str:
    """Why the process has to be started again; empty if its threads run and move."""
    return loop.find_problem() or ("" if election.is_alive else "the election has ended")


def operator_pages(loop: OperatorLoop, election: Election, metrics: OperatorMetrics) -> Pages:
    """The pages by their paths."""
    return {
        "/livez": lambda: _page_of(find_dead(loop, election)),
        "/readyz": lambda: _page_of(find_dead(loop, election) or election.problem or loop.find_unready()),
        "/metrics": lambda: Page(body=metrics.render(), media_type=METRICS_TYPE),
    }


def add_values(metrics: OperatorMetrics, loop: OperatorLoop, election: Election) -> None:
    """Add what is read when the metrics are."""
    text = "1 if this process has the Lease, and acts; otherwise 0."
    metrics.add_value("netplug_operator_leader", text, lambda: float(election.is_leading))
    text = "The conditions of the Installation: 1 if it is true, otherwise 0. Only of the process that acts."
    metrics.add_values("netplug_operator_condition", text, "type", lambda: loop.conditions)


def _page_of(problem: str) -> Page:
    if not problem:
        return Page(body=b"ok\n")
    return Page(body=f"{problem}\n".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
