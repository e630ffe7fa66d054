"""WorkloadEndpoint as a JSON-like mapping; see ``codec``, which is what the others call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netplug_core.addressing import Address, Prefix
from netplug_core.resources.fields import (
    Fields,
    Json,
    as_address,
    as_number,
    as_text,
    carried_members,
    present,
)
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.workloadendpoint import (
    AddressMapping,
    EndpointPort,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)

if TYPE_CHECKING:
    from cattrs import BaseConverter

__all__ = ["read_endpoint", "write_endpoint"]


def read_endpoint(converter: BaseConverter, fields: Fields) -> WorkloadEndpoint:
    """The endpoint that an object stands for."""
    return WorkloadEndpoint(
        metadata=converter.structure(fields.take_object("metadata"), Metadata),
        spec=_read_endpoint_spec(fields.take_object("spec")),
        carried=fields.finish(),
    )


def _read_endpoint_spec(fields: Fields) -> WorkloadEndpointSpec:
    return WorkloadEndpointSpec(
        orchestrator=fields.need("orchestrator", as_text),
        node=fields.need("node", as_text),
        container_id=fields.take("containerID", as_text, ""),
        pod=fields.take("pod", as_text, ""),
        workload=fields.take("workload", as_text, ""),
        endpoint=fields.need("endpoint", as_text),
        service_account=fields.take("serviceAccountName", as_text, ""),
        addresses=fields.take_each("ipNetworks", _as_host),
        address_mappings=fields.take_objects("ipNATs", _read_address_mapping),
        profiles=fields.take_each("profiles", as_text),
        interface_name=fields.take("interfaceName", as_text, ""),
        mac=fields.take("mac", as_text, ""),
        ports=fields.take_objects("ports", _read_port),
        spoofable_prefixes=fields.take_each("allowSpoofedSourcePrefixes", as_text),
        carried=fields.finish(),
    )


def _read_address_mapping(fields: Fields) -> AddressMapping:
    return AddressMapping(
        internal=fields.need("internalIP", as_address),
        external=fields.need("externalIP", as_address),
        carried=fields.finish(),
    )


def _read_port(fields: Fields) -> EndpointPort:
    return EndpointPort(
        name=fields.take("name", as_text, ""),
        protocol=fields.need("protocol", as_text),
        port=fields.need("port", as_number),
        host_port=fields.take("hostPort", as_number, 0),
        host_ip=fields.take("hostIP", as_text, ""),
        carried=fields.finish(),
    )


def write_endpoint(converter: BaseConverter, endpoint: WorkloadEndpoint) -> Json:
    """The members that stand for an endpoint, but its kind."""
    spec = endpoint.spec
    out: Json = {"orchestrator": spec.orchestrator, "node": spec.node, "endpoint": spec.endpoint}
    out |= present(
        containerID=spec.container_id,
        pod=spec.pod,
        workload=spec.workload,
        serviceAccountName=spec.service_account,
        ipNetworks=[str(address.host_prefix) for address in spec.addresses],
        ipNATs=[_write_address_mapping(mapping) for mapping in spec.address_mappings],
        profiles=list(spec.profiles),
        interfaceName=spec.interface_name,
        mac=spec.mac,
        ports=[_write_port(port) for port in spec.ports],
        allowSpoofedSourcePrefixes=list(spec.spoofable_prefixes),
    )
    out = carried_members(spec.carried) | out
    return carried_members(endpoint.carried) | {"metadata": converter.unstructure(endpoint.metadata), "spec": out}


def _write_address_mapping(mapping: AddressMapping) -> Json:
    out: Json = {"internalIP": str(mapping.internal), "externalIP": str(mapping.external)}
    return carried_members(mapping.carried) | out


def _write_port(port: EndpointPort) -> Json:
    out: Json = {"protocol": port.protocol, "port": port.port}
    out |= present(name=port.name, hostPort=port.host_port, hostIP=port.host_ip)
    return carried_members(port.carried) | out


def _as_host(value: object) -> Address:
    # Written as a prefix, which has to hold this one address.
    try:
        prefix = Prefix.parse(as_text(value))
    except ValueError:
        prefix = None
    if prefix is None or prefix.size != 1:
        raise ValueError("one address, as a /32 or a /128")
    return prefix.first
