"""Opening from settings: S-14 and S-16, refused before anything is sent; and the location of a datastore."""

from contextlib import closing

import pytest

from netplug_backends.etcdv3.datastore import EtcdDatastore, client_from_settings, datastore_from_settings
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Atomicity, DatastoreDescription
from netplug_core.errors import ConfigurationError, InvariantBroken, Unavailable
from netplug_core.records import MAX_COMMIT_WRITES, Create, Delete, Get, Revision, WatchExpired
from netplug_core.resources.ippool import IPPOOL
from netplug_core.settings.model import DatastoreSettings
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.datastore_harness import SAMPLE_CODEC

CLOCK = ManualClock()
DEADLINE = Deadline.after(CLOCK, 5.0)
SETTINGS = DatastoreSettings(etcd_endpoints=("http://a:1", "http://b:2"))


def test_a_datastore_has_a_location() -> None:
    with closing(datastore_from_settings(SETTINGS, clock=CLOCK)) as store:
        assert store.description == DatastoreDescription(
            name="etcdv3", atomicity=Atomicity.ATOMIC, location="http://a:1,http://b:2"
        )


def test_s14_endpoints_and_a_domain_are_refused() -> None:
    both = DatastoreSettings(etcd_endpoints=("http://a:1",), etcd_discovery_srv="example.org")
    with pytest.raises(ConfigurationError) as caught:
        datastore_from_settings(both, clock=CLOCK)
    assert caught.value.accepted == (
        'multiple discovery or bootstrap options specified, use either "etcdEndpoints" or "etcdDiscoverySrv"'
    )


@pytest.mark.parametrize("domain", ["a..b", f"{'a' * 64}.org", ".", "\ud800.org", "http://a.org", "a.org:2379"])
def test_an_invalid_domain_is_refused(domain: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        datastore_from_settings(DatastoreSettings(etcd_endpoints=(), etcd_discovery_srv=domain), clock=CLOCK)
    assert str(caught.value) == f"etcd_discovery_srv: {domain!r} is not accepted; give the name of a domain"


@pytest.mark.parametrize("domain", ["https://root:s3cret@etcd.example:2379", "s3cret@etcd.example"])
def test_a_url_is_no_domain_and_shows_no_password(domain: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        datastore_from_settings(DatastoreSettings(etcd_endpoints=(), etcd_discovery_srv=domain), clock=CLOCK)
    assert str(caught.value) == "etcd_discovery_srv: '…' is not accepted; give the name of a domain"


def test_the_setting_that_makes_an_invalid_endpoint_is_named() -> None:
    pair = DatastoreSettings(etcd_endpoints=("http://a b",), etcd_endpoints_source="etcd_authority")
    with pytest.raises(ConfigurationError, match=r"^etcd_authority: 'http://a b' is not accepted; "):
        datastore_from_settings(pair, clock=CLOCK)


def test_s16_neither_endpoints_nor_a_domain_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no etcd endpoints specified"):
        datastore_from_settings(DatastoreSettings(etcd_endpoints=()), clock=CLOCK)


def test_s4_an_invalid_revision_is_refused_before_a_call() -> None:
    with closing(datastore_from_settings(SETTINGS, clock=CLOCK)) as store:
        write = Delete(IPPOOL.key("main"), Revision("abc"))
        with pytest.raises(ConfigurationError, match="'abc' is not accepted; etcd's revisions are numbers"):
            store.commit([write], deadline=DEADLINE)
        with pytest.raises(WatchExpired):
            list(store.watch({IPPOOL: Revision("abc")}, deadline=DEADLINE))


def test_too_many_writes_are_refused_before_a_call() -> None:
    writes = [Create(IPPOOL.key(f"pool-{number}"), "") for number in range(MAX_COMMIT_WRITES + 1)]
    with (
        closing(EtcdDatastore(client_from_settings(SETTINGS, clock=CLOCK), codec=SAMPLE_CODEC)) as store,
        pytest.raises(InvariantBroken, match="etcd takes 128 writes in a commit, not 129"),
    ):
        store.commit(writes, deadline=DEADLINE)


def test_an_empty_read_and_an_empty_commit_send_nothing() -> None:
    with closing(datastore_from_settings(SETTINGS, clock=CLOCK)) as store:
        assert store.read([], deadline=DEADLINE).results == {}
        assert store.commit([], deadline=DEADLINE) == ()
        assert list(store.watch({}, deadline=DEADLINE)) == []


def test_after_the_deadline_nothing_is_sent() -> None:
    passed = Deadline.after(CLOCK, 0.0)
    with closing(datastore_from_settings(SETTINGS, clock=CLOCK)) as store:
        with pytest.raises(Unavailable, match=r"^etcd: the deadline passed before it could be asked$"):
            store.read([Get(IPPOOL.key("main"))], deadline=passed)
        with pytest.raises(Unavailable, match=r"^etcd: the deadline passed before it could be asked$"):
            store.commit([Delete(IPPOOL.key("main"), Revision("7"))], deadline=passed)
