"""What is stored about an address, a handle or a pod, and what a request would get: for ``netplugctl ipam explain``.

Read only. Damaged records are among the problems of an answer and stop none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import frozen

from netplug_core.addressing import Address, Family
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore
from netplug_core.datastore.transaction import Transaction, read_pages
from netplug_core.ipam.allocation.pools import BlockOrder, hashed_start
from netplug_core.ipam.allocation.request import AssignRequest
from netplug_core.ipam.model import BLOCK, Allocation, Pairs
from netplug_core.ipam.reporting import explanation
from netplug_core.ipam.reporting.explanation import AddressExplanation, RequestExplanation
from netplug_core.orchestrator.model import PodName
from netplug_core.records import Decision, Get, List, Malformed, NeedMore, Snapshot
from netplug_core.resources.ippool import IPPOOL
from netplug_core.resources.profile import NAMESPACE_PROFILE_PREFIX, namespace_labels, profile_key
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT

__all__ = [
    "HeldAddresses", "PodState", "explain_address", "explain_request", "families_of_pools", "find_addresses_of_handle",
    "find_pod",
]  # fmt: skip

_POOLS = List(IPPOOL)


@frozen(kw_only=True)
class HeldAddresses:
    """The addresses that something holds, in order; ``problems`` are records that cannot be read."""

    addresses: tuple[Address, ...]
    problems: tuple[str, ...] = ()


@frozen(kw_only=True)
class PodState:
    """What is known of a pod: the addresses it holds, its node, and the labels of its namespace.

    ``node`` is that of its workload endpoint; empty without one. ``problems`` are records that cannot be read, and
    addresses of its endpoint that it does not hold.
    """

    held: tuple[Address, ...]
    node: str
    namespace_labels: Pairs
    problems: tuple[str, ...]


def explain_address(store: Datastore, address: Address, *, pace: Pace) -> AddressExplanation:
    """What is known of an address, in any pool and in blocks outside all pools.

    Raises:
        Unavailable: the store does not answer.
    """

    def decide(snapshot: Snapshot) -> Decision[AddressExplanation] | NeedMore:
        found = explanation.explain_address(snapshot, address, pace.clock.now_ns())
        return found if isinstance(found, NeedMore) else Decision((), found)

    decision = Transaction(store, pace).run(explanation.address_queries(), decide)
    return decision.get_result()


def explain_request(
    store: Datastore, request: AssignRequest, *, pace: Pace, order: BlockOrder = hashed_start
) -> RequestExplanation:
    """What a request would get now; nothing is written.

    Raises:
        Unavailable: the store does not answer.
    """

    def decide(snapshot: Snapshot) -> Decision[RequestExplanation] | NeedMore:
        found = explanation.explain_request(snapshot, request, pace.clock.now_ns(), order)
        return found if isinstance(found, NeedMore) else Decision((), found)

    decision = Transaction(store, pace).run(explanation.request_queries(request), decide)
    return decision.get_result()


def find_addresses_of_handle(store: Datastore, handle: str, *, deadline: Deadline) -> HeldAddresses:
    """The addresses that blocks store under a handle, whether the handle itself can be read or not.

    Raises:
        Unavailable: the store does not answer.
    """
    return _find_held(store, lambda held: held.attribute.handle == handle, deadline)


def find_pod(store: Datastore, pod: PodName, *, deadline: Deadline) -> PodState:
    """What is known of a pod, by the owners that blocks store, its endpoints and the profile of its namespace.

    Raises:
        Unavailable: the store does not answer.
    """
    held = _find_held(
        store,
        lambda held: (
            (held.attribute.owner_value("namespace"), held.attribute.owner_value("pod")) == (pod.namespace, pod.name)
        ),
        deadline,
    )
    endpoints, profile = (
        List(WORKLOAD_ENDPOINT, (pod.namespace,)),
        profile_key(f"{NAMESPACE_PROFILE_PREFIX}{pod.namespace}"),
    )
    snapshot = store.read((endpoints, Get(profile)), deadline=deadline.capped(CALL_TIMEOUT_S))
    of_pod = [record for record in snapshot.readable(endpoints) if record.value.spec.pod == pod.name]
    profiles = snapshot.readable(Get(profile))
    return PodState(
        held=held.addresses,
        node=next((record.value.spec.node for record in of_pod), ""),
        namespace_labels=namespace_labels(profiles[0].value) if profiles else (),
        problems=(
            *held.problems,
            *map(str, (*snapshot.malformed(endpoints), *snapshot.malformed(Get(profile)))),
            *(
                f"{record.key} has {address}, and no block that can be read says that the pod has it"
                for record in of_pod
                for address in record.value.spec.addresses
                if address not in held.addresses
            ),
        ),
    )


def families_of_pools(store: Datastore, named: Sequence[str], *, deadline: Deadline) -> tuple[Family, ...]:
    """The families of the pools with these names or CIDRs, or of all pools; IPv4 if there is no such pool.

    Raises:
        Unavailable: the store does not answer.
    """
    snapshot = store.read((_POOLS,), deadline=deadline.capped(CALL_TIMEOUT_S))
    prefixes = {record.key.name: record.value.spec.prefix for record in snapshot.readable(_POOLS)}
    found = {prefix.family for name, prefix in prefixes.items() if not named or {name, str(prefix)} & {*named}}
    return tuple(family for family in Family if family in found) or (Family.IPV4,)


def _find_held(store: Datastore, is_of: Callable[[Allocation], bool], deadline: Deadline) -> HeldAddresses:
    malformed: list[Malformed] = []
    found = [
        held.address
        for record in read_pages(store, BLOCK, deadline=deadline, malformed=malformed)
        for held in record.value.held()
        if is_of(held)
    ]
    return HeldAddresses(addresses=tuple(sorted(found)), problems=tuple(map(str, malformed)))
