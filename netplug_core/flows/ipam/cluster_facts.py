"""Pods and nodes as the datastore shows them, for the collector's tick and the report of ``netplugctl``.

Only a datastore whose endpoints are views of pods shows them. On another one it is not known which pods exist. Where
the orchestrator's nodes and the records are in two datastores, a node may have one name there and another one here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import evolve, frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore, EndpointStorage
from netplug_core.datastore.transaction import read_pages
from netplug_core.ipam.reporting.usage import AddressUsers
from netplug_core.names import STORED_ANNOTATIONS
from netplug_core.orchestrator.model import POD, ClusterView, PodFacts
from netplug_core.records import Get
from netplug_core.resources.node import NODE, node_key
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT

__all__ = ["DatastoreLookup", "find_addresses", "of_addresses", "read_cluster", "read_pods", "read_users"]

_ADDRESS_ANNOTATIONS = STORED_ANNOTATIONS[:2]


@frozen
class DatastoreLookup:
    """A :class:`~netplug_core.ipam.gc.candidates.LiveLookup` at a datastore that shows pods and nodes.

    ``records`` is the one with the Nodes, if that is another one.
    """

    store: Datastore
    records: Datastore | None = None

    def find_pod(self, namespace: str, name: str, *, deadline: Deadline) -> PodFacts | None:
        """The pod as it is now; None if there is none."""
        wanted = Get(POD.key(namespace, name))
        found = self.store.read((wanted,), deadline=deadline).find(wanted)
        if found is None:
            return None
        pod = _with_written_addresses(found.value)
        return pod if self.records is None else _without_node(pod)

    def has_node(self, name: str, *, deadline: Deadline) -> bool:
        """Whether there is a node of that name, or one is registered."""
        wanted = Get(node_key(name))
        stores = (self.store,) if self.records is None else (self.records, self.store)
        return any(store.read((wanted,), deadline=deadline).find(wanted) is not None for store in stores)


def read_cluster(
    store: Datastore,
    records: Datastore | None = None,
    *,
    deadline: Deadline,
    known: Iterable[PodFacts] | None = None,
) -> ClusterView | None:
    """All pods and nodes; None if the datastore does not show them. ``records`` has the Nodes, if it is another one.

    ``known`` are all pods, if a watch keeps them; as ``of_addresses`` has them.

    Raises:
        Malformed: a pod or a node cannot be understood, so it is not known which addresses it uses.
        Unavailable: the store does not answer.
    """
    if store.description.endpoints is not EndpointStorage.PODS:
        return None
    found = map(of_addresses, _iter_pods(store, deadline)) if known is None else known
    pods = tuple(found if records is None else map(_without_node, found))
    nodes = frozenset(record.key.name for record in read_pages(store, NODE, deadline=deadline))
    if records is None:
        return ClusterView(pods=pods, nodes=nodes)
    registered = frozenset(record.key.name for record in read_pages(records, NODE, deadline=deadline))
    return ClusterView(pods=pods, nodes=nodes | registered)


def read_pods(store: Datastore, *, deadline: Deadline) -> tuple[PodFacts, ...]:
    """All pods of a datastore that shows them.

    Raises:
        Malformed: a pod cannot be understood, so it is not known which addresses it uses.
        Unavailable: the store does not answer.
    """
    return tuple(map(_with_written_addresses, _iter_pods(store, deadline)))


def _iter_pods(store: Datastore, deadline: Deadline) -> Iterator[PodFacts]:
    return (record.value for record in read_pages(store, POD, deadline=deadline))


def of_addresses(pod: PodFacts) -> PodFacts:
    """What a pod says of its addresses, all of them. A large cluster has some 100,000 pods."""
    return PodFacts(
        namespace=pod.namespace,
        name=pod.name,
        uid="",
        node=pod.node,
        network=pod.network,
        phase=pod.phase,
        addresses=find_addresses(pod),
        deletion_time_ns=pod.deletion_time_ns,
    )


def read_users(store: Datastore, *, deadline: Deadline) -> AddressUsers:
    """All users of addresses. Read the blocks before: a user that comes later belongs to a later assignment.

    Raises:
        Malformed: an endpoint, a pod or a node cannot be understood, so it is not known which addresses it uses.
        Unavailable: the store does not answer.
    """
    return AddressUsers(
        endpoints={
            address: record.key
            for record in read_pages(store, WORKLOAD_ENDPOINT, deadline=deadline)
            for address in record.value.spec.addresses
        },
        cluster=read_cluster(store, deadline=deadline),
    )


def find_addresses(pod: PodFacts) -> tuple[Address, ...]:
    """The addresses of a pod, also those that the plugin wrote, which its node may not have reported yet."""
    known = {f"{address.host_prefix}" for address in pod.addresses}
    written = [
        text.strip()
        for name, value in pod.annotations
        if name.rpartition("/")[2] in _ADDRESS_ANNOTATIONS  # the prefix depends on the API group
        for text in value.split(",")
    ]
    more = [text for text in dict.fromkeys(written) if text and text not in known]
    return tuple(dict.fromkeys((*pod.addresses, *_parse_each(more)))) if more else pod.addresses


def _parse_each(texts: Iterable[str]) -> Iterator[Address]:
    for text in texts:
        try:
            yield Prefix.enclosing(text).first
        except ValueError:
            continue  # an invalid text is no address


def _without_node(pod: PodFacts) -> PodFacts:
    """A pod as if its node were not known: it may have another name where addresses are stored, and had one before."""
    return evolve(pod, node="") if pod.node else pod


def _with_written_addresses(pod: PodFacts) -> PodFacts:
    return evolve(pod, addresses=find_addresses(pod))
