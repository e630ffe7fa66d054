"""The datastore on an API server: an ordered store, one request a write.

Custom objects are kept by ``objects``; WorkloadEndpoints, Nodes and Profiles are what the cluster says of its own.
Which group the custom objects are in is found out once, by the first call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import evolve

from netplug_backends.kubernetes.client import Client, Request
from netplug_backends.kubernetes.keeper import (
    ConditionFailed,
    Found,
    Keeper,
    failure,
    listed,
    no_answer,
    object_of,
    revision_of,
    version_of,
)
from netplug_backends.kubernetes.layout import SORTS, Mode
from netplug_backends.kubernetes.objects import Objects
from netplug_backends.kubernetes.watching import Positions, Source, events
from netplug_core.clock import Deadline
from netplug_core.datastore.commits import fold, named_revision, refusal
from netplug_core.datastore.interface import Atomicity, DatastoreDescription
from netplug_core.errors import Unauthorized, Unavailable
from netplug_core.netconf.model import DEFAULT_ANNOTATION_PREFIX
from netplug_core.records import (
    Answer,
    Change,
    Create,
    Get,
    Kind,
    NotSupported,
    OutcomeUnknown,
    Query,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
    WatchExpired,
    Write,
    Written,
)

__all__ = ["KubernetesDatastore", "detect"]

_ALLOCATION = ("BlockAffinity", "IPAMBlock", "IPAMConfiguration", "IPAMHandle")
_VIEWS = ("Node", "Profile", "WorkloadEndpoint")


class KubernetesDatastore:
    """The records of a cluster.

    ``mode`` is the group of the custom objects, None to take the one that the cluster has. Where ``uses_pod_cidr``,
    addresses are not netplug's to assign, and the allocator's records are not kept. ``annotation_prefix`` is what the
    annotations of pods begin with.
    """

    def __init__(
        self,
        client: Client,
        *,
        mode: Mode | None = None,
        uses_pod_cidr: bool = False,
        annotation_prefix: str = DEFAULT_ANNOTATION_PREFIX,
    ) -> None:
        self._client = client
        self._mode = mode
        self._uses_pod_cidr = uses_pod_cidr
        self.annotation_prefix = annotation_prefix
        self._custom: Objects | None = None
        self._views: dict[str, Keeper] = {}

    @property
    def description(self) -> DatastoreDescription:
        """What this store is. It does not evaluate ``Require`` and ``RequireUnchanged``."""
        return DatastoreDescription(name="kubernetes", atomicity=Atomicity.ORDERED, location=self._client.location)

    def close(self) -> None:
        """Give up the connections."""
        self._client.close()

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Answer all queries, one after the other; see :class:`~netplug_core.datastore.interface.Datastore`.

        A list is answered whole, whatever its limit: the server's pages are not in path order. A kind of which only
        single keys were read, and none was there, has an empty revision: no watch can start from it.
        """
        answers: dict[Query, Answer] = {}
        revisions: dict[Kind[object], Revision] = {}
        # Lists come first: they know their kind's revision, and what is read first must not be newer than it says.
        for query in sorted(dict.fromkeys(queries), key=lambda query: isinstance(query, Get)):
            found = self._found(query, deadline)
            answers[query] = Answer(found.records)
            revisions.setdefault(query.kind, found.revision)
        return Snapshot(answers, revisions)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes one by one; see :class:`~netplug_core.datastore.interface.Datastore`."""
        fold(writes)  # refuses a list that makes no sense before any of it is applied
        for index, write in enumerate(writes):
            if isinstance(write, Create) and write.key.kind.name in _VIEWS:
                # The orchestrator alone makes these: a refusal, and now nothing has to be taken back after it.
                self._applied(write, index, (), deadline)
        made: list[Revision] = []
        for index, write in enumerate(writes):
            made.append(self._applied(write, index, made, deadline))
        return tuple(made)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[Change[object]]:
        """Changes after the revisions given; see :class:`~netplug_core.datastore.interface.Datastore`."""
        sources: list[Source] = []
        reached: dict[Kind[object], Positions] = {}
        for kind, revision in start.items():
            found = self._keeper(kind, deadline).sources(kind, revision)
            if not any(number for _, number in found):
                raise WatchExpired(revision)
            reached[kind] = Positions([number for _, number in found])
            sources += (Source(kind, *one, revision, place) for place, one in enumerate(found))
        for source in tuple(sources):
            if not source.number:
                yield from self._told(source, sources, reached[source.kind], deadline)
        for source, event in events(self._client, sources, deadline=deadline):
            change = self._keeper(source.kind, deadline).change(source.kind, event)
            if change is not None:
                number = version_of(revision_of(object_of(event))).number
                yield reached[source.kind].moved(source.place, change, number)

    def _told(
        self, source: Source, sources: list[Source], reached: Positions, deadline: Deadline
    ) -> Iterator[Change[object]]:
        """Everything in a collection, for a watch that is to begin with its beginning and goes on from there.

        One that stops before the end of it has not begun.
        """
        items, number = listed(self._client, source.request, deadline=deadline)
        for item in items:
            change = self._keeper(source.kind, deadline).change(source.kind, {"type": "ADDED", "object": item})
            if change is not None:
                yield reached.moved(source.place, change, "")
        sources[sources.index(source)] = evolve(source, number=number)
        reached.numbers[source.place] = number

    def _applied(self, write: Write, index: int, made: Sequence[Revision], deadline: Deadline) -> Revision:
        """One write of a commit, after those that made some revisions."""
        try:
            return self._written(write, made, deadline)
        except ConditionFailed as failed:
            raise refusal(write, index, failed.current, applied=len(made)) from None
        except OutcomeUnknown as error:
            raise evolve(error, applied=len(made)) from error
        except Unauthorized:
            raise  # it stays refused however often it is tried; callers take back what came before
        except Unavailable as error:
            if not made:
                raise
            raise OutcomeUnknown(error.what, error.cause, len(made)) from error

    # --- one query, one write --------------------------------------------------------------------------------------

    def _found(self, query: Query, deadline: Deadline) -> Found:
        keeper = self._keeper(query.kind, deadline)
        if isinstance(query, Get):
            return keeper.find(query, deadline=deadline)
        return keeper.find_all(query, deadline=deadline)

    def _written(self, write: Write, made: Sequence[Revision], deadline: Deadline) -> Revision:
        if isinstance(write, Require | RequireUnchanged):
            return named_revision(write)
        keeper = self._keeper(write.key.kind, deadline)
        if isinstance(write, Create):
            return keeper.create(write, deadline=deadline)
        revision = made[write.revision.index] if isinstance(write.revision, Written) else write.revision
        if isinstance(write, Update):
            return keeper.update(write, revision, deadline=deadline)
        return keeper.delete(write, revision, deadline=deadline)

    def _keeper(self, kind: Kind[object], deadline: Deadline) -> Keeper:
        if self._uses_pod_cidr and kind.name in _ALLOCATION:
            raise NotSupported("storing", kind, "addresses come from the nodes' pod CIDRs (USE_POD_CIDR)")
        if kind.name in SORTS:
            return self._objects(deadline)
        view = self._views.get(kind.name)
        if view is None:
            view = self._views[kind.name] = self._view(kind)
        return view

    def _view(self, kind: Kind[object]) -> Keeper:
        if kind.name == "WorkloadEndpoint":
            from netplug_backends.kubernetes.endpoints import Endpoints

            return Endpoints(self._client, self.annotation_prefix)
        if kind.name == "Node":
            from netplug_backends.kubernetes.nodes import Addressing, Nodes

            return Nodes(self._client, Addressing.POD_CIDR if self._uses_pod_cidr else Addressing.POOLS)
        if kind.name == "Profile":
            from netplug_backends.kubernetes.profiles import Profiles

            return Profiles(self._client)
        raise NotSupported("storing", kind, f"this release stores {', '.join(sorted((*SORTS, *_VIEWS)))}")

    def _objects(self, deadline: Deadline) -> Objects:
        custom = self._custom
        if custom is None:
            mode = self._mode or detect(self._client, deadline=deadline)
            custom = Objects(self._client, mode or Mode.V1)
            if mode is not None:  # as long as nothing is installed, whoever comes next looks again
                self._custom = custom
        return custom


def detect(client: Client, *, deadline: Deadline) -> Mode | None:
    """The group of custom objects that a cluster has: v3 only where there is no v1, None where there is neither.

    Both are there where a server in front of the v1 objects offers them as v3.
    """
    request = Request("GET", "/apis")
    reply = client.ask(request, deadline=deadline)
    if not reply.is_success:
        raise failure(client, request, reply)
    groups = reply.object.get("groups", "")
    if not isinstance(groups, list | None):
        raise no_answer(client, request, "list of groups")
    names = {group.get("name") for group in groups or () if isinstance(group, Mapping)}
    return next((mode for mode in (Mode.V1, Mode.V3) if mode.group in names), None)
