"""The host endpoints that each node has by itself, and what has to change so that they are there.

Each Node has an endpoint for all of its interfaces, and those of the templates that select it. They are recognised by a
label, not by their names: an endpoint that a user made is never touched, and a labelled one whose node is gone goes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family
from netplug_core.names import MAX_NAME_LENGTH, RESOURCE_DOMAIN
from netplug_core.reconcile.controller import Problem
from netplug_core.records import Create, Delete, Record, Update
from netplug_core.resources.fields import Metadata, Switch
from netplug_core.resources.hostendpoint import HOST_ENDPOINT, HostEndpoint, HostEndpointSpec
from netplug_core.resources.kubecontrollersconfiguration import HostEndpointSettings, HostEndpointTemplate
from netplug_core.resources.node import Node, NodeInterface
from netplug_core.resources.profile import DEFAULT_ALLOW_PROFILE
from netplug_core.selectors import SelectorError, matches, parse

__all__ = [
    "ALL_INTERFACES", "CREATED_BY", "CREATOR", "HostEndpointChange", "WantedHostEndpoints", "automatic_name",
    "find_host_endpoint_changes", "is_automatic", "wanted_host_endpoints",
]  # fmt: skip

CREATED_BY: Final = f"{RESOURCE_DOMAIN}/created-by"
"""The label by which the automatic endpoints are known."""

CREATOR: Final = "netplug-kube-controllers"
"""Its value."""

ALL_INTERFACES: Final = "*"
"""The interface name of an endpoint that stands for all interfaces of its node."""

_SUFFIX: Final = "-auto-hep"

HostEndpointChange = Create[HostEndpoint] | Update[HostEndpoint] | Delete[HostEndpoint]
"""One write; each is a commit of its own, so that a conflict of one stops no other."""


def automatic_name(*parts: str) -> str:
    """The name of the endpoint of a node, a template and an interface; those that are not given are left out.

    One that is too long for a resource is a hash of it.
    """
    name = "-".join(part.lower() for part in parts if part) + _SUFFIX
    if len(name) <= MAX_NAME_LENGTH:
        return name
    return hashlib.sha256(name.encode()).hexdigest()[: MAX_NAME_LENGTH - len(_SUFFIX)] + _SUFFIX


def is_automatic(endpoint: HostEndpoint) -> bool:
    """Whether the controllers made it, and may change and delete it."""
    return dict(endpoint.metadata.labels).get(CREATED_BY) == CREATOR


# --- what should exist ------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class WantedHostEndpoints:
    """The endpoints that should exist, by their names, and what of the settings could not be followed."""

    endpoints: Mapping[str, HostEndpoint]
    problems: tuple[Problem, ...] = ()


def wanted_host_endpoints(
    nodes: Iterable[Node], settings: HostEndpointSettings, internal_addresses: Mapping[str, Sequence[Address]]
) -> WantedHostEndpoints:
    """The endpoints that some nodes should have.

    ``internal_addresses`` are the addresses of the type InternalIP that the orchestrator knows, by the node's name. A
    template that cannot be read makes no endpoints, and a problem; the others are followed.
    """
    if settings.auto_create is not Switch.ENABLED:
        return WantedHostEndpoints(endpoints={})
    templates, problems = _readable(settings.templates)
    endpoints: dict[str, HostEndpoint] = {}
    for node in sorted(nodes, key=lambda node: node.metadata.name):
        known = internal_addresses.get(node.metadata.name, ())
        for endpoint in _endpoints_of(node, settings, templates, known):
            name = endpoint.metadata.name
            if name in endpoints:
                problems.append(Problem(message=f"two host endpoints would be called {name}", cause="the first counts"))
            endpoints.setdefault(name, endpoint)
    return WantedHostEndpoints(endpoints=endpoints, problems=tuple(problems))


def _readable(templates: Iterable[HostEndpointTemplate]) -> tuple[list[HostEndpointTemplate], list[Problem]]:
    readable: list[HostEndpointTemplate] = []
    problems: list[Problem] = []
    for template in templates:
        cause = _find_mistake(template)
        if cause:
            problems.append(
                Problem(message=f"the template {template.generate_name!r} makes no host endpoints", cause=cause)
            )
        else:
            readable.append(template)
    return readable, problems


def _find_mistake(template: HostEndpointTemplate) -> str:
    """Why a template cannot be followed; empty if it can."""
    if not template.generate_name:
        return "generateName is empty: its endpoints have no name of their own"
    if not template.interface_cidrs and not template.interface_pattern:
        return "interfaceCIDRs or interfacePattern must be given"
    try:
        parse(template.node_selector)
    except SelectorError as error:
        return f"nodeSelector: {error}"
    try:
        re.compile(template.interface_pattern)
    except re.error as error:
        return f"interfacePattern {template.interface_pattern!r}: {error}"
    return ""


def _endpoints_of(
    node: Node,
    settings: HostEndpointSettings,
    templates: Iterable[HostEndpointTemplate],
    internal_addresses: Sequence[Address],
) -> Iterator[HostEndpoint]:
    name, labels = node.metadata.name, dict(node.metadata.labels)
    if settings.create_default is Switch.ENABLED:
        addresses = (*_addresses_of(node), *internal_addresses)
        yield _endpoint(node, automatic_name(name), addresses, interface_name=ALL_INTERFACES)
    for template in templates:
        if not matches(parse(template.node_selector), labels):
            continue
        if template.interface_cidrs:
            within = tuple(
                address
                for address in (*_addresses_of(node), *internal_addresses, *_addresses_on(node.spec.interfaces))
                if any(prefix.contains(address) for prefix in template.interface_cidrs)
            )
            if within:
                yield _endpoint(node, automatic_name(name, template.generate_name), within, template=template)
        for interface in node.spec.interfaces if template.interface_pattern else ():
            if re.search(template.interface_pattern, interface.name):
                own_name = automatic_name(name, template.generate_name, interface.name)
                yield _endpoint(node, own_name, interface.addresses, interface_name=interface.name, template=template)


def _addresses_of(node: Node) -> Iterator[Address]:
    """The addresses by which the node and its tunnels are known, in their order."""
    bgp = node.spec.bgp
    known = [node.find_address(family) for family in Family]
    yield from (address.address for address in known if address is not None)
    tunnels = (
        None if bgp is None else bgp.ipip_tunnel_address,
        *(node.find_vxlan_address(family) for family in Family),
    )
    yield from (address for address in tunnels if address is not None)


def _addresses_on(interfaces: Iterable[NodeInterface]) -> Iterator[Address]:
    for interface in interfaces:
        yield from interface.addresses


def _endpoint(
    node: Node,
    name: str,
    addresses: Iterable[Address],
    *,
    interface_name: str = "",
    template: HostEndpointTemplate | None = None,
) -> HostEndpoint:
    """One endpoint. Its labels are those of the node and of the template, and the one that says whose it is."""
    labels = {
        **dict(node.metadata.labels),
        **({} if template is None else dict(template.labels)),
        CREATED_BY: CREATOR,
    }
    annotations = () if template is None else template.annotations
    return HostEndpoint(
        metadata=Metadata(name=name, labels=tuple(sorted(labels.items())), annotations=tuple(sorted(annotations))),
        spec=HostEndpointSpec(
            node=node.metadata.name,
            interface_name=interface_name,
            expected_ips=tuple(dict.fromkeys(addresses)),
            profiles=(DEFAULT_ALLOW_PROFILE.value.metadata.name,),
        ),
    )


# --- what has to change -----------------------------------------------------------------------------------------------


def find_host_endpoint_changes(
    wanted: WantedHostEndpoints, stored: Iterable[Record[HostEndpoint]]
) -> tuple[tuple[HostEndpointChange, ...], tuple[Problem, ...]]:
    """The writes after which the automatic endpoints are the wanted ones, and what stands in their way.

    An automatic endpoint that is edited or deleted by hand is restored. One of a user with a wanted name stays.
    """
    records = {record.value.metadata.name: record for record in stored}
    changes: list[HostEndpointChange] = []
    problems = list(wanted.problems)
    for name, endpoint in sorted(wanted.endpoints.items()):
        found = records.get(name)
        if found is None:
            changes.append(Create(HOST_ENDPOINT.key(name), endpoint))
        elif not is_automatic(found.value):
            cause = f"a host endpoint of that name has no label {CREATED_BY}={CREATOR}; rename it or take it away"
            problems.append(Problem(message=f"the host endpoint {name} is not made", cause=cause))
        elif (changed := _brought_to(found.value, endpoint)) != found.value:
            changes.append(Update(found.key, changed, found.revision))
    changes += [
        Delete(record.key, record.revision)
        for name, record in sorted(records.items())
        if is_automatic(record.value) and name not in wanted.endpoints
    ]
    return tuple(changes), tuple(problems)


def _brought_to(stored: HostEndpoint, wanted: HostEndpoint) -> HostEndpoint:
    """The stored endpoint with what the controllers decide; what else it has, such as a uid, stays."""
    metadata = evolve(stored.metadata, labels=wanted.metadata.labels, annotations=wanted.metadata.annotations)
    return evolve(stored, metadata=metadata, spec=evolve(wanted.spec, unknown_json=stored.spec.unknown_json))
