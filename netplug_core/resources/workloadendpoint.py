"""The kind WorkloadEndpoint: one interface of one workload, with the addresses it was given."""

from __future__ import annotations

from attrs import frozen

from netplug_core.addressing import Address
from netplug_core.records import Kind
from netplug_core.resources.metadata import Metadata

__all__ = ["IPNAT", "WORKLOAD_ENDPOINT", "EndpointPort", "WorkloadEndpoint", "WorkloadEndpointSpec"]


@frozen(kw_only=True)
class IPNAT:
    """A floating address (``external``) that stands for one of the endpoint's own (``internal``)."""

    internal: Address
    external: Address
    unknown_json: str = ""


@frozen(kw_only=True)
class EndpointPort:
    """A named or published port; ``protocol`` is TCP, UDP or SCTP, numbers of 0 and empty texts mean not set."""

    name: str = ""
    protocol: str
    port: int
    host_port: int = 0
    host_ip: str = ""
    unknown_json: str = ""


@frozen(kw_only=True)
class WorkloadEndpointSpec:
    """The interface and its workload.

    ``node``, ``container_id`` and ``endpoint`` (the interface's name in the container) are verbatim, however the
    resource's own name had to be encoded. ``interface_name`` is the host end; ``mac`` the container end's address.
    """

    orchestrator: str
    node: str
    container_id: str = ""
    pod: str = ""
    workload: str = ""
    endpoint: str
    service_account: str = ""
    addresses: tuple[Address, ...] = ()
    ip_nats: tuple[IPNAT, ...] = ()
    profiles: tuple[str, ...] = ()
    interface_name: str = ""
    mac: str = ""
    ports: tuple[EndpointPort, ...] = ()
    allowed_source_prefixes: tuple[str, ...] = ()
    unknown_json: str = ""


@frozen(kw_only=True)
class WorkloadEndpoint:
    """A workload endpoint as it is stored."""

    metadata: Metadata
    spec: WorkloadEndpointSpec
    unknown_json: str = ""


WORKLOAD_ENDPOINT: Kind[WorkloadEndpoint] = Kind("WorkloadEndpoint", ("namespace", "name"))
