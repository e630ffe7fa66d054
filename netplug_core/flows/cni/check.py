"""CHECK: whether the attachment is still what ADD reported (CNI specification, "CHECK").

The interface, its addresses and routes are compared with the plan of that result, its addresses with those that the
handle holds and with those of the endpoint.
"""

from __future__ import annotations

from attrs import evolve, frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.clock import Deadline
from netplug_core.cni.request import CNIRequest
from netplug_core.cni.result import CNIResult, find_previous_result
from netplug_core.dataplane.plan import next_hop, plan
from netplug_core.dataplane.protocol import Difference, Link
from netplug_core.errors import ConfigurationError, DataplaneError, ErrorCode
from netplug_core.flows.cni.call import AttachmentCall, node_of, open_call, requested_of, wanted_of, workload_of
from netplug_core.flows.world import CNIWorld
from netplug_core.ipam.allocation.request import AssignedAddress, Assignment
from netplug_core.netconf.model import NetConf
from netplug_core.records import Get
from netplug_core.resources.workloadendpoint import WorkloadEndpoint
from netplug_core.workload import (
    EndpointOptions,
    NewObjectMetadata,
    WorkloadIdentity,
    build_endpoint,
    has_endpoint,
)

__all__ = ["CHECK_S", "AddressesNotHeld", "AttachmentDiffers", "EndpointDiffers", "check", "check_addresses"]

CHECK_S = 10.0
"""The most time that the datastore may take to answer."""


@frozen
class AttachmentDiffers(DataplaneError, error_code=ErrorCode.ATTACHMENT_DIFFERS):
    """Interface, addresses, routes or settings differ from what ADD made (code 130)."""

    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        return "the attachment is not what ADD made: " + "; ".join(str(difference) for difference in self.differences)


@frozen
class AddressesNotHeld(DataplaneError, error_code=ErrorCode.ADDRESSES_NOT_HELD):
    """The handle of an attachment no longer holds its addresses (code 131)."""

    handle: str
    missing: tuple[str, ...]

    def __str__(self) -> str:
        return f"handle {self.handle} does not hold {', '.join(self.missing)}"


@frozen
class EndpointDiffers(DataplaneError, error_code=ErrorCode.ENDPOINT_DIFFERS):
    """The stored endpoint is missing, or belongs to another container or other addresses (code 132)."""

    endpoint: str
    problem: str

    def __str__(self) -> str:
        return f"{self.endpoint} {self.problem}"


def check(world: CNIWorld, request: CNIRequest, netconf: NetConf) -> None:
    """Return if the attachment is as ADD left it.

    Raises:
        ConfigurationError: the runtime handed over no prevResult.
        AttachmentDiffers, AddressesNotHeld, EndpointDiffers: it is not.
        NetplugError: another plugin that keeps the addresses says so, or failed.
    """
    call = open_call(request, netconf, node_of(world, netconf))
    previous = require_previous_result(request)
    assignment = _assignment(previous, call)
    stored = _find_endpoint(world, call)
    options = EndpointOptions(mac=_mac(previous, call), allowed_source_prefixes=_allowed_sources(call, stored))
    recorded = build_endpoint(call.workload, assignment, NewObjectMetadata(uid="", creation_time_ns=0), options)
    differences = world.dataplane.verify(plan(recorded, _link(previous, call)), deadline=_deadline(world))
    if differences:
        raise AttachmentDiffers(differences)
    _require_held(world, call, assignment)
    if _has_endpoint(world, call):
        _require_endpoint(call.workload, stored, assignment)
    world.ipam.forward(deadline=_deadline(world))


def check_addresses(world: CNIWorld, request: CNIRequest, netconf: NetConf) -> None:
    """CHECK of ``netplug-ipam``: of each wanted family, the handle holds an address of the result.

    One address is enough: the main plugin and other plugins of the chain may have added their own.
    """
    workload = workload_of(request, node_of(world, netconf))
    reported = tuple(ip.address for ip in require_previous_result(request).ips)
    found = world.ipam.held(workload.handle, deadline=_deadline(world))
    held = () if found is None else found.addresses
    missing: list[str] = []
    for wanted in wanted_of(netconf, requested_of(request, netconf, has_interface=False)):
        candidates = [address for address in reported if address.family is wanted.family]
        if not any(address in held for address in candidates):
            missing += [str(address) for address in candidates] or [f"an {wanted.family} address of the result"]
    if missing:
        raise AddressesNotHeld(workload.handle, tuple(missing))


