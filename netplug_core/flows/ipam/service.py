"""The block IPAM: assignments and releases with their locks, turns, endpoints and caches.

``wiring`` makes one for a call, or for the lifetime of a node process. It takes the host's lock, runs the pure
decisions of ``ipam.allocation`` through a transactor, and names what its cache keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, suppress
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from attrs import define, evolve, field, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.datastore.protocol import Atomicity, Datastore, EndpointStorage
from netplug_core.datastore.transaction import Transaction, Transactor, read_pages
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.ipam.allocation.decide import decide, queries
from netplug_core.ipam.allocation.pools import BlockOrder, hashed_start
from netplug_core.ipam.allocation.release import PartRelease, allocations, decide_release, held, release_queries
from netplug_core.ipam.allocation.request import (
    Assignment,
    AssignRequest,
    Attachment,
    Released,
    ReleaseItem,
    ReleaseRequest,
    Shortfall,
)
from netplug_core.ipam.model import BLOCK, Block, Handle, blocks_path, handle_query, is_within, raise_if_within
from netplug_core.ipam.outcome import CommitFull, left_out
from netplug_core.ipam.protocol import NO_ENDPOINT, EndpointWrites
from netplug_core.locks import AttemptLocks, no_lock
from netplug_core.log import Level, Log
from netplug_core.records import (
    CommitError,
    Create,
    Decision,
    Delete,
    Get,
    Kind,
    Malformed,
    NeedMore,
    OutcomeUnknown,
    Query,
    Record,
    Snapshot,
    TraceEntry,
    Update,
    Write,
)
from netplug_core.resources.clusterinformation import READINESS_GATE

if TYPE_CHECKING:
    from netplug_core.datastore.batch import RequestQueue
    from netplug_core.datastore.view import View
    from netplug_core.ipam.outcome import RecordMemory

__all__ = ["BlockIPAM", "read_within", "require_ready", "settle_endpoint"]


# --- the block IPAM ---------------------------------------------------------------------------------------------------


CLEANUP_TIMEOUT_S = 30.0
"""The longest that releasing what a failed assignment may have written can take."""

_PASSED_OVER = "stored records that cannot be read or judged are passed over; netplugctl ipam check lists them"
_MAX_REPORTED = 3


@frozen(kw_only=True)
class BlockIPAM:
    """``netplug-ipam``: an IPAM that stores blocks, affinities and handles in a datastore.

    ``chance`` (0 to 1) jitters the waits between attempts, and chooses whose blocks to borrow from. ``order`` says
    where a node starts in a pool. ``cache`` is what a resident process knows of the store; a process that serves one
    call has none. With a ``queue`` (of the same store and cache), assignments and releases of several callers share
    commits. ``lock`` is held while an assignment is read, decided and committed, not while it waits to try again, and
    only as long as the store answers: others of the machine must not wait for its conflicts and time-outs. It is waited
    for once. A release takes no lock. ``turn`` is held by each attempt of an assignment or a release: in a process that
    serves calls at the same time, those that would only make each other's commits fail go one after another.
    ``memory`` is what a resident process remembers of records that cannot be read or judged; ``log`` takes a line when
    there is a new one, or one has changed.
    """

    datastore: Datastore
    clock: Clock
    chance: Callable[[], float]
    order: BlockOrder = hashed_start
    cache: View | None = None
    queue: RequestQueue | None = None
    lock: Callable[[Deadline], AbstractContextManager[object]] = no_lock
    turn: Callable[[Deadline], AbstractContextManager[object]] = no_lock
    memory: RecordMemory | None = None
    log: Log | None = None

    def assign(self, request: AssignRequest, endpoint: EndpointWrites, *, deadline: Deadline) -> Assignment:
        """Assign the wanted addresses and store the endpoint, in one commit.

        A request that accepts fewer addresses takes several where they lie in more blocks than one commit changes.
        """
        handle = None if request.handle is None else handle_query(request.handle)
        record, locks = _CommitRecord(self._is_ordered, handle), AttemptLocks(turn=self.turn, lock=self.lock)
        draw = _drawn_once(self.chance)

        def decided(snapshot: Snapshot) -> Decision[Assignment] | NeedMore:
            decision = decide(self._completed(snapshot), request, self.clock.now_ns(), self.order, draw)
            if isinstance(decision, NeedMore):
                return decision
            record.passed_over = decision.passed_over
            if isinstance(decision.result, NetplugError):
                return decision
            # The endpoint comes last: an ordered store may apply a prefix, and an endpoint must not name addresses
            # that are not held.
            part = endpoint.writes(snapshot, decision.result)
            if isinstance(part, NetplugError):
                return Decision((), part)
            return part if isinstance(part, NeedMore) else decision.with_writes(after=part)

        assumed_absent = () if handle is None else (handle, *self._absent_before(endpoint))
        wanted = (*queries(request), *endpoint.queries)
        try:
            while True:
                transactor = self._transactor(deadline, assumed_absent, record, locks.taken)
                made = transactor.run(wanted, decided).get_result()
                if handle is None or not _is_cut_by_commit(made):
                    return made
                assumed_absent = ()  # the handle exists now
        except (NetplugError, KeyboardInterrupt, SystemExit) as error:
            if request.handle is not None and record.may_have_written_handle and record.handle_existed is not True:
                self._release_after_failure(
                    ReleaseRequest(handle=request.handle, node=request.node), endpoint, record, error
                )
            raise
        finally:
            self._forget_view(endpoint)
            self._release_leftovers(record.unreleased)
            self._report(record.passed_over)

    def _completed(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the settings that were last known, where those in it cannot be read."""
        return snapshot if self.memory is None else self.memory.completed(snapshot)

    def _report(self, passed_over: Sequence[TraceEntry]) -> None:
        """Log what a decision passed over, as far as that is new: one line, however many records these are."""
        if not passed_over:
            return
        memory = self.memory
        new = tuple(map(str, passed_over)) if memory is None else memory.note(passed_over, self.clock.monotonic())
        if new and self.log is not None:
            more = {"further": len(new) - _MAX_REPORTED} if len(new) > _MAX_REPORTED else {}
            self.log(Level.WARNING, _PASSED_OVER, records="; ".join(new[:_MAX_REPORTED]), **more)

    def _release_after_failure(
        self, request: ReleaseRequest, endpoint: EndpointWrites, record: _CommitRecord, error: BaseException
    ) -> None:
        """Release what a failed or interrupted call may have written, if its handle held nothing before.

        It has a deadline of its own. The caller gets the call's error, whatever happens here; the runtime's DEL frees
        what is left.
        """
        if self.cache is not None:
            self.cache.invalidate()  # it may lack writes of the interrupted call
        deadline = Deadline.after(self.clock, CLEANUP_TIMEOUT_S)
        try:
            if record.handle_existed is False or self._has_only(request.handle, record.assigned(), deadline):
                self.release(request, endpoint, deadline=deadline)
        except NetplugError as failure:
            error.add_note(f"what it had written could not be taken back: {failure}")

    def _has_only(self, handle: str, assigned: AbstractSet[tuple[Address, int]], deadline: Deadline) -> bool:
        """Whether a handle holds only these addresses under these numbers: those that this call assigned.

        A resident process assumes that the handle does not exist, so it has not read whether it held addresses before.
        """

        def decided(snapshot: Snapshot) -> Decision[bool] | NeedMore:
            found = allocations(snapshot, handle)
            if isinstance(found, NeedMore):
                return found
            return Decision((), {(held.address, held.sequence) for held in found} <= assigned)

        wanted = release_queries(ReleaseRequest(handle=handle))
        return Transaction(self.datastore, self._pace(deadline)).run(wanted, decided).get_result()

    def _release_leftovers(self, unreleased: Sequence[ReleaseItem]) -> None:
        """Release addresses without a handle that failed attempts assigned: no later release could name them."""
        if not unreleased:
            return

        with suppress(NetplugError):  # the call is answered already; the attributes of what is left name its owner
            self._release_items(unreleased, Deadline.after(self.clock, CLEANUP_TIMEOUT_S))

    def release(self, request: ReleaseRequest, endpoint: EndpointWrites, *, deadline: Deadline) -> Released:
        """Release what the handle holds and delete the endpoint, in one commit; a handle of many blocks takes several.

        The endpoint goes with the first commit, the handle with the last. A record that cannot be read keeps nothing
        but itself: the error comes when everything else is released.
        """
        freed: set[Address] = set()
        part = self._release_part(request, endpoint, deadline, None)
        damaged = [part.damaged]
        freed.update(part.addresses)
        while part.last is not None:
            part = self._release_part(request, NO_ENDPOINT, deadline, part.last)
            damaged.append(part.damaged)
            freed.update(part.addresses)
        for item in request.addresses:
            if item.address not in freed:  # one by one: an address that is another's by now must not keep others held
                freed.update(self._release_items((item,), deadline))
        for error in damaged:
            if error is not None:
                raise error
        return Released(addresses=tuple(sorted(freed)))

    def _release_items(self, items: Sequence[ReleaseItem], deadline: Deadline) -> tuple[Address, ...]:
        from netplug_core.flows.ipam.addresses import release_addresses  # a flow, which few calls need

        return release_addresses(self.datastore, items, pace=self._pace(deadline)).released

    def _release_part(
        self, request: ReleaseRequest, endpoint: EndpointWrites, deadline: Deadline, after: Prefix | None
    ) -> PartRelease:
        freed: set[Address] = set()
        record = _CommitRecord(self._is_ordered, None)

        def decided(snapshot: Snapshot) -> Decision[PartRelease] | NeedMore:
            known = self._completed(snapshot)
            damaged = [found for found in known.results.values() if found.malformed]
            record.passed_over = left_out(known) if damaged else ()
            decision = decide_release(known, request, self.clock.now_ns(), after)
            if isinstance(decision, NeedMore) or isinstance(decision.result, NetplugError):
                return decision
            # An earlier attempt may have freed addresses that are not held any more, in the blocks that it may have
            # written before it lost a race or the reply.
            unwritten = {address for address in freed if not record.may_have_written(address)}
            freed.difference_update(unwritten)
            freed.update(decision.result.addresses)
            try:
                part = endpoint.writes(snapshot, None)
            except Malformed as error:  # the addresses are those of the handle, whatever the endpoint says
                return evolve(decision, result=evolve(decision.result, damaged=error))
            if isinstance(part, NetplugError):
                return Decision((), part)
            return part if isinstance(part, NeedMore) else decision.with_writes(part)

        self._forget_view(endpoint)  # an assignment for another container of the pod may be at work
        wanted = (*release_queries(request), *endpoint.queries)
        try:
            part = self._transactor(deadline, (), record, self.turn).run(wanted, decided).get_result()
        finally:
            self._report(record.passed_over)
        return evolve(part, addresses=tuple(freed))

    def held(self, handle: str, *, deadline: Deadline) -> Released:
        """The addresses that a handle holds now."""

        def decided(snapshot: Snapshot) -> Decision[Released] | NeedMore:
            found = held(snapshot, handle)
            return found if isinstance(found, NeedMore) else Decision((), Released(addresses=found))

        wanted = release_queries(ReleaseRequest(handle=handle))
        return Transaction(self.datastore, self._pace(deadline)).run(wanted, decided).get_result()

    def probe(self, request: AssignRequest, *, deadline: Deadline) -> tuple[Family, ...]:
        """Decide an assignment without committing it."""

        def decided(snapshot: Snapshot) -> Decision[Assignment] | NeedMore:
            wanted = evolve(request, shortfall=Shortfall.REFUSE)
            decision = decide(self._completed(snapshot), wanted, self.clock.now_ns(), self.order)
            return decision if isinstance(decision, NeedMore) else evolve(decision, writes=())

        Transaction(self.datastore, self._pace(deadline), READINESS_GATE).run(queries(request), decided)
        return tuple(dict.fromkeys(wanted.family for wanted in request.wanted))

    def attachments(self, *, node: str, network: str, deadline: Deadline) -> tuple[Attachment, ...]:
        """Every attachment of a network that holds addresses through a node.

        All blocks are read, page by page: a node may hold addresses in blocks of other nodes. Attachments in a block
        that cannot be read are left for a later call.
        """
        from netplug_core.ipam.gc.candidates import attachments  # the collector's rules, which only GC needs

        blocks = (record.value for record in read_pages(self.datastore, BLOCK, deadline=deadline, malformed=[]))
        return attachments(blocks, node=node, network=network)

    def forward(self, *, deadline: Deadline) -> None:
        """Nothing: the datastore has everything."""

    def _absent_before(self, endpoint: EndpointWrites) -> tuple[Query, ...]:
        """What does not exist before an ADD. An endpoint that is a view of its pod exists with the pod."""
        return () if self._has_views else endpoint.queries

    def _forget_view(self, endpoint: EndpointWrites) -> None:
        """Let the next call read the endpoint, if it is a view of its pod and no watch keeps it true."""
        if self._has_views and self.cache is not None and self.cache.endpoint_watch is None:
            self.cache.forget(endpoint.queries)

    @property
    def _has_views(self) -> bool:
        return self.datastore.description.endpoints is EndpointStorage.PODS

    @property
    def _is_ordered(self) -> bool:
        return self.datastore.description.atomicity is Atomicity.ORDERED

    def _transactor(
        self,
        deadline: Deadline,
        assume_absent: tuple[Query, ...],
        record: _CommitRecord,
        turn: Callable[[Deadline], AbstractContextManager[object]],
    ) -> Transactor:
        pace = self._pace(deadline)
        transaction = Transaction(self.datastore, pace, READINESS_GATE, self.cache, assume_absent, record, turn=turn)
        if self.queue is None:
            return transaction

        from netplug_core.datastore.batch import BatchTransactor  # a process that serves one call does without

        return BatchTransactor(self.queue, transaction)

    def _pace(self, deadline: Deadline) -> Pace:
        return Pace(clock=self.clock, deadline=deadline, chance=self.chance)


