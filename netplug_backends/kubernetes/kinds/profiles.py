"""The keeper of Profiles: views of namespaces and service accounts, whose labels pods get; nothing is written.

Two collections make one kind, so a revision of the kind is two numbers: ``<namespaces'>/<service accounts'>``. Where
one is missing, as in what is known from a single profile, a watch begins with everything there is in that collection.
"""

from __future__ import annotations

from typing import Final

from netplug_backends.kubernetes.client.apiclient import ApiClient, ApiRequest, Json, path_segment
from netplug_backends.kubernetes.client.objects import (
    QueryResult,
    event_object,
    find_object,
    list_objects,
    metadata_of,
    parse_revision,
    require_key,
    revision_of,
)
from netplug_backends.kubernetes.kinds.pod_and_node_facts import sorted_labels
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError
from netplug_core.names import API_VERSION
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Kind,
    List,
    Malformed,
    NotSupported,
    Record,
    Revision,
    Update,
    WatchEvent,
)
from netplug_core.resources.codec import DocumentOrigin, from_mapping
from netplug_core.resources.profile import (
    DEFAULT_ALLOW_PROFILE,
    NAMESPACE_PROFILE_PREFIX,
    SERVICE_ACCOUNT_PROFILE_PREFIX,
)

__all__ = ["ProfileStore", "profile_record"]

_NAMESPACES, _ACCOUNTS = "/api/v1/namespaces", "/api/v1/serviceaccounts"
_DOMAIN: Final = "projectnetplug.org"
_ALLOW_ALL_RULES = [{"action": "Allow"}]


class ProfileStore:
    """The profiles of a cluster's namespaces and service accounts, and the one that allows everything."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    def find(self, query: Get[object], *, deadline: Deadline) -> QueryResult:
        """One profile; see :class:`~netplug_backends.kubernetes.client.objects.Keeper`."""
        kind, name = query.key.kind, query.key.name
        if name == DEFAULT_ALLOW_PROFILE.key.name:
            return QueryResult((DEFAULT_ALLOW_PROFILE,))
        path = _find_object_path(name)
        found = find_object(self._client, path, deadline=deadline) if path else None
        if found is None:
            return QueryResult(())
        record = require_key(query.key, profile_record(kind, found))
        number = parse_revision(record.revision).resource_version
        return QueryResult(
            (record,), Revision(f"{number}/" if name.startswith(NAMESPACE_PROFILE_PREFIX) else f"/{number}")
        )

    def find_all(self, query: List[object], *, deadline: Deadline) -> QueryResult:
        """All profiles."""
        spaces, spaces_number = list_objects(self._client, ApiRequest("GET", _NAMESPACES), deadline=deadline)
        accounts, accounts_number = list_objects(self._client, ApiRequest("GET", _ACCOUNTS), deadline=deadline)
        records = [DEFAULT_ALLOW_PROFILE, *(profile_record(query.kind, item) for item in (*spaces, *accounts))]
        inside = (record for record in records if record.key.path[: len(query.within)] == query.within)
        found = tuple(sorted(inside, key=lambda record: record.key.path))
        return QueryResult(found, Revision(f"{spaces_number}/{accounts_number}"))

    def create(self, write: Create[object], *, deadline: Deadline) -> Revision:
        """Refused."""
        del deadline
        raise _not_supported(write)

    def update(self, write: Update[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Refused."""
        del revision, deadline
        raise _not_supported(write)

    def delete(self, write: Delete[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Refused."""
        del revision, deadline
        raise _not_supported(write)

    def watched_collections(self, kind: Kind[object], revision: Revision) -> tuple[tuple[ApiRequest, str], ...]:
        """All namespaces, and all service accounts."""
        del kind
        spaces, _, accounts = revision.partition("/")
        return ((ApiRequest("GET", _NAMESPACES), spaces), (ApiRequest("GET", _ACCOUNTS), accounts))

    def decode_event(self, kind: Kind[object], event: Json) -> WatchEvent[object]:
        """What an event about a namespace or a service account means."""
        record = profile_record(kind, event_object(event))
        return WatchEvent(record.key, None if event.get("type") == "DELETED" else record.value, record.revision)


def profile_record(kind: Kind[object], found: Json) -> Record[object]:
    """The profile that a namespace or a service account is; only the latter is in a namespace.

    Pods of a namespace that no policy speaks of may talk to everybody. A service account adds labels alone.

    Raises:
        Malformed: its metadata makes no sense.
    """
    metadata = metadata_of(found)
    own, space = str(metadata.get("name") or ""), str(metadata.get("namespace") or "")
    domain = "pcsa" if space else "pcns"
    name = f"{SERVICE_ACCOUNT_PROFILE_PREFIX}{space}.{own}" if space else f"{NAMESPACE_PROFILE_PREFIX}{own}"
    labels = {
        f"{domain}.{label}": text for label, text in (*sorted_labels(metadata, "labels"), (f"{_DOMAIN}/name", own))
    }
    times = ("uid", "creationTimestamp", "deletionTimestamp")
    mapping = {
        "kind": kind.name,
        "apiVersion": API_VERSION,
        "metadata": {"name": name, **{member: metadata.get(member) for member in times}},
        "spec": {
            "labelsToApply": labels,
            **({} if space else {"ingress": _ALLOW_ALL_RULES, "egress": _ALLOW_ALL_RULES}),
        },
    }
    try:
        value = from_mapping(mapping, origin=DocumentOrigin.DATASTORE, kind=kind)
    except ConfigurationError as error:
        raise Malformed(f"{kind}({name})", str(error)) from error
    return Record(kind.key(name), value, revision_of(found))


def _find_object_path(name: str) -> str:
    """Where the object is that a profile of that name is made of; empty where there can be none."""
    if name.startswith(NAMESPACE_PROFILE_PREFIX):
        space = name.removeprefix(NAMESPACE_PROFILE_PREFIX)
        return f"{_NAMESPACES}/{path_segment(space)}" if space else ""
    space, _, account = name.removeprefix(SERVICE_ACCOUNT_PROFILE_PREFIX).partition(".")
    if not name.startswith(SERVICE_ACCOUNT_PROFILE_PREFIX) or not space or not account:
        return ""
    return f"{_NAMESPACES}/{path_segment(space)}/serviceaccounts/{path_segment(account)}"


def _not_supported(write: Create[object] | Update[object] | Delete[object]) -> NotSupported:
    reason = "profiles are made of the cluster's own namespaces and service accounts"
    return NotSupported(type(write).__name__, write.key.kind, reason)
