"""DEL: removes the interface, then deletes the endpoint and releases the addresses in one commit.

If the datastore is away, a release record on the node keeps what is left to do, and the DEL succeeds.

An address must not return to its pool while the old interface still answers on it. The interface is this attachment's
if the alias of its host end says so: CNI_NETNS may be empty, gone, or another container's by now. Whatever is gone
already is success: interface, namespace, pool and node may be missing. An ADD of the same attachment is kept away
meanwhile.
"""

from __future__ import annotations

from netplug_core.cni.request import CNIRequest
from netplug_core.errors import NamespaceError, quote
from netplug_core.flows.cni.call import (
    AttachmentCall,
    attachment_lock,
    node_of_delete,
    open_call,
    release,
    remove_interface,
    workload_of,
)
from netplug_core.flows.cni.release_records import (
    POSTPONED,
    forget_own,
    postpone,
    release_request_of,
    replay_after_delete,
)
from netplug_core.flows.world import CNIWorld
from netplug_core.ipam.allocation.request import Released
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.locks import DEL_LOCK_S
from netplug_core.log import Level
from netplug_core.netconf.model import NetConf
from netplug_core.workload import endpoint_delete

__all__ = ["delete", "release_addresses"]


def delete(world: CNIWorld, request: CNIRequest, netconf: NetConf) -> None:
    """Detach the container; a repeated call succeeds.

    Raises:
        DataplaneError: the interface cannot be removed; its addresses stay held.
        Unavailable, AttachmentBusy: something is left to do, and the release record cannot be written.
        NetplugError: another plugin that keeps the addresses failed; the runtime repeats the DEL.
    """
    call = open_call(request, netconf, node_of_delete(world, netconf))
    if request.netns and world.dataplane.is_own_namespace(request.netns) and not request.has_netns_override:
        raise NamespaceError(
            f"CNI_NETNS {quote(request.netns)} is the plugin's own network namespace; nothing is removed"
        )
    try:
        released = _detach(world, call)
    except POSTPONED as error:
        postpone(world, netconf, call.workload, error, has_interface=True)
        return
    addresses = ",".join(str(address) for address in released.addresses)
    world.log(Level.INFO, "container detached", **call.fields, addresses=addresses)
    replay_after_delete(world, netconf)


def _detach(world: CNIWorld, call: AttachmentCall) -> Released:
    """Remove the interface, then release the addresses, while no other call works on the attachment if possible."""
    endpoint = endpoint_delete(call.workload, world.datastore.description.endpoints)
    wanted = release_request_of(call.workload)
    with attachment_lock(world, call.workload, wait_s=DEL_LOCK_S) as is_exclusive:
        remove_interface(world, call.link)
        released = release(world, wanted, endpoint)
        if is_exclusive:
            forget_own(world, call.netconf, call.workload, has_interface=True)
        else:
            remove_interface(world, call.link)  # an ADD may have made it after its addresses were released
    return released


def release_addresses(world: CNIWorld, request: CNIRequest, netconf: NetConf) -> None:
    """DEL of ``netplug-ipam``: release whatever the attachment holds; nothing held is success."""
    workload = workload_of(request, node_of_delete(world, netconf))
    try:
        with attachment_lock(world, workload, wait_s=DEL_LOCK_S) as is_exclusive:
            release(world, release_request_of(workload), NO_ENDPOINT)
            if is_exclusive:
                forget_own(world, netconf, workload, has_interface=False)
    except POSTPONED as error:
        postpone(world, netconf, workload, error, has_interface=False)
        return
    replay_after_delete(world, netconf)
