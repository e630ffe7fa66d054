"""One operation of an allocator as the harness observed it: what was stored before and after it, and its answer.

``harness`` makes it, ``call_invariants`` and ``model`` check it.
"""

from __future__ import annotations

from attrs import frozen

from netplug_core.errors import AllocationError, NetplugError
from netplug_core.ipam.allocation.request import ReleaseRequest, Specific
from netplug_core.ipam.model import Handle, handle_key
from tests.harness.allocator.operations import Assign, EnsureBlocks, Release, RunCollector, StoreOperation
from tests.harness.allocator.state import PossibleConfigurations, StoredState

__all__ = ["Answer", "ObservedCall", "ProcessDiedAnswer"]


@frozen
class ProcessDiedAnswer:
    """The answer of a call whose process died."""


Answer = object
"""What a call returned, the error that it raised, or ``ProcessDiedAnswer``."""


@frozen(kw_only=True, eq=False)
class ObservedCall:
    """One operation, from its start to its end.

    ``writes`` has the number of writes of each call to the store, 0 for a read. ``may_use_cache`` is whether the
    process has run an operation before, so that it may have cached records. ``configurations`` are those by which it
    may have decided: one that an ordered store had shortly before the call counts too if it may use its cache.
    ``has_partial_commit`` is whether an ordered store applied only the first writes of a commit.
    """

    operation: StoreOperation | RunCollector
    before: StoredState
    after: StoredState
    answer: Answer
    writes: tuple[int, ...]
    started_ns: int
    ended_ns: int
    configurations: PossibleConfigurations
    may_use_cache: bool = False
    has_partial_commit: bool = False

    @property
    def commits(self) -> int:
        """How many commits were sent."""
        return sum(count > 0 for count in self.writes)

    @property
    def reads(self) -> int:
        """How many reads were sent."""
        return len(self.writes) - self.commits

    @property
    def is_certainly_refused(self) -> bool:
        """Whether it is an assignment that failed, and its handle certainly holds no more than before.

        It is not certain where compensation failed, or is not allowed because the handle held addresses before.
        """
        if not isinstance(self.operation, Assign) or not isinstance(self.answer, NetplugError):
            return False
        handle = self.operation.request.handle
        is_new = handle is not None and not self.before.held_by(handle)
        return isinstance(self.answer, AllocationError) or (is_new and not hasattr(self.answer, "__notes__"))

    @property
    def needs_damaged(self) -> bool:
        """Whether a record that the call needs is damaged: its handle, a block of it, or that of a specific address.

        A commit of the call itself that was applied in part may have written a handle that names a damaged block.
        """
        if not self.before.damaged or not isinstance(self.operation, Assign | EnsureBlocks | Release):
            return False
        if self.has_partial_commit:
            return True
        request, blocks = self.operation.request, self.before.damaged_blocks
        if request.handle is not None:
            handle = self.before.handles.get(request.handle, Handle())
            if handle_key(request.handle) in self.before.damaged or any(p in blocks for p, _count in handle.blocks):
                return True
        specific = [] if isinstance(request, ReleaseRequest) else request.wanted
        addresses = [wanted.address for wanted in specific if isinstance(wanted, Specific)]
        return any(block.contains(address) for block in blocks for address in addresses)

    @property
    def has_no_effect(self) -> bool:
        """Whether the stored records are the same before and after the call."""
        old, new = self.before, self.after
        return (old.blocks, old.affinities, old.handles, old.endpoints) == (
            new.blocks,
            new.affinities,
            new.handles,
            new.endpoints,
        )
