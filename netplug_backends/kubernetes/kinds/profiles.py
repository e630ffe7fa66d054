"""The store of Profiles: views of namespaces and service accounts, whose labels apply to pods. Read only.

The kind is read from two collections, so a revision of the kind is two numbers: ``<namespaces'>/<service accounts'>``.
If one is missing, as in the revision of a single profile, a watch lists that collection first.
"""

from __future__ import annotations

from netplug_backends.kubernetes.client.apiclient import ApiClient, ApiRequest, Json
from netplug_backends.kubernetes.client.objects import (
    collections_revision,
    event_object,
    find_object,
    list_objects,
    metadata_of,
    parse_revision,
    revision_of,
)
from netplug_backends.kubernetes.kinds.facts import sorted_labels
from netplug_backends.kubernetes.kinds.store import (
    NOTHING_FOUND,
    QueryResult,
    decode_each,
    event_of_record,
    list_result,
    not_supported,
    require_key,
)
from netplug_backends.kubernetes.names import (
    API_DOMAIN,
    NAMESPACES_PATH,
    SERVICE_ACCOUNTS_PATH,
    namespace_path,
    namespaced_path,
    path_segment,
)
from netplug_core.clock import Deadline
from netplug_core.decoding.tables import DocumentOrigin
from netplug_core.errors import ConfigurationError
from netplug_core.names import API_VERSION, label_value
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Kind,
    List,
    Malformed,
    NotSupported,
    ReadResult,
    Record,
    Revision,
    Update,
    WatchEvent,
    Write,
)
from netplug_core.resources.codec import from_mapping
from netplug_core.resources.profile import (
    DEFAULT_ALLOW_PROFILE,
    NAMESPACE_LABEL_PREFIX,
    NAMESPACE_PROFILE_PREFIX,
    SERVICE_ACCOUNT_PROFILE_PREFIX,
)

__all__ = ["ProfileStore", "profile_record"]

_REASON = "profiles are made of the cluster's own namespaces and service accounts"
_ALLOW_ALL_RULES = [{"action": "Allow"}]


class ProfileStore:
    """The profiles of a cluster's namespaces and service accounts, and the profile that allows all traffic."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    def find(self, query: Get[object], *, deadline: Deadline) -> QueryResult:
        """One profile; see :class:`~netplug_backends.kubernetes.kinds.store.KindStore`."""
        kind, name = query.key.kind, query.key.name
        if name == DEFAULT_ALLOW_PROFILE.key.name:
            return QueryResult(ReadResult((DEFAULT_ALLOW_PROFILE,)))
        path = _find_object_path(name)
        found = find_object(self._client, path, deadline=deadline) if path else None
        if found is None:
            return NOTHING_FOUND
        record = require_key(query.key, profile_record(kind, found))
        version = parse_revision(record.revision).resource_version
        is_namespace = name.startswith(NAMESPACE_PROFILE_PREFIX)
        versions = (version, "") if is_namespace else ("", version)
        return QueryResult(ReadResult((record,)), collections_revision(*versions))

    def find_all(self, query: List[object], *, deadline: Deadline) -> QueryResult:
        """All profiles."""
        records: list[Record[object] | Malformed] = [DEFAULT_ALLOW_PROFILE]
        versions: list[str] = []
        for path in (NAMESPACES_PATH, SERVICE_ACCOUNTS_PATH):
            items, resource_version = list_objects(self._client, ApiRequest("GET", path), deadline=deadline)
            records += decode_each(items, lambda item: profile_record(query.kind, item))
            versions.append(resource_version)
        return list_result(query, records, collections_revision(*versions))

    def find_refusal(self, write: Write) -> NotSupported | None:
        """The error of every write."""
        return not_supported(write, _REASON) if isinstance(write, (Create, Update, Delete)) else None

    def create(self, write: Create[object], *, deadline: Deadline) -> Revision:
        """Refused."""
        del deadline
        raise not_supported(write, _REASON)

    def update(self, write: Update[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Refused."""
        del revision, deadline
        raise not_supported(write, _REASON)

    def delete(self, write: Delete[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Refused."""
        del revision, deadline
        raise not_supported(write, _REASON)

    def watched_collections(self, kind: Kind[object], revision: Revision) -> tuple[tuple[ApiRequest, str], ...]:
        """All namespaces, and all service accounts."""
        del kind
        namespaces, _, accounts = revision.partition("/")
        return ((ApiRequest("GET", NAMESPACES_PATH), namespaces), (ApiRequest("GET", SERVICE_ACCOUNTS_PATH), accounts))

    def decode_event(self, kind: Kind[object], event: Json) -> WatchEvent[object]:
        """The change that an event about a namespace or a service account means."""
        return event_of_record(event, profile_record(kind, event_object(event)))


def profile_record(kind: Kind[object], found: Json) -> Record[object]:
    """The profile of a namespace or of a service account; only the latter has a namespace in its metadata.

    The profile of a namespace allows all traffic of pods that no policy selects. That of a service account only adds
    labels.

    Raises:
        Malformed: the metadata cannot be decoded.
    """
    metadata = metadata_of(found)
    name, namespace = str(metadata.get("name") or ""), str(metadata.get("namespace") or "")
    label_prefix = "pcsa." if namespace else NAMESPACE_LABEL_PREFIX
    account_profile = f"{SERVICE_ACCOUNT_PROFILE_PREFIX}{namespace}.{name}"
    profile = account_profile if namespace else f"{NAMESPACE_PROFILE_PREFIX}{name}"
    labels = (*sorted_labels(metadata, "labels"), (f"{API_DOMAIN}/name", label_value(name)))
    times = ("uid", "creationTimestamp", "deletionTimestamp")
    mapping = {
        "kind": kind.name,
        "apiVersion": API_VERSION,
        "metadata": {"name": profile, **{member: metadata.get(member) for member in times}},
        "spec": {
            "labelsToApply": {f"{label_prefix}{label}": text for label, text in labels},
            **({} if namespace else {"ingress": _ALLOW_ALL_RULES, "egress": _ALLOW_ALL_RULES}),
        },
    }
    try:
        value = from_mapping(mapping, origin=DocumentOrigin.DATASTORE, kind=kind)
    except ConfigurationError as error:
        raise Malformed(f"{kind}({profile})", str(error)) from error
    return Record(kind.key(profile), value, revision_of(found))


def _find_object_path(name: str) -> str:
    """The path of the object that a profile is a view of; empty if no object can have that profile."""
    if name.startswith(NAMESPACE_PROFILE_PREFIX):
        namespace = name.removeprefix(NAMESPACE_PROFILE_PREFIX)
        return namespace_path(namespace) if namespace else ""
    namespace, _, account = name.removeprefix(SERVICE_ACCOUNT_PROFILE_PREFIX).partition(".")
    if not name.startswith(SERVICE_ACCOUNT_PROFILE_PREFIX) or not namespace or not account:
        return ""
    return f"{namespaced_path(namespace, 'serviceaccounts')}/{path_segment(account)}"
