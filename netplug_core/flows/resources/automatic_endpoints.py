"""From host endpoints that people wrote for all interfaces of nodes to the ones that nodes have by themselves.

Labels are copied to the nodes, automatic endpoints are enabled, and an old endpoint is deleted when the automatic one
of its node is there: no node is without one. Every step looks at the cluster as it is, so that a run that was
interrupted is run again.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping

from attrs import evolve, frozen

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore, EndpointStorage
from netplug_core.errors import ConfigurationError
from netplug_core.reconcile.hostendpoints import ALL_INTERFACES, CREATED_BY, automatic_name, is_automatic
from netplug_core.reconcile.nodes import orchestrator_name
from netplug_core.records import Create, Delete, Get, List, Record, Update
from netplug_core.resources.fields import Metadata, Switch
from netplug_core.resources.hostendpoint import HOST_ENDPOINT, HostEndpoint
from netplug_core.resources.kubecontrollersconfiguration import (
    KUBE_CONTROLLERS_CONFIGURATION_KEY,
    Controllers,
    KubeControllersConfiguration,
    KubeControllersSpec,
    NodeController,
)
from netplug_core.resources.node import NODE, Node
from netplug_core.resources.profile import DEFAULT_ALLOW_PROFILE

__all__ = [
    "Inventory", "OldEndpoint", "OnConflict", "SettingInTheWay", "delete_endpoint", "find_awaited", "restore_endpoint",
    "set_automatic", "take_inventory",
]  # fmt: skip

_VARIABLE = "AUTO_HOST_ENDPOINTS"
_RESERVED = ("kubernetes.io", "k8s.io")


class OnConflict(enum.Enum):
    """What becomes of a label that a node has with another text."""

    ABORT = "abort"
    KEEP_NODE = "keep-node"
    OVERWRITE = "overwrite"


class SettingInTheWay(ConfigurationError):
    """A variable of the controllers stands above the stored setting."""

    def __str__(self) -> str:
        return f"{self.where}={self.value} of the controllers is above every setting: {self.accepted}"


@frozen(kw_only=True)
class OldEndpoint:
    """An endpoint that a person wrote for all interfaces of a node, and what changes for who relies on it."""

    record: Record[HostEndpoint]
    machine: str
    labels: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...] = ()

    @property
    def node(self) -> str:
        """Its node."""
        return self.record.value.spec.node


@frozen(kw_only=True)
class Inventory:
    """What there is to do. ``labels`` are those that nodes of the orchestrator lack, by their names.

    ``problems`` keep the endpoints that they name as they are; ``conflicts`` have to be decided before anything is
    done.
    """

    endpoints: tuple[OldEndpoint, ...] = ()
    labels: Mapping[str, Mapping[str, str]]
    problems: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


def take_inventory(store: Datastore, on_conflict: OnConflict, *, deadline: Deadline) -> Inventory:
    """Look at everything.

    Raises:
        Unavailable: the store does not answer.
    """
    endpoints, nodes = List(HOST_ENDPOINT), List(NODE)
    snapshot = store.read([endpoints, nodes], deadline=deadline.capped(CALL_TIMEOUT_S))
    shows_cluster = store.description.endpoints is EndpointStorage.PODS
    known = {record.value.metadata.name: record.value for record in snapshot.readable(nodes)}
    found, problems, conflicts = list[OldEndpoint](), list[str](), list[str]()
    missing = dict[str, dict[str, str]]()
    for record in snapshot.readable(endpoints):
        if record.value.spec.interface_name != ALL_INTERFACES or is_automatic(record.value):
            continue
        node = known.get(record.value.spec.node)
        machine = "" if node is None else orchestrator_name(node) or (node.metadata.name if shows_cluster else "")
        if node is None or not machine:
            problems.append(f"{record.key} stays: its node {record.value.spec.node!r} is not known to the orchestrator")
            continue
        labels, differing = _labels_for(record.value, node, missing.setdefault(machine, {}), on_conflict)
        conflicts += differing
        found.append(
            OldEndpoint(record=record, machine=machine, labels=labels, warnings=tuple(_warnings(record.value)))
        )
    found.sort(key=lambda each: each.record.key.name)
    return Inventory(
        endpoints=tuple(found),
        labels={machine: labels for machine, labels in sorted(missing.items()) if labels},
        problems=tuple(problems),
        conflicts=tuple(conflicts),
    )


def _labels_for(
    endpoint: HostEndpoint, node: Node, missing: dict[str, str], on_conflict: OnConflict
) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """The labels that the automatic endpoint will have because of this one, and those that are in conflict.

    What the node lacks is added to ``missing``.
    """
    present, kept, conflicts = dict(node.metadata.labels), list[tuple[str, str]](), list[str]()
    for name, text in endpoint.metadata.labels:
        if name == CREATED_BY:
            continue
        former = missing.get(name, present.get(name))
        is_reserved = name.partition("/")[0].endswith(_RESERVED) and "/" in name
        if former == text:
            kept.append((name, text))
        elif is_reserved:
            conflicts.append(f"{name}={text} of {endpoint.metadata.name}: labels of Kubernetes are not written")
        elif former is None or on_conflict is OnConflict.OVERWRITE:
            missing[name] = text
            kept.append((name, text))
        elif on_conflict is OnConflict.ABORT:
            where = f"Node {node.metadata.name} has {name}={former}"
            conflicts.append(f"{name}={text} of {endpoint.metadata.name}: {where}; --on-conflict decides")
    return tuple(kept), conflicts


def _warnings(endpoint: HostEndpoint) -> Iterator[str]:
    name, spec = endpoint.metadata.name, endpoint.spec
    if spec.ports:
        yield f"{name}: rules that name its ports match no more: automatic endpoints have none"
    if spec.profiles != (DEFAULT_ALLOW_PROFILE.key.name,):
        profiles = ", ".join(spec.profiles) or "none"
        yield f"{name}: what no policy decides is allowed from now on: its profiles are {profiles}"
    step = "when automatic ones are enabled" if automatic_name(spec.node) < name else "when it is deleted"
    yield f"{name}: the automatic endpoint of {spec.node} counts {step}"


# --- the steps --------------------------------------------------------------------------------------------------------


def set_automatic(store: Datastore, wanted: Switch, *, deadline: Deadline) -> bool:
    """Switch automatic endpoints on or off; whether that was a change.

    Raises:
        SettingInTheWay: a variable of the controllers says otherwise.
        Conflict, AlreadyExists, Unavailable: it is not stored; the next run does it.
    """
    found = _find_configuration(store, deadline)
    value = KubeControllersConfiguration(metadata=Metadata(name="default")) if found is None else found.value
    variable = dict(value.status.environment).get(_VARIABLE, "")
    if variable and variable.lower() != wanted.value.lower():
        raise SettingInTheWay(_VARIABLE, variable, "take it away, and run this again")
    controllers = value.spec.controllers if found is not None else Controllers()
    node = controllers.node or NodeController()
    if controllers.node is not None and node.host_endpoint.auto_create is wanted:
        return False
    changed = evolve(node, host_endpoint=evolve(node.host_endpoint, auto_create=wanted))
    spec: KubeControllersSpec = evolve(value.spec, controllers=evolve(controllers, node=changed))
    stored = evolve(value, spec=spec)
    key = KUBE_CONTROLLERS_CONFIGURATION_KEY
    write = Create(key, stored) if found is None else Update(key, stored, found.revision)
    store.commit([write], deadline=deadline.capped(CALL_TIMEOUT_S))
    return True


def find_awaited(store: Datastore, endpoints: Iterable[OldEndpoint], *, deadline: Deadline) -> tuple[str, ...]:
    """What is not as it has to be before old endpoints are deleted, a sentence each.

    Raises:
        Unavailable: the store does not answer.
    """
    listed = List(HOST_ENDPOINT)
    snapshot = store.read([listed], deadline=deadline.capped(CALL_TIMEOUT_S))
    present = {record.value.metadata.name: record.value for record in snapshot.readable(listed)}
    found = _find_configuration(store, deadline)
    running = None if found is None else found.value.status.running
    node = None if running is None else running.controllers.node
    if node is None or node.host_endpoint.auto_create is not Switch.ENABLED:
        return ("the controllers do not say yet that automatic endpoints are enabled",)
    return tuple(_awaited(present, endpoints))


def _awaited(present: Mapping[str, HostEndpoint], endpoints: Iterable[OldEndpoint]) -> Iterator[str]:
    for old in endpoints:
        name = automatic_name(old.node)
        endpoint = present.get(name)
        if endpoint is None or not is_automatic(endpoint):
            yield f"the automatic endpoint {name} is not there yet"
        elif not set(old.labels) <= set(endpoint.metadata.labels):
            yield f"the automatic endpoint {name} has not all labels of {old.record.key.name} yet"
        elif endpoint.spec.profiles != (DEFAULT_ALLOW_PROFILE.key.name,):
            yield f"the automatic endpoint {name} has not its profile yet"


def delete_endpoint(store: Datastore, old: OldEndpoint, *, deadline: Deadline) -> None:
    """Delete an old endpoint if nothing has changed it since the inventory.

    Raises:
        Conflict, NotFound: it has changed, or is gone; the next run looks at it again.
        Unavailable: the store does not answer.
    """
    store.commit([Delete(old.record.key, old.record.revision)], deadline=deadline.capped(CALL_TIMEOUT_S))


def restore_endpoint(store: Datastore, endpoint: HostEndpoint, *, deadline: Deadline) -> bool:
    """Store an endpoint of before, unless one of its name is there; whether it is stored.

    Raises:
        AlreadyExists, Unavailable: it is not stored; the next run looks at it again.
    """
    key = HOST_ENDPOINT.key(endpoint.metadata.name)
    if store.read([Get(key)], deadline=deadline.capped(CALL_TIMEOUT_S)).find(key) is not None:
        return False
    store.commit([Create(key, endpoint)], deadline=deadline.capped(CALL_TIMEOUT_S))
    return True


def _find_configuration(store: Datastore, deadline: Deadline) -> Record[KubeControllersConfiguration] | None:
    key = KUBE_CONTROLLERS_CONFIGURATION_KEY
    return store.read([Get(key)], deadline=deadline.capped(CALL_TIMEOUT_S)).find(key)
