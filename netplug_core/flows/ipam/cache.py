"""What the block IPAM of a resident process remembers: the one place that says which records its cache keeps."""

from __future__ import annotations

from contextlib import AbstractContextManager

from attrs import evolve

from netplug_core.clock import Clock
from netplug_core.datastore.protocol import Datastore, EndpointStorage, NonExpiring
from netplug_core.datastore.view import View
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE
from netplug_core.orchestrator.model import NAMESPACE, POD
from netplug_core.records import Kind
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION
from netplug_core.resources.ippool import IPAM_CONFIGURATION, IPPOOL, IPRESERVATION
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT

__all__ = [
    "FOLLOWED_KINDS", "UNCACHED_ABSENT_KINDS", "WORKLOAD_KINDS", "followed_kinds", "make_ipam_cache",
    "make_node_cache",
]  # fmt: skip

WORKLOAD_KINDS: frozenset[Kind[object]] = frozenset((HANDLE, WORKLOAD_ENDPOINT))
"""Kinds with a record for every workload: a cache of all that a process sees of them would only grow."""

UNCACHED_ABSENT_KINDS: frozenset[Kind[object]] = frozenset((BLOCK,))
"""A claim looks for all blocks that the new one would overlap. That they do not exist is not remembered."""

FOLLOWED_KINDS: tuple[Kind[object], ...] = (IPPOOL, IPRESERVATION, IPAM_CONFIGURATION, CLUSTER_INFORMATION)
"""Kinds that a resident process follows by a watch: few records, which every assignment depends on, and which people
change. A block changes with every workload of the cluster, and a node with every label: they are conditions of the
commit, so that an outdated one is read again."""

_NON_EXPIRING = NonExpiring(records=frozenset((BLOCK, HANDLE)), lists=frozenset((AFFINITY,)))
"""What a store without requirements still checks: a block or a handle that is used is written, under its revision, and
affinities that matter are read again."""

_NON_EXPIRING_VIEWS = evolve(
    _NON_EXPIRING, records=_NON_EXPIRING.records | {WORKLOAD_ENDPOINT}, views=frozenset((WORKLOAD_ENDPOINT,))
)
"""The same where an endpoint is a view of its pod. Its deletion empties an annotation of the pod, if the pod has not
changed."""

_MAX_RESULTS = 16_384  # some ten times what a full node has


def followed_kinds(datastore: Datastore) -> tuple[Kind[object], ...]:
    """The kinds that a resident process follows in a datastore: also namespaces, where it shows them."""
    has_views = datastore.description.endpoints is EndpointStorage.PODS
    return (*FOLLOWED_KINDS, NAMESPACE) if has_views else FOLLOWED_KINDS


def make_ipam_cache(
    datastore: Datastore, *, clock: Clock, further_uncached_kinds: frozenset[Kind[object]] = frozenset()
) -> View:
    """An empty cache for the block IPAM over a datastore, for assignments: a release reads its handle and endpoint.

    ``further_uncached_kinds`` are kinds of the caller's own that are not kept either.
    """
    return View.for_datastore(
        datastore,
        clock=clock,
        uncached_kinds=WORKLOAD_KINDS | further_uncached_kinds,
        uncached_absent_kinds=UNCACHED_ABSENT_KINDS,
    )


def make_node_cache(datastore: Datastore, *, clock: Clock, guard: AbstractContextManager[object] | None = None) -> View:
    """An empty cache for the block IPAM of one node, for assignments and releases.

    It keeps handles and endpoints of the node's workloads until they are deleted, so that a release reads nothing.
    Endpoints that are views of pods are kept while the node's pods are followed, because others change them all the
    time; otherwise until the assignment ends that has read one.
    ``guard``: see :class:`~netplug_core.datastore.view.View`.
    """
    has_views = datastore.description.endpoints is EndpointStorage.PODS
    cache = View.for_datastore(
        datastore,
        clock=clock,
        uncached_kinds=frozenset((POD,)) if has_views else frozenset(),
        uncached_absent_kinds=UNCACHED_ABSENT_KINDS | WORKLOAD_KINDS,
        max_results=_MAX_RESULTS,
        guard=guard,
    )
    if cache.max_age_s is not None:
        cache.non_expiring = _NON_EXPIRING_VIEWS if has_views else _NON_EXPIRING
    return cache
