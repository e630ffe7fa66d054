"""Resources of netplug and nodes of Kubernetes, each by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.decoding.errors import UnknownField
from netplug_core.errors import ConfigurationError
from netplug_core.lint.documents import Document, KubernetesObject, malformed_finding
from netplug_core.lint.finding import Finding, Repair
from netplug_core.lint.rules import Rule
from netplug_core.resources.ipamconfiguration import IPAMConfiguration
from netplug_core.resources.ippool import IPPOOL, IPPool
from netplug_core.resources.kinds import Resource, UnknownKind, key_of
from netplug_core.resources.manifest import manifest_from_mapping
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.node import Node
from netplug_core.resources.validation import (
    FieldError,
    InvalidResource,
    find_unusual_settings,
    validate_resource,
)

__all__ = ["check_resource", "field_problems", "node_of", "read_resource"]

_METADATA: Final = "metadata."
_LABELS: Final = "metadata.labels"
_OF_POOLS: Final = {
    "spec.blockSize": Rule.POOL_BLOCK_SIZE,
    "spec.cidr": Rule.POOL_CIDR,
    "spec.ipipMode": Rule.POOL_ENCAPSULATION,
    "spec.vxlanMode": Rule.POOL_ENCAPSULATION,
    "spec.allowedUses": Rule.POOL_USES,
    "spec.disableBGPExport": Rule.POOL_USES,
    "spec.nodeSelector": Rule.POOL_SELECTOR,
    "spec.namespaceSelector": Rule.POOL_SELECTOR,
}


def read_resource(document: Document) -> Resource | Finding:
    """The resource that a document is, or why it cannot be read."""
    try:
        return manifest_from_mapping(document.mapping, source=document.source).resource
    except UnknownKind as error:
        return malformed_finding(document, error, Rule.UNKNOWN_KIND)
    except UnknownField as error:
        found = malformed_finding(document, error, Rule.UNKNOWN_FIELD)
        return evolve(found, accepted=f"there are {error.accepted}")
    except ConfigurationError as error:
        return _host_bits_finding(document, error) or malformed_finding(document, error)


def _host_bits_finding(document: Document, error: ConfigurationError) -> Finding | None:
    """What was found if the CIDR of a pool has bits behind its prefix, and is right without them."""
    if document.mapping.get("kind") != IPPOOL.name or not error.where.endswith("$.spec.cidr"):
        return None
    try:
        meant = Prefix.enclosing(str(error.value))
    except ValueError:
        return None
    found = malformed_finding(document, error, Rule.POOL_HOST_BITS)
    return evolve(found, repair=Repair(("spec", "cidr"), str(meant)))


def check_resource(resource: Resource, source: str) -> Iterator[Finding]:
    """What a resource by itself breaks; ``source`` names its document, or the datastore."""
    try:
        validate_resource(resource)
    except InvalidResource as error:
        for one in error.field_errors:
            yield _finding(_rule_of(resource, one), resource, one, source)
    if isinstance(resource, IPPool):
        for one in find_unusual_settings(resource):
            rule = Rule.POOL_INERT if one.field == "spec" else Rule.POOL_LARGE_BLOCKS
            yield _finding(rule, resource, one, source)


def field_problems(rule: Rule, resource: Resource, errors: Iterable[FieldError], source: str) -> Iterator[Finding]:
    """The errors about fields of a resource, as findings of one rule."""
    return (_finding(rule, resource, one, source) for one in errors)


def node_of(found: KubernetesObject) -> Node:
    """The Node that stands for a node of Kubernetes: pools select it by its labels."""
    return Node(metadata=Metadata(name=found.name, labels=found.labels))


def _rule_of(resource: Resource, error: FieldError) -> Rule:
    if isinstance(resource, Node) and error.field.startswith(_LABELS):
        return Rule.NODE_LABEL
    if error.field.startswith(_METADATA):
        return Rule.METADATA
    if isinstance(resource, IPPool):
        return _OF_POOLS[error.field]
    return Rule.IPAM_CONFIGURATION if isinstance(resource, IPAMConfiguration) else Rule.RESOURCE_VALUE


def _finding(rule: Rule, resource: Resource, error: FieldError, source: str) -> Finding:
    value = error.value if isinstance(error.value, str | int) else str(error.value)
    return Finding(
        rule=rule,
        source=source,
        subject=str(key_of(resource)),
        field=error.field,
        value=value,
        accepted=error.reason,
    )
