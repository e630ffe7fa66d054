"""The model that the store is compared with: which holder must hold which address.

It is made from requests and answers alone. An address that an answer assigned is ``held`` until it is released. After
a call that failed it is unknown which of its writes were applied. Its holders are then ``uncertain``: they may hold
any address.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import Factory, define, evolve, field, frozen

from netplug_core.addressing import Address
from netplug_core.ipam.allocation.request import Assignment, AssignRequest, Released
from netplug_core.ipam.model import Allocation, Pairs, owner_node
from netplug_core.records import OutcomeUnknown
from netplug_core.resources.node import NODE
from netplug_core.testing.assertions import expect, expect_same
from tests.harness.allocator.observed_call import ObservedCall, ProcessDiedAnswer
from tests.harness.allocator.operations import (
    Assign,
    ChangeOwner,
    ClaimBlocks,
    DeletePod,
    DeleteResource,
    EnsureBlocks,
    Release,
    ReleaseAddresses,
    RunCollector,
    StoreOperation,
)
from tests.harness.allocator.state import StoredState

__all__ = ["AllocationModel", "CallScope", "Holder"]


@frozen
class Holder:
    """The holder of an address as it is stored: handle and owner attributes, without the timestamp."""

    handle: str | None
    owner: Pairs

    @classmethod
    def of(cls, held: Allocation) -> Holder:
        """The holder that an allocation names."""
        attribute = held.attribute
        return cls(attribute.handle, _without_time(attribute.owner))

    @classmethod
    def of_request(cls, request: AssignRequest) -> Holder:
        """The holder that a request assigns to."""
        return cls(request.handle, tuple(sorted((*request.owner, ("node", request.node)))))


@frozen(kw_only=True)
class CallScope:
    """The holders and addresses that a call may change.

    Until the call ends, the stored records of both are unknown. ``recorded`` are those of the addresses that the model
    had as held.
    """

    holders: frozenset[Holder] = frozenset()
    addresses: frozenset[Address] = frozenset()
    recorded: frozenset[Address] = frozenset()


@define
class AllocationModel:
    """Addresses and their holders, as answers assigned them.

    ``sequence_numbers`` has the stored sequence number of each held address. ``uncertain`` are the holders that may
    hold any address. ``pods`` are the pods that exist, handle to node; ``deleted_pods`` are the handles of the others,
    and ``nodes`` the nodes that exist. ``stale_endpoints`` are handles whose endpoints may list too many addresses,
    because these were released one by one or the pod was deleted. ``in_flight`` has the scopes of calls that have not
    ended.
    """

    held: dict[Address, Holder] = field(default=Factory(dict))
    sequence_numbers: dict[Address, int] = field(default=Factory(dict))
    uncertain: set[Holder] = field(default=Factory(set))
    pods: dict[str, str] = field(default=Factory(dict))
    deleted_pods: set[str] = field(default=Factory(set))
    nodes: set[str] = field(default=Factory(set))
    stale_endpoints: set[str] = field(default=Factory(set))
    in_flight: list[CallScope] = field(default=Factory(list))

    def held_by(self, handle: str | None) -> frozenset[Address]:
        """The addresses that the model has for a handle."""
        return frozenset(address for address, holder in self.held.items() if holder.handle == handle)

    # --- before a call -----------------------------------------------------------------------------------------------

    def begin_call(self, operation: StoreOperation | RunCollector) -> CallScope:
        """Record that an operation starts; its scope."""
        scope = self._scope_of(operation)
        self.in_flight.append(scope)
        return scope

    def _scope_of(self, operation: StoreOperation | RunCollector) -> CallScope:
        match operation:
            case Assign(request=request):
                self._add_pod(request)
                return CallScope(holders=frozenset({Holder.of_request(request)}))
            case EnsureBlocks(request=request):
                self.nodes.add(request.node)
            case ClaimBlocks(claimant=claimant) if owner_node(claimant):
                self.nodes.add(owner_node(claimant))
            case Release(request=released):
                self.stale_endpoints.add(released.handle)
                if released.sequence is None and self.pods.pop(released.handle, None) is not None:
                    self.deleted_pods.add(released.handle)
                held = self.held_by(released.handle)
                return self._scope_of_addresses(
                    a for a in held if released.sequence in (None, self.sequence_numbers[a])
                )
            case ReleaseAddresses(items=items):
                return self._scope_of_addresses(item.address for item in items)
            case ChangeOwner(change=change) if change.owner is not None:
                scope = self._scope_of_addresses((change.address,))
                new = Holder(change.handle, _without_time(change.owner))
                return evolve(scope, holders=scope.holders | {new})
            case DeletePod(handle=handle):
                self._delete_pod(handle)
            case DeleteResource(key=key) if key.kind == NODE:
                self.delete_node(key.name)
            case _:
                pass
        return CallScope()

    def _scope_of_addresses(self, addresses: Iterable[Address]) -> CallScope:
        named = frozenset(addresses)
        promised = named & self.held.keys()
        return CallScope(holders=frozenset(self._forget_addresses(promised)), addresses=named, recorded=promised)

    def delete_node(self, node: str) -> None:
        """Record that a node and its pods are deleted."""
        self.nodes.discard(node)
        for handle in [handle for handle, home in self.pods.items() if home == node]:
            self._delete_pod(handle)

    def rename_node(self, node: str, name: str) -> None:
        """Record that a node has another name; its pods go on, and their stored owners name the old one."""
        self.nodes.discard(node)
        self.nodes.add(name)
        self.pods = {handle: name if home == node else home for handle, home in self.pods.items()}

    def _add_pod(self, request: AssignRequest) -> None:
        self.nodes.add(request.node)
        if request.handle is not None and any(name == "pod" for name, _value in request.owner):
            self.pods[request.handle] = request.node
            self.deleted_pods.discard(request.handle)

    def _delete_pod(self, handle: str) -> None:
        self.pods.pop(handle, None)
        self.deleted_pods.add(handle)
        self.stale_endpoints.add(handle)
        self.uncertain |= self._forget_addresses(self.held_by(handle))

    def _forget_addresses(self, addresses: Iterable[Address]) -> set[Holder]:
        """Remove addresses from the model; their holders."""
        found: set[Holder] = set()
        for address in tuple(addresses):
            found.add(self.held.pop(address))
            del self.sequence_numbers[address]
        return found

    # --- after a call ------------------------------------------------------------------------------------------------

    def end_call(self, call: ObservedCall, scope: CallScope) -> None:
        """Record the answer of a call. Its holders are uncertain, unless it succeeded."""
        self.in_flight.remove(scope)
        answer = call.answer
        if isinstance(answer, ProcessDiedAnswer | OutcomeUnknown):
            self.uncertain |= scope.holders
        match call.operation:
            case Assign(request=request) if isinstance(answer, Assignment):
                self._add_pod(request)
                self._record_assignment(
                    {given.address for given in answer.addresses}, call.after, Holder.of_request(request)
                )
            case Assign() if call.is_certainly_refused:
                pass
            case Release(request=released) if isinstance(answer, Released):
                if released.sequence is None:
                    # Addresses that were assigned during the release may be free too.
                    self._forget_addresses(a for a in self.held_by(released.handle) if a not in call.after.held)
                    self.uncertain = {holder for holder in self.uncertain if holder.handle != released.handle}
            case ReleaseAddresses() | ChangeOwner():
                self._reconcile(scope, call.after)
            case _:
                self.uncertain |= scope.holders

    def _record_assignment(self, given: Iterable[Address], state: StoredState, holder: Holder) -> None:
        # V1: an assigned address was not held by another, and is stored for the holder of the request.
        for address in given:
            allocation = state.held.get(address)
            if allocation is None:
                raise AssertionError(f"V1: {address} was assigned to {holder}, and is stored as free")
            found, before = Holder.of(allocation), self.held.get(address)
            expect(before is None or before == found, f"V1: {address} of {before} was assigned to {holder}")
            is_holder = found.handle == holder.handle and (found in (holder, before) or self._may_hold(found))
            expect(is_holder, f"V1: {address} was assigned to {holder} and is stored as held by {found}")
            self._record(address, allocation)
        self.stale_endpoints.discard(holder.handle or "")

    def _reconcile(self, scope: CallScope, state: StoredState) -> None:
        """Take over the stored holders of a call's addresses, as far as the call may have changed them."""
        for address in scope.addresses:
            allocation = state.held.get(address)
            if allocation is None:
                # Freed, perhaps after it was assigned to another holder meanwhile.
                freed = {*scope.holders, *self._forget_addresses({address} & self.held.keys())}
                self.stale_endpoints.update(holder.handle or "" for holder in freed)
            elif Holder.of(allocation) in scope.holders:
                if address in {*scope.recorded, *self.held}:
                    self._record(address, allocation)
                else:  # the holder before was uncertain, so the new one is too
                    self.uncertain.add(Holder.of(allocation))

    def _record(self, address: Address, allocation: Allocation) -> None:
        holder = Holder.of(allocation)
        if holder.handle in self.deleted_pods:
            self.uncertain.add(holder)
        else:
            self.held[address] = holder
            self.sequence_numbers[address] = allocation.sequence

    def _may_hold(self, holder: Holder) -> bool:
        return holder in self.uncertain or any(holder in scope.holders for scope in self.in_flight)

    # --- at any time -------------------------------------------------------------------------------------------------

    def check_state(self, state: StoredState) -> None:
        """V1: every assigned address is held under its sequence number, and no other address is held."""
        in_flight = frozenset(address for scope in self.in_flight for address in scope.addresses)
        for address, holder in self.held.items():
            if address not in in_flight:
                self._check_address(address, holder, state)
        for address, allocation in state.held.items():
            if address not in self.held:
                found = Holder.of(allocation)
                expect(self._may_hold(found), f"V1: {found} holds {address}, which was never assigned to it")
        for handle in self.pods.keys() - self.stale_endpoints:
            named = set(state.endpoints.get(handle, ())) - in_flight
            expect(named <= state.held_by(handle), f"V1: the endpoint of {handle} names {named}, not all its own")

    def _check_address(self, address: Address, holder: Holder, state: StoredState) -> None:
        allocation = state.held.get(address)
        if allocation is None:
            raise AssertionError(f"V1: {address} was assigned to {holder} and is not held any more")
        expect_same(Holder.of(allocation), holder, f"V1: who holds {address}")
        expect_same(
            allocation.sequence,
            self.sequence_numbers[address],
            f"V1: the sequence number of {address}, held by {holder}",
        )


def _without_time(owner: Pairs) -> Pairs:
    return tuple(pair for pair in owner if pair[0] != "timestamp")
