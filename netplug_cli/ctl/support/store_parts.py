"""The parts of a bundle that the datastore has: the cluster, the resources, and the state of address management."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from netplug_cli.ctl.ipam_tables import check_lines, usage_lines
from netplug_cli.ctl.session import Session
from netplug_cli.ctl.support.parts import failed, read_guarded
from netplug_core.clock import Deadline
from netplug_core.datastore.paging import read_pages
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import NetplugError, NotServed, Unavailable
from netplug_core.flows.ipam.check import check_ipam
from netplug_core.flows.resources.cluster import find_cluster_information
from netplug_core.flows.resources.overview import read_utilization
from netplug_core.flows.resources.read import with_defaults
from netplug_core.records import Malformed
from netplug_core.resources.codec import to_mapping
from netplug_core.resources.kinds import KINDS, ResourceKind
from netplug_core.support.bundle import DocumentsPart, Part, TextPart

__all__ = ["read_store_parts"]

CLUSTER = "cluster.yaml"
SHOW, CHECK = "ipam/show.txt", "ipam/check.txt"

_MAX_DOCUMENTS = 10_000  # of a kind; the file of a kind has space for about as many

_ReadStore = Callable[[Datastore, Deadline], Iterator[Part]]


def read_store_parts(session: Session, deadline: Deadline) -> Iterator[Part]:
    """All parts of the datastore. If it does not answer, the rest of them says so, and it is not asked again."""
    of_kinds: list[tuple[str, _ReadStore]] = [(_path_of(row), partial(_read_resources, row)) for row in KINDS]
    waiting = [(CLUSTER, _read_cluster), *of_kinds, (SHOW, _read_show), (CHECK, _read_check)]
    try:
        with session.open_datastore_of_any_release() as store:
            while waiting:
                path, read = waiting[0]
                yield from read_guarded(path, partial(read, store, deadline), deadline, passed_on=(Unavailable,))
                del waiting[0]
    except NetplugError as error:
        yield from (failed(path, str(error)) for path, _read in waiting)


def _path_of(row: ResourceKind) -> str:
    return f"resources/{row.plural}.yaml"


def _read_cluster(store: Datastore, deadline: Deadline) -> Iterator[Part]:
    cluster, description = find_cluster_information(store, deadline=deadline), store.description
    document = {
        "datastore": {"type": description.name, "location": description.location},
        "version": cluster.version,
        "type": cluster.cluster_type,
        "guid": cluster.cluster_guid,
        "datastoreReady": cluster.is_datastore_ready,
    }
    yield DocumentsPart(path=CLUSTER, documents=(document,))


def _read_resources(row: ResourceKind, store: Datastore, deadline: Deadline) -> Iterator[Part]:
    malformed: list[Malformed] = []
    try:
        found = with_defaults(row, read_pages(store, row.kind, deadline=deadline, malformed=malformed))
    except NotServed as error:  # others may be served: a cluster may have the definitions of an older release
        yield failed(_path_of(row), str(error))
        return
    shown = found[:_MAX_DOCUMENTS]
    documents = tuple(to_mapping(record.value, revision=record.revision) for record in shown)
    note = f"the first {len(shown)} of {len(found)} resources" if len(shown) < len(found) else ""
    yield DocumentsPart(path=_path_of(row), documents=documents, note=note)
    yield from (failed(f"{_path_of(row)}#{error.key}", str(error)) for error in malformed)


def _read_show(store: Datastore, deadline: Deadline) -> Iterator[Part]:
    yield _lines(SHOW, usage_lines(read_utilization(store, deadline=deadline), shows_blocks=True))


def _read_check(store: Datastore, deadline: Deadline) -> Iterator[Part]:
    report = check_ipam(store, clock=deadline.clock, deadline=deadline)
    yield _lines(CHECK, check_lines(report, shows_repairs=True))


def _lines(path: str, lines: Iterable[str]) -> TextPart:
    return TextPart(path=path, text="".join(f"{line}\n" for line in lines))
