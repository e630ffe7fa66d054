"""A failure is a line of the log when it comes, and when it is another one."""

from netplug_cli.node.failures import RepeatedFailure
from tests.harness.node_server import Lines


def test_a_failure_is_logged_until_it_is_another_one_or_comes_back() -> None:
    log = Lines()
    failure = RepeatedFailure("the work is not done", log)
    for cause in ("away", "away", "locked"):
        failure.report(OSError(cause))
    failure.clear()
    failure.report(OSError("locked"))
    assert log.texts == [
        "WARNING the work is not done cause=away",
        "WARNING the work is not done cause=locked",
        "WARNING the work is not done cause=locked",
    ]
