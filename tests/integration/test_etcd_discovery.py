"""Members found through SRV records: both services, merged, asked once; S-14 with a name server and an etcd."""

from __future__ import annotations

from contextlib import closing

import pytest

from netplug_backends.etcdv3 import discovery
from netplug_backends.etcdv3.discovery import discover
from netplug_backends.etcdv3.endpoints import Endpoint
from netplug_backends.etcdv3.opening import open_etcd
from netplug_backends.host.machine import SystemClock
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.netconf.model import DatastoreSettings
from netplug_core.records import Get
from netplug_core.resources.ippool import IPPOOL
from tests.integration.etcd_dns import asked_here, opened_name_server
from tests.integration.etcd_server import free_ports, opened_etcd

CLOCK = SystemClock()
SSL, PLAIN = "_etcd-client-ssl._tcp.etcd.local.", "_etcd-client._tcp.etcd.local."


def test_both_services_are_merged_those_with_tls_first() -> None:
    """Targets lose their last dot; lower priorities come first, and of one priority the heavier."""
    records = {
        SSL: ("20 0 2379 c.etcd.local.", "10 1 2379 b.etcd.local.", "10 9 4001 a.etcd.local."),
        PLAIN: ("0 0 2379 a.etcd.local.", "0 0 2379 a.etcd.local."),
    }
    with opened_name_server(records) as server:
        assert discover("etcd.local") == (
            Endpoint("https", "a.etcd.local", 4001),
            Endpoint("https", "b.etcd.local", 2379),
            Endpoint("https", "c.etcd.local", 2379),
            Endpoint("http", "a.etcd.local", 2379),
        )
        assert server.asked == [SSL, PLAIN]
        assert discover("etcd.local.")[0].host == "a.etcd.local"


@pytest.mark.parametrize("service", [SSL, PLAIN])
def test_one_service_is_enough(service: str) -> None:
    with opened_name_server({service: ("0 0 2379 a.etcd.local.",)}):
        assert [endpoint.host for endpoint in discover("etcd.local")] == ["a.etcd.local"]


@pytest.mark.parametrize("records", [{}, {SSL: (), PLAIN: ()}], ids=["no such name", "no such record"])
def test_s14_a_domain_without_records_is_refused_at_the_start(records: dict[str, tuple[str, ...]]) -> None:
    settings = DatastoreSettings(etcd_endpoints=(), etcd_discovery_srv="etcd.local")
    with opened_name_server(records), pytest.raises(Unavailable) as caught:
        open_etcd(settings, clock=CLOCK)
    assert str(caught.value).startswith(
        "failed to discover etcd endpoints through SRV discovery: domain 'etcd.local': "
    )


def test_a_name_server_that_does_not_answer_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_ANSWER_S", 0.5)
    started = CLOCK.monotonic()
    with asked_here(free_ports(1)[0]), pytest.raises(Unavailable, match="failed to discover etcd endpoints"):
        discover("etcd.local")
    assert CLOCK.monotonic() - started < 2.0


@pytest.mark.etcd
def test_s14_a_store_finds_its_members_once() -> None:
    with opened_etcd() as etcd:
        target = f"0 0 {etcd.members[0].port} localhost."
        with opened_name_server({PLAIN: (target,)}) as server:
            settings = DatastoreSettings(etcd_endpoints=(), etcd_discovery_srv="etcd.local")
            with closing(open_etcd(settings, clock=CLOCK)) as store:
                for _ in range(3):
                    store.read([Get(IPPOOL.key("main"))], deadline=Deadline.after(CLOCK, 5.0))
                assert store.description.location == f"http://localhost:{etcd.members[0].port}"
            assert server.asked == [SSL, PLAIN]
