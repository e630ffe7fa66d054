"""Namespaces and service accounts as profiles on a real API server: read, listed, watched, and never written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import pytest

from netplug_backends.kubernetes.datastore import KubernetesDatastore
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.errors import Unauthorized
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Kind,
    List,
    NotSupported,
    Revision,
    Update,
    WatchEvent,
    WatchExpired,
    Write,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.policyrule import RuleAction
from netplug_core.resources.profile import DEFAULT_ALLOW_PROFILE, PROFILE, Profile, profile_key
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import (
    install_role,
    make_namespace,
    open_store,
)
from tests.harness.waiting import deadline_in

pytestmark = pytest.mark.apiserver

_NUMBERS = count()


@pytest.fixture
def store(api_server: ApiServer) -> Iterator[KubernetesDatastore]:
    """A store on the server; namespaces and service accounts need no definitions."""
    with open_store(api_server, CrdMode.V1) as opened:
        yield opened


@pytest.fixture
def namespace(api_server: ApiServer) -> str:
    """A namespace of the test's own."""
    return make_namespace(api_server, f"profiled-{next(_NUMBERS)}", labels={"team": "a"})


def make_account(server: ApiServer, namespace: str, name: str, **metadata: object) -> None:
    server.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name, **metadata}})


def label(server: ApiServer, path: str, **labels: str) -> None:
    body = {"metadata": {"labels": labels}}
    server.request("PATCH", path, body, content_type="application/merge-patch+json")


def now(store: KubernetesDatastore) -> Revision:
    return store.read([List(PROFILE)], deadline=deadline_in()).revision(PROFILE)


def watched_changes(store: KubernetesDatastore, start: Revision, number: int) -> list[WatchEvent[object]]:
    """The first changes that a watch tells, which is to tell so many."""
    kinds: dict[Kind[object], Revision] = {PROFILE: start}
    return list(islice(store.watch(kinds, deadline=deadline_in()), number))


def named(change: WatchEvent[object]) -> tuple[str, bool]:
    """What changed, and whether it is gone."""
    return change.key.name, change.value is None


def summary(changes: list[WatchEvent[object]]) -> set[tuple[str, bool]]:
    return set(map(named, changes))


def test_each_namespace_and_each_account_is_a_profile(
    api_server: ApiServer, store: KubernetesDatastore, namespace: str
) -> None:
    make_account(api_server, namespace, "web.front", labels={"tier": "one"})
    space, account = profile_key(f"kns.{namespace}"), profile_key(f"ksa.{namespace}.web.front")
    listed = {record.key: record for record in store.read([List(PROFILE)], deadline=deadline_in()).list(List(PROFILE))}
    assert list(listed) == sorted(listed)
    assert listed[DEFAULT_ALLOW_PROFILE.key] == DEFAULT_ALLOW_PROFILE
    for key in (space, account, DEFAULT_ALLOW_PROFILE.key):
        assert store.read([Get(key)], deadline=deadline_in()).find(key) == listed[key]
        one = List(PROFILE, key.path)
        assert store.read([one], deadline=deadline_in()).list(one) == (listed[key],)
    assert dict(listed[space].value.spec.labels_to_apply) == {
        "pcns.team": "a",
        "pcns.kubernetes.io/metadata.name": namespace,
        "pcns.projectnetplug.org/name": namespace,
    }
    assert [rule.action for rule in listed[space].value.spec.egress] == [RuleAction.ALLOW]
    assert dict(listed[account].value.spec.labels_to_apply) == {
        "pcsa.tier": "one",
        "pcsa.projectnetplug.org/name": "web.front",
    }


def test_a_name_that_no_object_can_have_is_asked_nobody(api_server: ApiServer, store: KubernetesDatastore) -> None:
    before = len(api_server.audited_requests("netplug/"))
    for name in ("kns.", "ksa.shop", "ksa.shop.", "ksa..web", "mine"):
        key = profile_key(name)
        assert store.read([Get(key)], deadline=deadline_in()).find(key) is None
    assert len(api_server.audited_requests("netplug/")) == before
    gone = profile_key("kns.nobody-s")
    assert store.read([Get(gone)], deadline=deadline_in()).find(gone) is None


