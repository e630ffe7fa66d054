"""Events that cannot be written: a line of the log, once."""

from netplug_cli.operator.world import Reporter
from netplug_core.errors import Unavailable
from netplug_core.operator.status import TAKE_OVER
from netplug_core.testing.clock import ManualClock
from tests.harness.installations import manifest
from tests.harness.node_server import Lines
from tests.harness.operator_cluster import MemoryCluster


def test_a_refusal_is_one_line_until_one_is_written() -> None:
    cluster, log = MemoryCluster(error=Unavailable("events", "a right is missing")), Lines()
    reporter = Reporter(cluster=cluster, identity="operator-1", clock=ManualClock(), log=log)
    installation = manifest({})
    reporter.report(installation, [TAKE_OVER, TAKE_OVER])
    line = "WARNING an Event cannot be written cause=events: a right is missing reason=OperatorActs"
    assert log.texts == [line]
    cluster.error = None
    reporter.report(installation, [TAKE_OVER])
    cluster.error = Unavailable("events", "a right is missing")
    reporter.report(installation, [TAKE_OVER])
    assert log.texts == [line, line]
    (event,) = cluster.events.values()
    assert event["reportingInstance"] == "operator-1"
