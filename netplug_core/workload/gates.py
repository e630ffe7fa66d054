"""What holds back the start of a pod: readiness gates before its ADD, and the set-up of its policy after it. Pure.

A readiness gate is a URL that has to answer. That policy is programmed is what the endpoint's status file
says, which the node process writes. ``flows.cni.pods`` polls both.
"""

from __future__ import annotations

import json
from functools import cache

from attrs import frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.decoding.codecs import PREFIX, STRING
from netplug_core.decoding.tables import Decoder, Field, ListOf, Table, document_error
from netplug_core.errors import REDACTED, NetplugError, Unavailable, quote
from netplug_core.names import endpoint_status_file_name
from netplug_core.workload.endpoint import WorkloadIdentity

__all__ = [
    "GATES_S", "PROBE_INTERVAL_S", "PROBE_S", "EndpointStatus", "Gate", "GateNotReady", "ProbeResult",
    "find_difference", "gates_of", "redact_url", "render_status", "status_file_of",
]  # fmt: skip

GATES_S = 30.0
"""The most time that an ADD waits for all of its readiness gates."""

PROBE_S = 5.0
"""The most time that one probe of a gate takes."""

PROBE_INTERVAL_S = 5.0
"""The time from one probe of a gate to the next."""

_READY = range(200, 400)


# --- readiness gates -------------------------------------------------------------------------------------------------


@frozen
class Gate:
    """One readiness gate: its URL, and where the configuration has it."""

    url: str
    position: int

    def __str__(self) -> str:
        return f"readiness_gates[{self.position}] {redact_url(self.url)}"


def gates_of(urls: tuple[str, ...]) -> tuple[Gate, ...]:
    """The gates of a configuration, in their order."""
    return tuple(Gate(url, position) for position, url in enumerate(urls))


def redact_url(url: str) -> str:
    """A URL for people: its query, and all of it if a password may be in it, are left out."""
    if "@" in url:
        return REDACTED
    path, separator, _query = url.partition("?")
    return f"{path}{separator}{REDACTED}" if separator else path


@frozen(kw_only=True)
class ProbeResult:
    """What a GET of a gate's URL found: the status of the last reply, or the reason why there is none."""

    status: int = 0
    problem: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether the gate is ready: a final status from 200 to 399, redirects having been followed."""
        return self.status in _READY

    def __str__(self) -> str:
        return self.problem or f"status {self.status}"


@frozen
class GateNotReady(Unavailable):
    """A readiness gate did not become ready in time (code 11); ``cause`` has its last answer."""


# --- policy ----------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class EndpointStatus:
    """The content of an endpoint's status file: whose interface it is for which policy is programmed.

    ``nets`` are its addresses, as prefixes of full length.
    """

    container_id: str = ""
    host_interface: str = ""
    mac: str = ""
    ipv4_nets: tuple[Prefix, ...] = ()
    ipv6_nets: tuple[Prefix, ...] = ()

    @classmethod
    def of(cls, workload: WorkloadIdentity, addresses: tuple[Address, ...]) -> EndpointStatus:
        """The status of a workload's interface with those addresses."""
        nets = [Prefix(address.family, address.value, address.family.width) for address in addresses]
        return cls(
            container_id=workload.container_id,
            host_interface=workload.host_interface,
            mac=workload.mac,
            ipv4_nets=tuple(net for net in nets if net.family is Family.IPV4),
            ipv6_nets=tuple(net for net in nets if net.family is Family.IPV6),
        )


def status_file_of(workload: WorkloadIdentity) -> str:
    """The name of the status file of a workload's endpoint."""
    owner = f"{workload.namespace}/{workload.pod or workload.container_id}"
    return endpoint_status_file_name(workload.orchestrator, owner, workload.interface)


def render_status(status: EndpointStatus) -> str:
    """The text of a status file; empty members are left out."""
    return json.dumps(_decoder().encode(status)) + "\n"


def find_difference(text: str, expected: EndpointStatus) -> str:
    """Why a status file does not say that policy is programmed for an endpoint; empty if it does.

    The file has to name the endpoint by its host interface, and the container by its id; without an id, by the MAC that
    follows from it. Its addresses, if it has any, have to be the endpoint's: the file of an earlier container of the
    pod, or of an earlier attachment of the container, may still be there.
    """
    try:
        found = _decoder().decode(json.loads(text), EndpointStatus, "the file")
    except (ValueError, RecursionError):
        return "it is not whole, or not JSON"
    except NetplugError as error:
        return str(error)
    if found.host_interface != expected.host_interface:
        return f"it names the interface {quote(found.host_interface)}, and not {expected.host_interface}"
    if found.container_id != expected.container_id and (found.container_id or found.mac != expected.mac):
        return f"it names the container {quote(found.container_id or found.mac)}"
    nets = (*found.ipv4_nets, *found.ipv6_nets)
    missing = [net for net in (*expected.ipv4_nets, *expected.ipv6_nets) if nets and net not in nets]
    return f"it does not have the address {missing[0]}" if missing else ""


@cache
def _decoder() -> Decoder:
    table = Table(
        cls=EndpointStatus,
        fields={
            "container_id": Field("containerID", STRING),
            "host_interface": Field("ifaceName", STRING),
            "mac": Field("mac", STRING),
            "ipv4_nets": Field("ipv4Nets", ListOf(PREFIX)),
            "ipv6_nets": Field("ipv6Nets", ListOf(PREFIX)),
        },
    )
    return Decoder(document_error, tables=(table,))