def test_profiles_are_not_written(store: KubernetesDatastore, namespace: str) -> None:
    value = Profile(metadata=Metadata(name="mine"))
    for key in (profile_key("mine"), profile_key(f"kns.{namespace}"), DEFAULT_ALLOW_PROFILE.key):
        writes: list[Write] = [Create(key, value), Update(key, value, Revision("u/7")), Delete(key, Revision("u/7"))]
        for write in writes:
            with pytest.raises(NotSupported, match="own namespaces and service accounts"):
                store.commit([write], deadline=deadline_in())


def test_d5_a_watch_has_every_change_of_both_collections_once_and_resumes_after_each(
    api_server: ApiServer, store: KubernetesDatastore, namespace: str
) -> None:
    start = now(store)
    make_account(api_server, namespace, "one")
    label(api_server, f"/api/v1/namespaces/{namespace}", team="b")
    make_account(api_server, namespace, "two")
    api_server.request("DELETE", f"/api/v1/namespaces/{namespace}/serviceaccounts/one")
    changes = watched_changes(store, start, 4)
    accounts = [change for change in changes if change.key.name.startswith("ksa.")]
    assert [(change.key.name, change.value is None) for change in accounts] == [
        (f"ksa.{namespace}.one", False),
        (f"ksa.{namespace}.two", False),
        (f"ksa.{namespace}.one", True),
    ], "in the order of their collection"
    (space,) = (change for change in changes if change not in accounts)
    assert isinstance(space.value, Profile)
    assert dict(space.value.spec.labels_to_apply)["pcns.team"] == "b"
    # One more of each collection: what a watch told twice, or left out, would be seen before both have come.
    make_account(api_server, namespace, "last")
    label(api_server, f"/api/v1/namespaces/{namespace}", team="last")
    last = [(f"kns.{namespace}", False), (f"ksa.{namespace}.last", False)]
    for stop in range(1, 5):
        rest = watched_changes(store, changes[stop - 1].revision, 4 - stop + len(last))
        expected = sorted([*map(named, changes[stop:]), *last])
        assert sorted(map(named, rest)) == expected, f"after {stop} of them"


def test_a_watch_from_one_profile_begins_the_other_collection_with_all_there_is(
    api_server: ApiServer, store: KubernetesDatastore, namespace: str
) -> None:
    """Half of a revision: nothing is known of the other half."""
    make_account(api_server, namespace, "web")
    space = profile_key(f"kns.{namespace}")
    start = store.read([Get(space)], deadline=deadline_in()).revision(PROFILE)
    assert start.endswith("/")
    known = {record.key.name for record in store.read([List(PROFILE)], deadline=deadline_in()).list(List(PROFILE))}
    accounts = {name for name in known if name.startswith("ksa.")}
    label(api_server, f"/api/v1/namespaces/{namespace}", team="c")
    changes = watched_changes(store, start, len(accounts) + 1)
    assert summary(changes[:-1]) == {(name, False) for name in accounts}
    assert changes[-1].key == space
    # One that was left before it had begun begins again.
    assert changes[0].revision == start
    account = profile_key(f"ksa.{namespace}.web")
    other = store.read([Get(account)], deadline=deadline_in()).revision(PROFILE)
    assert other.startswith("/")
    kinds: dict[Kind[object], Revision] = {PROFILE: other}
    assert any(named(change) == (f"kns.{namespace}", False) for change in store.watch(kinds, deadline=deadline_in()))


def test_a_watch_from_nowhere_is_expired(store: KubernetesDatastore) -> None:
    nobody = store.read([Get(profile_key("kns.nobody-s"))], deadline=deadline_in()).revision(PROFILE)
    with pytest.raises(WatchExpired) as refusal:
        watched_changes(store, nobody, 1)
    assert refusal.value.revision == nobody == ""


def test_the_plugins_account_reads_no_profiles(api_server: ApiServer) -> None:
    """It needs none; who lists them needs to list and watch service accounts too."""
    kubeconfig = api_server.write_kubeconfig(install_role(api_server), name="plugin")
    with (
        open_store(api_server, CrdMode.V1, kubeconfig=kubeconfig) as store,
        pytest.raises(Unauthorized, match='cannot list resource "serviceaccounts"'),
    ):
        store.read([List(PROFILE)], deadline=deadline_in())
