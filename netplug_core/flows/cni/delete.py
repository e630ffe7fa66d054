"""DEL: interface first, then one commit that removes the endpoint and frees the addresses.

An address may not return to its pool while the old interface still answers on it. Everything already gone is success;
pool, node object and namespace may be missing.
"""

from __future__ import annotations

from netplug_core.clock import Deadline
from netplug_core.cni.request import CNIRequest
from netplug_core.errors import NamespaceError
from netplug_core.flows.cni.assignment import release
from netplug_core.flows.cni.call import open_call
from netplug_core.flows.world import CNIWorld
from netplug_core.ipam.allocation.request import ReleaseRequest
from netplug_core.log import Level
from netplug_core.netconf.model import NetConf
from netplug_core.workload.endpoint import endpoint_delete

__all__ = ["REMOVE_S", "delete"]

REMOVE_S = 20.0
"""The longest the removal of an interface may take; some kernels hang on it."""


def delete(world: CNIWorld, request: CNIRequest, netconf: NetConf) -> None:
    """Detach the container; again and again if the runtime says so.

    Raises:
        DataplaneError: the interface cannot be removed; its addresses stay held.
        Unavailable: the interface is gone, and the store is away or locked; the runtime repeats DEL.
    """
    call = open_call(world, request, netconf)
    if request.netns:
        if world.dataplane.is_own_namespace(request.netns) and not request.has_netns_override:
            raise NamespaceError(
                f"CNI_NETNS {request.netns!r} is the plugin's own network namespace; nothing is removed"
            )
        world.dataplane.remove(call.link, deadline=Deadline.after(world.clock, REMOVE_S))
    freed = release(
        world,
        ReleaseRequest(handle=call.workload.handle),
        endpoint_delete(call.workload),
        lock=netconf.ipam_lock_file,
    )
    texts = ",".join(str(address) for address in freed.addresses)
    world.log(Level.INFO, "container detached", **call.fields, addresses=texts)
