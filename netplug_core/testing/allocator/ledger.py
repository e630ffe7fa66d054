"""Who must hold what: the model that the store is compared with, kept from requests and answers alone.

An address that somebody was told is theirs is ``held`` until they give it back. Of a call that ended badly nobody knows
how far it came: whoever may have, or may still have, addresses is ``doubtful``, and what is stored of them may be.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import Factory, define, evolve, field, frozen

from netplug_core.addressing import Address
from netplug_core.ipam.affinity import owner_node
from netplug_core.ipam.block import Allocation, Pairs
from netplug_core.ipam.request import Assignment, AssignRequest, Released
from netplug_core.records import OutcomeUnknown
from netplug_core.resources.node import NODE
from netplug_core.testing.allocator.acts import (
    Assign,
    ChangeOwner,
    Claim,
    Collect,
    Ensure,
    Forget,
    Release,
    ReleaseAddresses,
    Remove,
    StoreAct,
)
from netplug_core.testing.allocator.calls import Call, Died
from netplug_core.testing.allocator.stored import Stored
from netplug_core.testing.bench import expect, expect_same

__all__ = ["Concern", "Holder", "Ledger"]


@frozen
class Holder:
    """Somebody with an address, as it is to be stored: handle and attributes, but for the time of day."""

    handle: str | None
    owner: Pairs

    @classmethod
    def of(cls, held: Allocation) -> Holder:
        """Who is stored as the holder of an address."""
        attribute = held.attribute
        return cls(attribute.handle, _without_time(attribute.owner))

    @classmethod
    def asking(cls, request: AssignRequest) -> Holder:
        """Who a request wants addresses for."""
        return cls(request.handle, tuple(sorted((*request.owner, ("node", request.node)))))


@frozen(kw_only=True)
class Concern:
    """What a call is about: until it has ended nobody knows what ``holders`` hold, nor who has ``addresses``.

    ``promised`` are those of the addresses that somebody had been told are theirs.
    """

    holders: frozenset[Holder] = frozenset()
    addresses: frozenset[Address] = frozenset()
    promised: frozenset[Address] = frozenset()


@define
class Ledger:
    """Addresses and their holders, as promised.

    ``numbers`` has the sequence number of each held address, as it was stored when it was promised. ``pods`` are the
    living workloads that an orchestrator knows, handle to node, ``buried`` those that have died, and ``nodes`` the
    nodes that exist. ``loose`` are handles whose endpoints say too much: somebody freed their addresses one by one, or
    the pod died. ``in_flight`` is what calls are about that have not ended.
    """

    held: dict[Address, Holder] = field(default=Factory(dict))
    numbers: dict[Address, int] = field(default=Factory(dict))
    doubtful: set[Holder] = field(default=Factory(set))
    pods: dict[str, str] = field(default=Factory(dict))
    buried: set[str] = field(default=Factory(set))
    nodes: set[str] = field(default=Factory(set))
    loose: set[str] = field(default=Factory(set))
    in_flight: list[Concern] = field(default=Factory(list))

    def held_by(self, handle: str | None) -> frozenset[Address]:
        """What was promised to a handle."""
        return frozenset(address for address, holder in self.held.items() if holder.handle == handle)

    # --- before a call -----------------------------------------------------------------------------------------------

    def begin(self, act: StoreAct | Collect) -> Concern:
        """Something is about to be done: what it is about."""
        concern = self._concern(act)
        self.in_flight.append(concern)
        return concern

    def _concern(self, act: StoreAct | Collect) -> Concern:
        match act:
            case Assign(request=request):
                self._live(request)
                return Concern(holders=frozenset({Holder.asking(request)}))
            case Ensure(request=request):
                self.nodes.add(request.node)
            case Claim(claimant=claimant) if owner_node(claimant):
                self.nodes.add(owner_node(claimant))
            case Release(request=released):
                self.loose.add(released.handle)
                if released.sequence is None:
                    self.pods.pop(released.handle, None)
                held = self.held_by(released.handle)
                return self._about(a for a in held if released.sequence in (None, self.numbers[a]))
            case ReleaseAddresses(items=items):
                return self._about(item.address for item in items)
            case ChangeOwner(change=change) if change.owner is not None:
                concern = self._about((change.address,))
                new = Holder(change.handle, _without_time(change.owner))
                return evolve(concern, holders=concern.holders | {new})
            case Forget(handle=handle):
                self._die(handle)
            case Remove(key=key) if key.kind == NODE:
                self.lose_node(key.name)
            case _:
                pass
        return Concern()

    def _about(self, addresses: Iterable[Address]) -> Concern:
        named = frozenset(addresses)
        promised = named & self.held.keys()
        return Concern(holders=frozenset(self._strike(promised)), addresses=named, promised=promised)

    def lose_node(self, node: str) -> None:
        """A node is gone, and the pods on it with it."""
        self.nodes.discard(node)
        for handle in [handle for handle, home in self.pods.items() if home == node]:
            self._die(handle)

    def _live(self, request: AssignRequest) -> None:
        self.nodes.add(request.node)
        if request.handle is not None and any(name == "pod" for name, _value in request.owner):
            self.pods[request.handle] = request.node
            self.buried.discard(request.handle)

    def _die(self, handle: str) -> None:
        self.pods.pop(handle, None)
        self.buried.add(handle)
        self.loose.add(handle)
        self.doubtful |= self._strike(self.held_by(handle))

    def _strike(self, addresses: Iterable[Address]) -> set[Holder]:
        """Strike out some promises; to whom they were made."""
        found: set[Holder] = set()
        for address in tuple(addresses):
            found.add(self.held.pop(address))
            del self.numbers[address]
        return found

    # --- after it ----------------------------------------------------------------------------------------------------

    def end(self, call: Call, concern: Concern) -> None:
        """Something has been done: note what was promised; whom it concerned is in doubt unless it ended well."""
        self.in_flight.remove(concern)
        answer = call.answer
        if isinstance(answer, Died | OutcomeUnknown):
            self.doubtful |= concern.holders
        match call.act:
            case Assign(request=request) if isinstance(answer, Assignment):
                self._live(request)
                self._promise({given.address for given in answer.addresses}, call.after, Holder.asking(request))
            case Assign() if call.is_certainly_refused:
                pass
            case Release(request=released) if isinstance(answer, Released):
                if released.sequence is None:
                    # What it was given while it was being released may be gone too.
                    self._strike(a for a in self.held_by(released.handle) if a not in call.after.held)
                    self.doubtful = {holder for holder in self.doubtful if holder.handle != released.handle}
            case ReleaseAddresses() | ChangeOwner():
                self._correct(concern, call.after)
            case _:
                self.doubtful |= concern.holders

    def _promise(self, given: Iterable[Address], stored: Stored, holder: Holder) -> None:
        # V1, the moment it matters: what is promised was nobody else's, and is stored under the one who asked.
        for address in given:
            allocation = stored.held.get(address)
            if allocation is None:
                raise AssertionError(f"V1: {address} was given to {holder}, and nobody is stored as holding it")
            found, before = Holder.of(allocation), self.held.get(address)
            expect(before is None or before == found, f"V1: {address} of {before} was given to {holder}")
            is_theirs = found.handle == holder.handle and (found in (holder, before) or self._may_hold(found))
            expect(is_theirs, f"V1: {address} was given to {holder} and is stored as held by {found}")
            self._note(address, allocation)
        self.loose.discard(holder.handle or "")

    def _correct(self, concern: Concern, stored: Stored) -> None:
        """Go by what is stored of addresses that a call was about, within what it may have done."""
        for address in concern.addresses:
            allocation = stored.held.get(address)
            if allocation is None:
                # Freed, perhaps from somebody who was given it meanwhile.
                freed = {*concern.holders, *self._strike({address} & self.held.keys())}
                self.loose.update(holder.handle or "" for holder in freed)
            elif Holder.of(allocation) in concern.holders:
                if address in {*concern.promised, *self.held}:
                    self._note(address, allocation)
                else:  # whose it was is in doubt, and so it is under the new name
                    self.doubtful.add(Holder.of(allocation))

    def _note(self, address: Address, allocation: Allocation) -> None:
        holder = Holder.of(allocation)
        if holder.handle in self.buried:
            self.doubtful.add(holder)
        else:
            self.held[address] = holder
            self.numbers[address] = allocation.sequence

    def _may_hold(self, holder: Holder) -> bool:
        return holder in self.doubtful or any(holder in concern.holders for concern in self.in_flight)

    # --- at any time -------------------------------------------------------------------------------------------------

    def compare(self, stored: Stored) -> None:
        """V1: every promise stands, under the number it was given; and nobody has what was not asked for."""
        open_ones = frozenset(address for concern in self.in_flight for address in concern.addresses)
        for address, holder in self.held.items():
            if address not in open_ones:
                self._compare_promise(address, holder, stored)
        for address, allocation in stored.held.items():
            if address not in self.held:
                found = Holder.of(allocation)
                expect(self._may_hold(found), f"V1: {found} holds {address}, and was never given it")
        for handle in self.pods.keys() - self.loose:
            named = set(stored.endpoints.get(handle, ())) - open_ones
            expect(named <= stored.held_by(handle), f"V1: the endpoint of {handle} names {named}, not all its own")

    def _compare_promise(self, address: Address, holder: Holder, stored: Stored) -> None:
        allocation = stored.held.get(address)
        if allocation is None:
            raise AssertionError(f"V1: {address} was promised to {holder} and is not held any more")
        expect_same(Holder.of(allocation), holder, f"V1: who holds {address}")
        expect_same(allocation.sequence, self.numbers[address], f"V1: the number under which {holder} has {address}")


def _without_time(owner: Pairs) -> Pairs:
    return tuple(pair for pair in owner if pair[0] != "timestamp")
