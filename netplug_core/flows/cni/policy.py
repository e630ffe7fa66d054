"""What an ADD does about policy: it holds the pod's start back until policy is programmed.

``add`` imports this module only where the configuration asks for it. No lock is held while it waits, and no turn of a
queue: what is waited for is the work of others.
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

__all__ = ["LOOK_EVERY_S", "hold_back"]

LOOK_EVERY_S = 0.5
"""How often an ADD looks whether its attachment is still there, and at a file where the kernel reports no changes."""

_LONGEST_HOLD_BACK_S = 10.0**9  # a number in JSON may be larger than any clock


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
    with world.host.watch_folder(folder) as changes:
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