def require_previous_result(request: CNIRequest) -> CNIResult:
    """The result that ADD reported.

    Raises:
        ConfigurationError: it is missing.
    """
    previous = find_previous_result(request)
    if previous is None:
        raise ConfigurationError("network configuration.prevResult", None, "CHECK needs the result of ADD")
    return previous


def _deadline(world: CNIWorld) -> Deadline:
    return Deadline.after(world.clock, CHECK_S)


def _assignment(previous: CNIResult, call: AttachmentCall) -> Assignment:
    """The addresses of our interface in the result."""
    own_indexes = {
        index
        for index, interface in enumerate(previous.interfaces)
        if interface.name == call.link.name and interface.sandbox
    }
    found = tuple(
        AssignedAddress(address=ip.address, prefix=ip.address.host_prefix)
        for ip in previous.ips
        if ip.interface is None or ip.interface in own_indexes
    )
    if not found:
        raise ConfigurationError(
            "network configuration.prevResult", f"no address of {call.link.name}", "the result of ADD is expected"
        )
    return Assignment(addresses=found)


def _link(previous: CNIResult, call: AttachmentCall) -> Link:
    mtu = next((item.mtu for item in previous.interfaces if item.name == call.link.name and item.sandbox), 0)
    routes = call.link.routes
    if call.netconf.ipam.is_delegated:  # only the result has what the plugin named
        gateways = {next_hop(family) for family in Family}
        routes = tuple(route.destination for route in previous.routes if route.gateway in gateways)
        if set(routes) == {Prefix(ip.address.family, 0, 0) for ip in previous.ips}:
            routes = None  # the default routes, which have to be there
    return evolve(call.link, mtu=mtu, routes=routes)


def _mac(previous: CNIResult, call: AttachmentCall) -> str:
    """The MAC of our interface in the result: the pod's annotation may have changed since."""
    return next((item.mac.lower() for item in previous.interfaces if item.name == call.link.name and item.sandbox), "")


def _find_endpoint(world: CNIWorld, call: AttachmentCall) -> WorkloadEndpoint | None:
    """The stored endpoint, where the store has one for this interface."""
    if not _has_endpoint(world, call):
        return None
    key = call.workload.endpoint_key
    found = world.datastore.read([Get(key)], deadline=_deadline(world)).find(key)
    return None if found is None else found.value


def _allowed_sources(call: AttachmentCall, stored: WorkloadEndpoint | None) -> tuple[str, ...]:
    """The prefixes that the stored endpoint may send from; none where the feature is off."""
    if stored is None or not call.netconf.feature_control.allowed_source_prefixes:
        return ()
    return stored.spec.allowed_source_prefixes


def _require_held(world: CNIWorld, call: AttachmentCall, assignment: Assignment) -> None:
    """Require that the handle holds the addresses.

    Addresses that no IPAM assigned are in the endpoint only, and then the handle holds none at all.
    """
    found = world.ipam.held(call.workload.handle, deadline=_deadline(world))
    if found is None:
        return  # the plugin that keeps them is asked at the end
    held = found.addresses
    if not held and call.netconf.feature_control.ip_addrs_no_ipam and _has_endpoint(world, call):
        return
    missing = tuple(str(assigned.address) for assigned in assignment.addresses if assigned.address not in held)
    if missing:
        raise AddressesNotHeld(call.workload.handle, missing)


def _has_endpoint(world: CNIWorld, call: AttachmentCall) -> bool:
    return has_endpoint(call.workload, world.datastore.description.endpoints)


def _require_endpoint(workload: WorkloadIdentity, stored: WorkloadEndpoint | None, assignment: Assignment) -> None:
    """Require that the endpoint exists, is this container's, and has the addresses."""
    key = workload.endpoint_key
    if stored is None:
        raise EndpointDiffers(str(key), "does not exist")
    if stored.spec.container_id != workload.container_id:
        raise EndpointDiffers(str(key), f"belongs to container {stored.spec.container_id}")
    missing = [str(item.address) for item in assignment.addresses if item.address not in stored.spec.addresses]
    if missing:
        raise EndpointDiffers(str(key), f"does not have {', '.join(missing)}")
