"""What an ADD does about policy: it closes the node for pods before the first one, and holds a pod's start back.

``add`` and ``status`` import this module only where the configuration asks for it.

**The guard** is the table of policy without any endpoint: no pod passes anything until the node process has programmed
its policy. So pods that start before that process after a boot are closed, and not open. An ADD makes it before its
link; where pods run without a table, it would cut their connections, and is left to the node process.

**Holding back** means that the ADD answers when the policy of its pod is programmed. No lock is held meanwhile, and no
turn of a queue: what is waited for is the work of others.
"""

from __future__ import annotations

from netplug_core.addressing import Address
from netplug_core.clock import Deadline
from netplug_core.dataplane.protocol import KernelError
from netplug_core.flows.cni.call import AttachmentCall
from netplug_core.flows.world import CNIWorld
from netplug_core.log import Level
from netplug_core.workload.endpoint import has_endpoint
from netplug_core.workload.status import BOOT_ID_FILE, EndpointStatus, find_difference, status_file_of

__all__ = ["LOOK_EVERY_S", "close_node", "find_guard_problem", "hold_back"]

LOOK_EVERY_S = 0.5
"""How often an ADD looks whether its attachment is still there, and at a file where the kernel reports no changes."""

_LONGEST_HOLD_BACK_S = 10.0**9  # a number in JSON may be larger than any clock


# --- the guard --------------------------------------------------------------------------------------------------------


def close_node(world: CNIWorld, call: AttachmentCall) -> None:
    """Make the guard if the kernel has no table of policy, and no pod is there whose connections it would cut.

    Raises:
        KernelError: it cannot be made; nothing is changed.
    """
    guard = world.open_guard()
    if guard.has_table():
        return
    if guard.has_workload_links():
        # The table may have been made, and the first link after it, between the two looks.
        if not guard.has_table():
            text = "policy is not enforced: pods run on this node without its table, so no guard is made"
            world.log(Level.WARNING, text, **call.fields)
        return
    from netplug_core.dataplane.filter import guard_table  # all rules of policy: needed once a boot

    guard.create(guard_table())
    world.log(Level.INFO, "no pod passes anything until its policy is programmed", **call.fields)


def find_guard_problem(world: CNIWorld) -> str:
    """Why an ADD could not make the guard that it needs now; empty if it could, or if it needs none."""
    guard = world.open_guard()
    try:
        is_needed = not guard.has_table() and not guard.has_workload_links()
    except KernelError as error:
        return str(error)
    return guard.find_problem() if is_needed else ""


# --- holding back -----------------------------------------------------------------------------------------------------


def hold_back(world: CNIWorld, call: AttachmentCall, addresses: tuple[Address, ...], *, since: float) -> bool:
    """Return when policy is programmed for the attachment, or the configured time is up, which is a warning.

    ``since`` is when the attachment was committed (monotonic seconds). False: the attachment was deleted meanwhile.

    Nothing is waited for without an endpoint, which policy is programmed for, nor for a container that is no pod's.
    """
    workload, seconds = call.workload, min(call.netconf.policy_setup_timeout_s, _LONGEST_HOLD_BACK_S)
    if not workload.is_pod or not has_endpoint(workload, world.datastore.description.endpoints):
        return True
    folder = call.netconf.endpoint_status_dir
    path = f"{folder}/{status_file_of(workload)}"
    boot_id = (world.host.find_text(BOOT_ID_FILE) or "").strip()
    expected = EndpointStatus.expected_by(workload, addresses, boot_id=boot_id)
    deadline = Deadline(world.clock, since + seconds)
    has_waited = False
    with world.while_waiting(), world.host.watch_folder(folder) as changes:
        while reason := _find_obstacle(world, path, expected):
            if not _is_attached(world, call):
                return False
            if deadline.has_passed:
                text = "policy is not programmed in time: the pod starts all the same"
                world.log(Level.WARNING, text, **call.fields, path=path, cause=reason, waited=f"{seconds:g} s")
                return True
            if not has_waited:
                world.log(Level.INFO, "waiting for policy", **call.fields, path=path, cause=reason)
                has_waited = True
            changes.wait(deadline.capped(LOOK_EVERY_S).remaining_s)
    world.log(Level.INFO, "policy is programmed", **call.fields)
    return True


def _find_obstacle(world: CNIWorld, path: str, expected: EndpointStatus) -> str:
    """Why a status file does not end the wait; empty if it does."""
    try:
        text = world.host.find_text(path)
    except (OSError, ValueError) as error:  # ValueError: no file can have that path
        return str(error)
    return "there is no such file" if text is None else find_difference(text, expected)


def _is_attached(world: CNIWorld, call: AttachmentCall) -> bool:
    """Whether the host has the attachment's end, which a DEL removes first; also if the kernel would not say."""
    try:
        return world.dataplane.has_host_end(call.link)
    except KernelError:
        return True
