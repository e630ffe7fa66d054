"""What an endpoint's status file says: for which container on this node policy is programmed, and since when. Pure.

The node process writes one file for each endpoint whose policy the kernel has acknowledged, with everything that was
known at that time. An ADD that holds its pod back waits for it. The file is named after the endpoint, which a restarted
pod of the same name has too; so the content says whose it is, and a reader takes no other container's, and none of an
earlier boot, whose packet filter is gone.
"""

from __future__ import annotations

import json
from functools import cache

from attrs import evolve, field, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.decoding.codecs import NONNEGATIVE_INTEGER, PREFIX, STRING, TIME
from netplug_core.decoding.tables import Decoder, ListOf, document_error, member
from netplug_core.errors import DecodeError, NetplugError, quote
from netplug_core.names import endpoint_status_file_name
from netplug_core.resources.workloadendpoint import WorkloadEndpoint
from netplug_core.workload.endpoint import WorkloadIdentity

__all__ = [
    "BOOT_ID_FILE", "EndpointStatus", "find_difference", "parse_status", "render_status", "status_file_name",
    "status_file_of",
]  # fmt: skip

BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
"""The file in which the kernel has the id of this boot."""

_VERSION = 1


@frozen(kw_only=True)
class EndpointStatus:
    """The content of a status file: whose interface it is for which policy is programmed.

    ``endpoint`` is the resource, ``namespace/name``. The nets are the addresses of the interface, as prefixes of full
    length. ``boot_id`` is the boot of the machine for which this holds; ``programmed_at_ns`` is for people.
    """

    version: int = field(default=_VERSION, metadata=member("version", NONNEGATIVE_INTEGER, is_always_written=True))
    container_id: str = field(default="", metadata=member("containerID", STRING))
    endpoint: str = field(default="", metadata=member("endpoint", STRING))
    host_interface: str = field(default="", metadata=member("ifaceName", STRING))
    mac: str = field(default="", metadata=member("mac", STRING))
    ipv4_nets: tuple[Prefix, ...] = field(default=(), metadata=member("ipv4Nets", ListOf(PREFIX)))
    ipv6_nets: tuple[Prefix, ...] = field(default=(), metadata=member("ipv6Nets", ListOf(PREFIX)))
    boot_id: str = field(default="", metadata=member("bootID", STRING))
    programmed_at_ns: int | None = field(default=None, metadata=member("programmedAt", TIME))

    @classmethod
    def of(cls, endpoint: WorkloadEndpoint, *, boot_id: str, programmed_at_ns: int | None = None) -> EndpointStatus:
        """The status of an endpoint, as it is stored."""
        metadata, spec = endpoint.metadata, endpoint.spec
        return cls(
            container_id=spec.container_id,
            endpoint=f"{metadata.namespace}/{metadata.name}",
            host_interface=spec.interface_name,
            mac=spec.mac,
            ipv4_nets=_nets(spec.addresses, Family.IPV4),
            ipv6_nets=_nets(spec.addresses, Family.IPV6),
            boot_id=boot_id,
            programmed_at_ns=programmed_at_ns,
        )

    @classmethod
    def expected_by(cls, workload: WorkloadIdentity, addresses: tuple[Address, ...], *, boot_id: str) -> EndpointStatus:
        """What an ADD waits for: its own container on its own interface with those addresses, in this boot."""
        return cls(
            container_id=workload.container_id,
            endpoint=f"{workload.namespace}/{workload.endpoint_key.name}",
            host_interface=workload.host_interface,
            ipv4_nets=_nets(addresses, Family.IPV4),
            ipv6_nets=_nets(addresses, Family.IPV6),
            boot_id=boot_id,
        )

    def says_the_same(self, other: EndpointStatus) -> bool:
        """Whether two say the same, whenever it was that each became true."""
        return self == evolve(other, programmed_at_ns=self.programmed_at_ns)


def _nets(addresses: tuple[Address, ...], family: Family) -> tuple[Prefix, ...]:
    return tuple([Prefix(family, each.value, family.width) for each in addresses if each.family is family])


# --- names -----------------------------------------------------------------------------------------------------------


def status_file_name(endpoint: WorkloadEndpoint) -> str:
    """The name of the status file of an endpoint, as it is stored."""
    spec = endpoint.spec
    owner = f"{endpoint.metadata.namespace}/{spec.pod or spec.container_id}"
    return endpoint_status_file_name(spec.orchestrator, owner, spec.endpoint)


def status_file_of(workload: WorkloadIdentity) -> str:
    """The name of the status file of a workload's endpoint; the same as that of the endpoint itself."""
    owner = f"{workload.namespace}/{workload.pod if workload.is_pod else workload.container_id}"
    return endpoint_status_file_name(workload.orchestrator, owner, workload.interface)


# --- text ------------------------------------------------------------------------------------------------------------


def render_status(status: EndpointStatus) -> str:
    """The text of a status file; empty members are left out."""
    return json.dumps(_decoder().encode(status)) + "\n"


def parse_status(text: str) -> EndpointStatus:
    """What a status file says; members of a later release are passed over.

    Raises:
        NetplugError: it is not whole, or a member is not what it has to be.
    """
    try:
        return _decoder().decode(json.loads(text), EndpointStatus, "the file")
    except (ValueError, RecursionError):
        raise DecodeError("the file", "it is not whole, or not JSON") from None


def find_difference(text: str, expected: EndpointStatus) -> str:
    """Why a status file does not say that policy is programmed for what an ADD expects; empty if it does.

    The file of an earlier container of the pod, of an earlier attachment of the container, or of an earlier boot may
    still be there. Addresses are compared if the file has any.
    """
    try:
        found = parse_status(text)
    except NetplugError as error:
        return str(error)
    if found.host_interface != expected.host_interface:
        return f"it names the interface {quote(found.host_interface)}, and not {expected.host_interface}"
    if found.container_id != expected.container_id:
        return f"it names the container {quote(found.container_id)}"
    if found.boot_id != expected.boot_id:
        return "it was written before this machine was started again"
    nets = (*found.ipv4_nets, *found.ipv6_nets)
    missing = [net for net in (*expected.ipv4_nets, *expected.ipv6_nets) if nets and net not in nets]
    return f"it does not have the address {missing[0]}" if missing else ""


@cache
def _decoder() -> Decoder:
    return Decoder(document_error)
