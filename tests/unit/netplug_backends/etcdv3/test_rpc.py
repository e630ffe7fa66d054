"""The channel to one member, apart from its calls, which the integration tests make."""

from threading import Event
from typing import NoReturn

from netplug_backends.etcdv3.rpc import MemberConnection
from netplug_backends.etcdv3.tls import TlsMaterial
from netplug_core.settings.model import parse_endpoints
from netplug_core.testing.clock import ManualClock


def test_a_channel_that_does_not_close_keeps_nobody_waiting() -> None:
    """The close of gRPC waits for ever if Ctrl-C interrupted a call while it began."""
    asked = Event()

    class StuckChannel:
        def close(self) -> NoReturn:
            asked.set()
            Event().wait()
            raise AssertionError("nothing sets the event")

    (endpoint,) = parse_endpoints(["http://127.0.0.1:1"])
    connection = MemberConnection(endpoint, TlsMaterial(), clock=ManualClock())
    connection._channel.close()  # noqa: SLF001  of gRPC
    connection._channel = StuckChannel()  # noqa: SLF001
    connection.close()
    assert asked.is_set()
