"""WorkloadEndpoint as a JSON-like mapping; see ``codec``, which is what the others call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netplug_core.addressing import Address, Prefix
from netplug_core.decoding.reader import (
    JSONDict,
    ObjectReader,
    as_address,
    as_nonnegative_integer,
    as_string,
    decode_unknown_json,
    omit_empty,
)
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.workloadendpoint import (
    IPNAT,
    EndpointPort,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)

if TYPE_CHECKING:
    from cattrs import BaseConverter

__all__ = ["read_endpoint", "write_endpoint"]


def read_endpoint(converter: BaseConverter, fields: ObjectReader) -> WorkloadEndpoint:
    """The endpoint that an object stands for."""
    return WorkloadEndpoint(
        metadata=converter.structure(fields.optional_object("metadata"), Metadata),
        spec=_read_endpoint_spec(fields.optional_object("spec")),
        unknown_json=fields.finish_unknown_json(),
    )


def _read_endpoint_spec(fields: ObjectReader) -> WorkloadEndpointSpec:
    return WorkloadEndpointSpec(
        orchestrator=fields.required("orchestrator", as_string),
        node=fields.required("node", as_string),
        container_id=fields.optional("containerID", as_string, ""),
        pod=fields.optional("pod", as_string, ""),
        workload=fields.optional("workload", as_string, ""),
        endpoint=fields.required("endpoint", as_string),
        service_account=fields.optional("serviceAccountName", as_string, ""),
        addresses=fields.list_of("ipNetworks", _as_host_address),
        ip_nats=fields.object_list("ipNATs", _read_ip_nat),
        profiles=fields.list_of("profiles", as_string),
        interface_name=fields.optional("interfaceName", as_string, ""),
        mac=fields.optional("mac", as_string, ""),
        ports=fields.object_list("ports", _read_port),
        allowed_source_prefixes=fields.list_of("allowSpoofedSourcePrefixes", as_string),
        unknown_json=fields.finish_unknown_json(),
    )


def _read_ip_nat(fields: ObjectReader) -> IPNAT:
    return IPNAT(
        internal=fields.required("internalIP", as_address),
        external=fields.required("externalIP", as_address),
        unknown_json=fields.finish_unknown_json(),
    )


def _read_port(fields: ObjectReader) -> EndpointPort:
    return EndpointPort(
        name=fields.optional("name", as_string, ""),
        protocol=fields.required("protocol", as_string),
        port=fields.required("port", as_nonnegative_integer),
        host_port=fields.optional("hostPort", as_nonnegative_integer, 0),
        host_ip=fields.optional("hostIP", as_string, ""),
        unknown_json=fields.finish_unknown_json(),
    )


def write_endpoint(converter: BaseConverter, endpoint: WorkloadEndpoint) -> JSONDict:
    """The members that stand for an endpoint, but its kind."""
    spec = endpoint.spec
    out: JSONDict = {"orchestrator": spec.orchestrator, "node": spec.node, "endpoint": spec.endpoint}
    out |= omit_empty(
        containerID=spec.container_id,
        pod=spec.pod,
        workload=spec.workload,
        serviceAccountName=spec.service_account,
        ipNetworks=[str(address.host_prefix) for address in spec.addresses],
        ipNATs=[_write_ip_nat(mapping) for mapping in spec.ip_nats],
        profiles=list(spec.profiles),
        interfaceName=spec.interface_name,
        mac=spec.mac,
        ports=[_write_port(port) for port in spec.ports],
        allowSpoofedSourcePrefixes=list(spec.allowed_source_prefixes),
    )
    out = decode_unknown_json(spec.unknown_json) | out
    return decode_unknown_json(endpoint.unknown_json) | {
        "metadata": converter.unstructure(endpoint.metadata),
        "spec": out,
    }


def _write_ip_nat(mapping: IPNAT) -> JSONDict:
    out: JSONDict = {"internalIP": str(mapping.internal), "externalIP": str(mapping.external)}
    return decode_unknown_json(mapping.unknown_json) | out


def _write_port(port: EndpointPort) -> JSONDict:
    out: JSONDict = {"protocol": port.protocol, "port": port.port}
    out |= omit_empty(name=port.name, hostPort=port.host_port, hostIP=port.host_ip)
    return decode_unknown_json(port.unknown_json) | out


def _as_host_address(value: object) -> Address:
    # Written as a prefix, which has to hold this one address.
    try:
        prefix = Prefix.parse(as_string(value))
    except ValueError:
        prefix = None
    if prefix is None or prefix.size != 1:
        raise ValueError("one address, as a /32 or a /128")
    return prefix.first