@define
class _CommitRecord:
    """What the commits of one call may have written; the transaction keeps it.

    ``may_have_written_handle`` and ``written_blocks``: a commit may have written the call's handle, or these blocks.
    ``handle_existed`` is None as long as the handle was not read: a resident process assumes that it does not
    exist. A commit that failed before the handle has left only affinities, which the node's next request heals.
    ``unreleased``: addresses without a handle that an ordered store assigned in a partly applied commit; the next
    attempt cannot know that they are its own. ``passed_over`` is that of the last decision.
    """

    is_ordered: bool
    handle: Get[Handle] | None
    written_blocks: set[Prefix] = field(factory=set)
    may_have_written_handle: bool = False
    handle_existed: bool | None = None
    attempted: list[Sequence[Write]] = field(factory=list)
    unreleased: list[ReleaseItem] = field(factory=list)
    passed_over: Sequence[TraceEntry] = ()

    def note_read(self, snapshot: Snapshot) -> None:
        """Note whether the handle existed before the call wrote anything."""
        if self.handle is not None and not self.may_have_written_handle and snapshot.has(self.handle):
            self.handle_existed = snapshot.find(self.handle) is not None

    def note_commit(self, writes: Sequence[Write], error: BaseException | None) -> None:
        """Note which writes of a commit may be applied."""
        self.attempted.append(writes)
        if error is None:
            self.may_have_written_handle = True
        elif isinstance(error, (CommitError, OutcomeUnknown)):
            self._note_written(writes if isinstance(error, OutcomeUnknown) else writes[: error.applied])
            self._note_unreleased(writes[: error.applied])
        elif not isinstance(error, NetplugError):  # interrupted: any write may be applied
            self._note_written(writes)
        elif type(error) is not Unavailable and self.is_ordered:
            # ``Unavailable`` means that nothing was sent. Any other error, such as a missing right, may have stopped an
            # ordered store at any write, after it applied those before.
            self._note_written(writes[:-1])
            self._note_unreleased(writes[:-1])

    def assigned(self) -> frozenset[tuple[Address, int]]:
        """The addresses that the commits assigned if they were applied, with their sequence numbers."""
        items = (item for writes in self.attempted for write in writes for item in _assigned_by(write))
        return frozenset((item.address, item.sequence or 0) for item in items)

    def may_have_written(self, address: Address) -> bool:
        """Whether a commit may have written the block of an address."""
        return any(prefix.contains(address) for prefix in self.written_blocks)

    def _note_unreleased(self, writes: Sequence[Write]) -> None:
        if self.handle is None:
            self.unreleased.extend(chain.from_iterable(map(_assigned_by, writes)))

    def _note_written(self, writes: Sequence[Write]) -> None:
        changes = [write for write in writes if isinstance(write, (Create, Update, Delete))]
        self.written_blocks.update(
            write.value.prefix
            for write in changes
            if isinstance(write, (Create, Update)) and isinstance(write.value, Block)
        )
        self.may_have_written_handle = self.may_have_written_handle or any(
            self.handle == Get(write.key) for write in changes
        )


