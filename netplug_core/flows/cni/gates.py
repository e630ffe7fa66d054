"""What an ADD waits for beside its own work: readiness gates before it, and the set-up of policy after it.

``add`` and ``status`` call it, and hold no lock meanwhile. No other command waits for either.
"""

from __future__ import annotations

from netplug_core.addressing import Address
from netplug_core.clock import Deadline, Pace
from netplug_core.flows.cni.call import AttachmentCall
from netplug_core.flows.world import CNIWorld
from netplug_core.log import Level
from netplug_core.workload.endpoint import has_endpoint
from netplug_core.workload.gates import (
    GATES_S,
    PROBE_INTERVAL_S,
    PROBE_S,
    EndpointStatus,
    Gate,
    GateNotReady,
    ProbeResult,
    find_difference,
    gates_of,
    status_file_of,
)

__all__ = ["hold_back", "require_ready_gates", "wait_for_gates"]

_LONGEST_HOLD_BACK_S = 10.0**9  # a number in JSON may be larger than any clock
_FIRST_LOOK_S, _LONGEST_PAUSE_S = 0.005, 0.1


def wait_for_gates(world: CNIWorld, urls: tuple[str, ...]) -> None:
    """Return when every readiness gate has been ready, one after the other in their order.

    Raises:
        GateNotReady: one was not, until the deadline that they share.
    """
    deadline = Deadline.after(world.clock, GATES_S)
    for gate in gates_of(urls):
        _wait_for_gate(world, gate, deadline)


def _wait_for_gate(world: CNIWorld, gate: Gate, deadline: Deadline) -> None:
    result = ProbeResult(problem="it was not asked, because the time was up")
    while not deadline.has_passed:
        next_probe = deadline.capped(PROBE_INTERVAL_S)
        result = world.host.probe(gate.url, deadline=deadline.capped(PROBE_S))
        if result.is_ready:
            return
        left = f"{deadline.remaining_s:.1f} s"
        world.log(Level.ERROR, "waiting for a readiness gate", gate=gate, answer=result, left=left)
        world.clock.sleep(next_probe.remaining_s)
    raise GateNotReady(str(gate), f"it is not ready within {GATES_S:g} s; its last answer: {result}")


def require_ready_gates(world: CNIWorld, urls: tuple[str, ...]) -> None:
    """Return if every readiness gate is ready now.

    Raises:
        GateNotReady: one is not.
    """
    deadline = Deadline.after(world.clock, PROBE_S)
    for gate in gates_of(urls):
        result = world.host.probe(gate.url, deadline=deadline)
        if not result.is_ready:
            raise GateNotReady(str(gate), f"it is not ready; its answer: {result}")


def hold_back(world: CNIWorld, call: AttachmentCall, addresses: tuple[Address, ...]) -> None:
    """Return when policy is programmed for the attachment, or the configured time is up, which is a warning.

    Nothing is waited for without an endpoint, which policy is programmed for, nor for a container that is no pod's.
    """
    workload, seconds = call.workload, min(call.netconf.policy_setup_timeout_s, _LONGEST_HOLD_BACK_S)
    if not workload.is_pod or not has_endpoint(workload, world.datastore.description.endpoints):
        return
    path = f"{call.netconf.endpoint_status_dir}/{status_file_of(workload)}"
    expected = EndpointStatus.of(workload, addresses)
    deadline = Deadline.after(world.clock, seconds)
    pace = Pace(
        clock=world.clock,
        deadline=deadline,
        chance=lambda: 1.0,  # nothing collides: the file is only read
        first_s=_FIRST_LOOK_S,
        longest_s=_LONGEST_PAUSE_S,
    )
    attempt = 0
    while reason := _find_obstacle(world, path, expected):
        if deadline.has_passed:
            text = "policy is not programmed in time: the pod starts without it"
            world.log(Level.WARNING, text, **call.fields, path=path, cause=reason, waited=f"{seconds:g} s")
            return
        if not attempt:
            world.log(Level.INFO, "waiting for policy", **call.fields, path=path, cause=reason)
        attempt += 1
        pace.wait(attempt)
    world.log(Level.INFO, "policy is programmed", **call.fields)


def _find_obstacle(world: CNIWorld, path: str, expected: EndpointStatus) -> str:
    """Why a status file does not end the wait; empty if it does."""
    try:
        text = world.host.find_text(path)
    except (OSError, ValueError) as error:  # ValueError: no file can have that path
        return str(error)
    return "there is no such file" if text is None else find_difference(text, expected)
