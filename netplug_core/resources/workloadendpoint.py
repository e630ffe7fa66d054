"""The kind WorkloadEndpoint: one interface of one workload, with the addresses it was given."""

from __future__ import annotations

from typing import Final

from attrs import field, frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.decoding.codecs import ADDRESS, NONNEGATIVE_INTEGER, TEXT, codec_of
from netplug_core.decoding.tables import ListOf, json_object, member
from netplug_core.records import Kind
from netplug_core.resources.fields import ENVELOPE, Metadata

__all__ = ["IPNAT", "WORKLOAD_ENDPOINT", "EndpointPort", "WorkloadEndpoint", "WorkloadEndpointSpec"]


def _read_host_prefix(value: object) -> Address:
    if isinstance(value, str) and value.endswith("/32") and ":" not in value:
        return _read_ipv4_host(value)
    return _read_any_host(value)


def _read_ipv4_host(value: str) -> Address:
    """The usual text, without the prefixes in between: they take half of the time."""
    try:
        return Address.parse(value[:-3])
    except ValueError:
        return _read_any_host(value)


def _read_any_host(value: object) -> Address:
    try:
        prefix = Prefix.parse(TEXT.decode(value))
    except ValueError:
        prefix = None
    if prefix is None or prefix.size != 1:
        raise ValueError("one address, as a /32 or a /128")
    return prefix.first


_HOST_PREFIX: Final = codec_of(_read_host_prefix, lambda address: str(address.host_prefix))


@frozen(kw_only=True)
class IPNAT:
    """A floating address (``external``) that stands for one of the endpoint's own (``internal``)."""

    internal: Address = field(metadata=member("internalIP", ADDRESS, "address of the workload"))
    external: Address = field(metadata=member("externalIP", ADDRESS, "address outside that is translated to it"))
    unknown_json: str = ""


@frozen(kw_only=True)
class EndpointPort:
    """A named or published port; ``protocol`` is TCP, UDP or SCTP, numbers of 0 and empty texts mean not set."""

    protocol: str = field(metadata=member("protocol", TEXT, "protocol of the port"))
    port: int = field(metadata=member("port", NONNEGATIVE_INTEGER, "number of the port in the workload"))
    name: str = field(default="", metadata=member("name", TEXT, "name of the port, which policies may use"))
    host_port: int = field(
        default=0,
        metadata=member(
            "hostPort", NONNEGATIVE_INTEGER, "port of the host that leads to it; 0 for none", is_always_written=True
        ),
    )
    host_ip: str = field(
        default="",
        metadata=member(
            "hostIP", TEXT, "address of the host for that port; empty for all of them", is_always_written=True
        ),
    )
    unknown_json: str = ""


@frozen(kw_only=True)
class WorkloadEndpointSpec:
    """The interface and its workload.

    ``node``, ``container_id`` and ``endpoint`` (the interface's name in the container) are verbatim, however the
    resource's own name had to be encoded. ``interface_name`` is the host end; ``mac`` the container end's address.
    """

    orchestrator: str = field(metadata=member("orchestrator", TEXT, "who started the workload: k8s or cni"))
    node: str = field(metadata=member("node", TEXT, "node that it runs on"))
    endpoint: str = field(metadata=member("endpoint", TEXT, "interface in the workload, such as eth0"))
    container_id: str = field(default="", metadata=member("containerID", TEXT, "id of its container or sandbox"))
    pod: str = field(default="", metadata=member("pod", TEXT, "name of its pod"))
    workload: str = field(default="", metadata=member("workload", TEXT, "name of the workload where it is no pod"))
    service_account: str = field(default="", metadata=member("serviceAccountName", TEXT, "service account of its pod"))
    addresses: tuple[Address, ...] = field(
        default=(),
        metadata=member(
            "ipNetworks", ListOf(_HOST_PREFIX), "addresses of the workload, each with the length /32 or /128"
        ),
    )
    ip_nats: tuple[IPNAT, ...] = field(
        default=(), metadata=member("ipNATs", ListOf(IPNAT), "floating addresses that lead to it")
    )
    profiles: tuple[str, ...] = field(
        default=(), metadata=member("profiles", ListOf(TEXT), "profiles whose labels and rules it gets")
    )
    interface_name: str = field(
        default="", metadata=member("interfaceName", TEXT, "interface of the host that leads to it")
    )
    mac: str = field(default="", metadata=member("mac", TEXT, "hardware address in the workload"))
    ports: tuple[EndpointPort, ...] = field(
        default=(), metadata=member("ports", ListOf(EndpointPort), "named ports, and those of the host that lead to it")
    )
    allowed_source_prefixes: tuple[str, ...] = field(
        default=(),
        metadata=member(
            "allowSpoofedSourcePrefixes",
            ListOf(TEXT),
            "source prefixes that it may send from besides its own addresses; filtered where policy is enforced",
        ),
    )
    unknown_json: str = ""


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class WorkloadEndpoint:
    """A workload endpoint as it is stored."""

    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: WorkloadEndpointSpec = field(
        metadata=member(
            "spec",
            WorkloadEndpointSpec,
            "which workload it is, where it runs and which addresses it has",
            is_always_written=True,
        )
    )
    unknown_json: str = ""


WORKLOAD_ENDPOINT: Kind[WorkloadEndpoint] = Kind("WorkloadEndpoint", ("namespace", "name"))
