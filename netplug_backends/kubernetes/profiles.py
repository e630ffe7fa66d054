"""The keeper of Profiles: views of namespaces and service accounts, whose labels pods get; nothing is written.

Two collections make one kind, so a revision of the kind is two numbers: ``<namespaces'>/<service accounts'>``. Where
one is missing, as in what is known from a single profile, a watch begins with everything there is in that collection.
"""

from __future__ import annotations

from typing import Final

from netplug_backends.kubernetes.client import Client, Json, Request, segment
from netplug_backends.kubernetes.facts import texts
from netplug_backends.kubernetes.keeper import (
    Found,
    found_at,
    listed,
    metadata_of,
    object_of,
    of_key,
    revision_of,
    version_of,
)
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError
from netplug_core.records import (
    Change,
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
)
from netplug_core.resources.codec import API_VERSION, Origin, from_mapping
from netplug_core.resources.profile import ALLOW_ALL, NAMESPACE_PREFIX, SERVICE_ACCOUNT_PREFIX

__all__ = ["Profiles", "profile_record"]

_NAMESPACES, _ACCOUNTS = "/api/v1/namespaces", "/api/v1/serviceaccounts"
_DOMAIN: Final = "projectnetplug.org"
_ALLOWED = [{"action": "Allow"}]


class Profiles:
    """The profiles of a cluster's namespaces and service accounts, and the one that allows everything."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def find(self, query: Get[object], *, deadline: Deadline) -> Found:
        """One profile; see :class:`~netplug_backends.kubernetes.keeper.Keeper`."""
        kind, name = query.key.kind, query.key.name
        if name == ALLOW_ALL.key.name:
            return Found((ALLOW_ALL,))
        path = _path(name)
        found = found_at(self._client, path, deadline=deadline) if path else None
        if found is None:
            return Found(())
        record = of_key(query.key, profile_record(kind, found))
        number = version_of(record.revision).number
        return Found((record,), Revision(f"{number}/" if name.startswith(NAMESPACE_PREFIX) else f"/{number}"))

    def find_all(self, query: List[object], *, deadline: Deadline) -> Found:
        """All profiles."""
        spaces, spaces_number = listed(self._client, Request("GET", _NAMESPACES), deadline=deadline)
        accounts, accounts_number = listed(self._client, Request("GET", _ACCOUNTS), deadline=deadline)
        records = [ALLOW_ALL, *(profile_record(query.kind, item) for item in (*spaces, *accounts))]
        inside = (record for record in records if record.key.path[: len(query.within)] == query.within)
        found = tuple(sorted(inside, key=lambda record: record.key.path))
        return Found(found, Revision(f"{spaces_number}/{accounts_number}"))

    def create(self, write: Create[object], *, deadline: Deadline) -> Revision:
        """Refused."""
        del deadline
        raise _read_only(write)

    def update(self, write: Update[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Refused."""
        del revision, deadline
        raise _read_only(write)

    def delete(self, write: Delete[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Refused."""
        del revision, deadline
        raise _read_only(write)

    def sources(self, kind: Kind[object], revision: Revision) -> tuple[tuple[Request, str], ...]:
        """All namespaces, and all service accounts."""
        del kind
        spaces, _, accounts = revision.partition("/")
        return ((Request("GET", _NAMESPACES), spaces), (Request("GET", _ACCOUNTS), accounts))

    def change(self, kind: Kind[object], event: Json) -> Change[object]:
        """What an event about a namespace or a service account means."""
        record = profile_record(kind, object_of(event))
        return Change(record.key, None if event.get("type") == "DELETED" else record.value, record.revision)


def profile_record(kind: Kind[object], found: Json) -> Record[object]:
    """The profile that a namespace or a service account is; only the latter is in a namespace.

    Pods of a namespace that no policy speaks of may talk to everybody. A service account adds labels alone.

    Raises:
        Malformed: its metadata makes no sense.
    """
    metadata = metadata_of(found)
    own, space = str(metadata.get("name") or ""), str(metadata.get("namespace") or "")
    domain = "pcsa" if space else "pcns"
    name = f"{SERVICE_ACCOUNT_PREFIX}{space}.{own}" if space else f"{NAMESPACE_PREFIX}{own}"
    labels = {f"{domain}.{label}": text for label, text in (*texts(metadata, "labels"), (f"{_DOMAIN}/name", own))}
    times = ("uid", "creationTimestamp", "deletionTimestamp")
    mapping = {
        "kind": kind.name,
        "apiVersion": API_VERSION,
        "metadata": {"name": name, **{member: metadata.get(member) for member in times}},
        "spec": {"labelsToApply": labels, **({} if space else {"ingress": _ALLOWED, "egress": _ALLOWED})},
    }
    try:
        value = from_mapping(mapping, origin=Origin.STORE, kind=kind)
    except ConfigurationError as error:
        raise Malformed(f"{kind}({name})", str(error)) from error
    return Record(kind.key(name), value, revision_of(found))


def _path(name: str) -> str:
    """Where the object is that a profile of that name is made of; empty where there can be none."""
    if name.startswith(NAMESPACE_PREFIX):
        space = name.removeprefix(NAMESPACE_PREFIX)
        return f"{_NAMESPACES}/{segment(space)}" if space else ""
    space, _, account = name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(".")
    if not name.startswith(SERVICE_ACCOUNT_PREFIX) or not space or not account:
        return ""
    return f"{_NAMESPACES}/{segment(space)}/serviceaccounts/{segment(account)}"


def _read_only(write: Create[object] | Update[object] | Delete[object]) -> NotSupported:
    reason = "profiles are made of the cluster's own namespaces and service accounts"
    return NotSupported(type(write).__name__, write.key.kind, reason)
