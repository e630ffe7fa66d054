"""How many Python functions a served call runs; a program that a test starts on a node.

It answers calls as the node process does, in one thread, and prints what the cheapest ADD and the cheapest DEL of some
rounds took: a count is the same on a slow machine, and work that came back for each call shows in it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from types import FrameType

from netplug_backends.host.machine import SystemClock
from netplug_cli.logs import Logger
from netplug_cli.node.metrics import NodeMetrics
from netplug_cli.node.stores import OpenDatastores
from netplug_cli.wiring.cni import open_log_file
from netplug_cli.wiring.node_process import NodeCalls
from netplug_core import __version__
from netplug_core.cni.wire import WireReply, WireRequest
from tests.harness.waiting import wait_until
from tests.harness.walk import Walk, is_step, modules_of, recorded

__all__ = ["count_calls"]

_ROUNDS = 5


def count_calls(work: Callable[[], WireReply]) -> int:
    """The Python functions that some work calls in this thread.

    Raises:
        AssertionError: the work fails.
    """
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        reply = work()
    finally:
        sys.setprofile(None)
    assert reply.exit_status == 0, reply
    return count


def main(conf: str, variables: Mapping[str, str]) -> dict[str, int]:
    """The counts of an ADD and a DEL of one attachment, when everything that is kept between calls is there.

    Beside them, of one more ADD: ``modules``, how many it enters; ``crossings``, how often it goes from room to room.
    """
    clock, metrics = SystemClock(), NodeMetrics(__version__)
    datastores = OpenDatastores(clock, metrics.note_datastore_call)
    namespace = os.open(variables["CNI_NETNS"], os.O_RDONLY)
    with closing(NodeCalls(Logger("node", open_log_file), datastores)) as calls:
        answer = metrics.measured(calls.answer)

        def request_of(command: str) -> WireRequest:
            environ = {**variables, "CNI_COMMAND": command}
            return WireRequest(program="netplug", environ=environ, stdin=conf.encode())

        def count(command: str) -> int:
            return count_calls(lambda: answer(request_of(command), namespace))

        for command in ("ADD", "DEL") * 2:
            count(command)
        wait_until(lambda: bool(datastores.caches.ages()), "the process follows what people change")
        counts = [(count("ADD"), count("DEL")) for _ in range(_ROUNDS)]
        walk = Walk(is_step=is_step, is_callback=lambda _name: False, backends=("netplug_backends.",))
        with recorded(walk):
            answer(request_of("ADD"), namespace)
    found = dict(zip(("ADD", "DEL"), map(min, zip(*counts, strict=True)), strict=True))
    return found | {"modules": len(modules_of(walk)), "crossings": walk.crossings}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))))
