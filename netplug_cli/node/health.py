"""Whether the node process lives, and whether it is ready: each as the list of what is wrong."""

from __future__ import annotations

from attrs import frozen

from netplug_cli.node.datastores import DatastoreState, OpenDatastores
from netplug_cli.node.server import Server
from netplug_cli.node.workers import Workers
from netplug_cli.runtime.controllers import Runtime
from netplug_core.clock import Clock

__all__ = ["STUCK_CALL_S", "STUCK_SERVER_S", "Health"]

STUCK_SERVER_S = 30.0
"""The thread that reads requests waits for nothing as long as that."""

STUCK_CALL_S = 300.0
"""No call takes as long as that; its client has waited for 120 s."""


@frozen(kw_only=True)
class Health:
    """Judges the parts of a node process. A process that is ending is not ready, and lives."""

    server: Server
    workers: Workers
    tasks: Runtime
    datastores: OpenDatastores
    clock: Clock

    def find_dead(self) -> tuple[str, ...]:
        """Why the process has to be started again; nothing if its threads run and the queue moves."""
        if not self.server.is_serving:
            return ()
        now, problems = self.clock.monotonic(), []
        if not (self.workers.are_alive and self.tasks.are_alive):
            problems.append("a thread has ended")
        busy_since = self.server.busy_since
        if busy_since is not None and now - busy_since > STUCK_SERVER_S:
            problems.append(f"no request has been read for {now - busy_since:.0f} s")
        began_at = self.workers.began_at
        if len(began_at) == self.workers.count and now - max(began_at) > STUCK_CALL_S:
            problems.append(f"no worker has ended its call for {now - max(began_at):.0f} s")
        return tuple(problems)

    def find_unready(self) -> tuple[str, ...]:
        """Why calls should not come yet, or no more; nothing if it listens and the open datastores answer.

        Datastores that have not been asked lately are asked. A task that is stuck is named too: calls are served
        without it, so that it is no reason to start the process again.
        """
        problems = () if self.server.is_serving else ("the process does not serve calls",)
        silent = (state for state in self.datastores.check() if not state.does_answer)
        stuck = (f"{each.name} is stuck for {each.busy_s:.0f} s" for each in self.tasks.healths if each.is_stuck)
        return (*problems, *self.find_dead(), *stuck, *map(_describe, silent))


def _describe(state: DatastoreState) -> str:
    # Not the whole error: who asks over the network need not be root.
    return f"datastore {state.name} at {state.location} does not answer: {state.failure or 'it was not asked in time'}"
