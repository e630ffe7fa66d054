"""The flag ``-t``: whether what a configuration names answers. Installers ask before they write the configuration."""

from __future__ import annotations

from netplug_core.clock import Deadline
from netplug_core.errors import NetplugError
from netplug_core.flows.cni.call import node_of
from netplug_core.flows.world import CNIWorld
from netplug_core.netconf.model import NetConf
from netplug_core.resources.clusterinformation import READINESS_GATE

__all__ = ["PROBE_S", "require_connection"]

PROBE_S = 2.0
"""The most time that the datastore may take to answer, and then the API server."""


def require_connection(world: CNIWorld, netconf: NetConf) -> None:
    """Return if the datastore answers and is ready, and, if there is access to an API server, that one answers.

    Raises:
        NetplugError: one of them does not answer or refuses the credentials, or pod networking is locked.
    """
    snapshot = world.datastore.read([READINESS_GATE.query], deadline=Deadline.after(world.clock, PROBE_S))
    problem = READINESS_GATE.check(snapshot)
    if isinstance(problem, NetplugError):
        raise problem
    if world.open_orchestrator is not None and not netconf.datastore.is_kubernetes:
        node = netconf.datastore.kubernetes.node_name or node_of(world, netconf)
        with world.open_orchestrator() as orchestrator:
            orchestrator.find_node(node, deadline=Deadline.after(world.clock, PROBE_S))