def _assigned_by(write: Write) -> Iterator[ReleaseItem]:
    """The addresses that a write assigns: those whose number is one less than the block's."""
    if isinstance(write, Update) and isinstance(write.value, Block):
        for held in write.value.held():
            if held.sequence == write.value.sequence - 1:
                yield ReleaseItem(address=held.address, sequence=held.sequence)


def _is_cut_by_commit(assignment: Assignment) -> bool:
    """Whether the same request gets more addresses by another commit."""
    if not assignment.shortfalls:
        return False

    return any(isinstance(shortfall, CommitFull) for shortfall in assignment.shortfalls)


def _drawn_once(chance: Callable[[], float]) -> Callable[[], float]:
    """Draws a number at the first call, if there is one, and returns it at every call.

    Most assignments draw none, so it has to be made in less time than ``functools.cache`` takes.
    """
    drawn: list[float] = []

    def draw() -> float:
        if not drawn:
            drawn.append(chance())
        return drawn[0]

    return draw


# --- its part about the endpoint --------------------------------------------------------------------------------------


def settle_endpoint(store: Datastore, endpoint: EndpointWrites, assignment: Assignment | None, *, pace: Pace) -> None:
    """Commit what an endpoint writes: for these addresses on ADD, for None on DEL.

    Raises:
        NetplugError: the endpoint refuses the call.
        Unavailable: the store does not answer, or the cluster is locked.
    """

    def decide(snapshot: Snapshot) -> Decision[None] | NeedMore:
        part = endpoint.writes(snapshot, assignment)
        if isinstance(part, NeedMore):
            return part
        return Decision((), part) if isinstance(part, NetplugError) else Decision(part, None)

    Transaction(store, pace, READINESS_GATE).run(endpoint.queries, decide)


def require_ready(store: Datastore, *, pace: Pace) -> None:
    """Return if the store answers and the cluster is not locked.

    Raises:
        Unavailable: it does not, or it is.
    """
    settle_endpoint(store, NO_ENDPOINT, None, pace=pace)


# --- ranges -----------------------------------------------------------------------------------------------------------


V = TypeVar("V")


def read_within(store: Datastore, kind: Kind[V], range_: Prefix, *, deadline: Deadline) -> Iterator[Record[V]]:
    """The blocks that have addresses of a range, or the affinities to them.

    Raises:
        Malformed: one of them cannot be understood; one elsewhere is passed over.
        Unavailable: the store does not answer.
    """
    path = blocks_path(range_.family) if kind == BLOCK else ()
    malformed: list[Malformed] = []
    for record in read_pages(store, kind, path, deadline=deadline, malformed=malformed):
        if is_within(record.key, range_):
            yield record
    raise_if_within(malformed, range_)
