"""Members found through SRV records: both services, merged, asked once; S-14 with a name server and an etcd."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import dns.resolver
import pytest

from netplug_backends.etcdv3.datastore import datastore_from_settings
from netplug_backends.etcdv3.discovery import SrvMembers
from netplug_backends.host.machine import SystemClock
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.records import Delete, Get, OutcomeUnknown, Revision
from netplug_core.resources.ippool import IPPOOL
from netplug_core.settings.model import DatastoreSettings, EtcdEndpoint
from tests.harness.servers.dns import open_name_server, use_name_server
from tests.harness.servers.etcd import start_etcd
from tests.harness.servers.ports import reserve_port
from tests.harness.waiting import MARGIN_S

CLOCK = SystemClock()
SSL, PLAIN = "_etcd-client-ssl._tcp.etcd.local.", "_etcd-client._tcp.etcd.local."
SETTINGS = DatastoreSettings(etcd_endpoints=(), etcd_discovery_srv="etcd.local")
FAILED = "failed to discover etcd endpoints through SRV discovery: domain 'etcd.local': "


def discover(
    domain: str = "etcd.local", *, chance: Callable[[int], int] = lambda _below: 0, seconds: float = 5.0
) -> tuple[EtcdEndpoint, ...]:
    return SrvMembers(domain).find_members(chance, deadline=Deadline.after(CLOCK, seconds))


def test_both_services_are_merged_those_with_tls_first() -> None:
    """Targets lose their last dot; lower priorities come first, and of one priority the heavier."""
    records = {
        SSL: ("20 0 2379 c.etcd.local.", "10 1 2379 b.etcd.local.", "10 9 4001 a.etcd.local."),
        PLAIN: ("0 0 2379 a.etcd.local.", "0 0 2379 a.etcd.local."),
    }
    with open_name_server(records) as server:
        assert discover() == (
            EtcdEndpoint("https", "a.etcd.local", 4001),
            EtcdEndpoint("https", "b.etcd.local", 2379),
            EtcdEndpoint("https", "c.etcd.local", 2379),
            EtcdEndpoint("http", "a.etcd.local", 2379),
        )
        assert sorted(server.queried_names) == sorted([SSL, PLAIN])
        assert discover("etcd.local.")[0].host == "a.etcd.local"


def test_the_first_member_is_drawn_by_weight_among_those_of_the_first_priority() -> None:
    """RFC 2782: a higher number is only for when these do not answer, and a weight of 0 is hardly ever drawn."""
    first = ("10 2 1 a.etcd.local.", "10 1 2 b.etcd.local.", "10 0 3 c.etcd.local.")

    def hosts(number: int) -> str:
        def chance(below: int) -> int:
            assert below == 201 + 101 + 1
            return number

        return "".join(endpoint.host[0] for endpoint in discover(chance=chance))

    with open_name_server({SSL: (*first, "20 9 4 d.etcd.local."), PLAIN: ("0 9 5 e.etcd.local.",)}):
        drawn = {number: hosts(number) for number in (0, 200, 201, 301, 302)}
    assert drawn == {0: "abcde", 200: "abcde", 201: "bacde", 301: "bacde", 302: "cabde"}


@pytest.mark.parametrize("service", [SSL, PLAIN])
def test_one_service_is_enough(service: str) -> None:
    with open_name_server({service: ("0 0 2379 a.etcd.local.",)}):
        assert [endpoint.host for endpoint in discover()] == ["a.etcd.local"]


def test_a_target_that_is_a_dot_is_a_service_that_is_not_there() -> None:
    """RFC 2782."""
    with open_name_server({SSL: ("0 0 0 .",), PLAIN: ("0 0 2379 a.etcd.local.",)}):
        assert discover() == (EtcdEndpoint("http", "a.etcd.local", 2379),)
    with open_name_server({SSL: ("0 0 0 .",), PLAIN: ("0 0 0 .",)}), pytest.raises(Unavailable) as caught:
        discover()
    assert str(caught.value) == f"{FAILED}it says that there is no such service"


@pytest.mark.parametrize(
    "records,problem",
    [
        ({}, "there is no such name"),
        ({SSL: (), PLAIN: ()}, "it has no SRV records"),
        ({SSL: ()}, "_etcd-client-ssl._tcp: it has no SRV records; _etcd-client._tcp: there is no such name"),
    ],
)
def test_s14_a_domain_without_records_fails_the_call_and_nothing_was_sent(
    records: dict[str, tuple[str, ...]], problem: str
) -> None:
    with open_name_server(records), closing(datastore_from_settings(SETTINGS, clock=CLOCK)) as store:
        for call in (
            lambda: store.read([Get(IPPOOL.key("main"))], deadline=Deadline.after(CLOCK, 5.0)),
            lambda: store.commit([Delete(IPPOOL.key("main"), Revision("7"))], deadline=Deadline.after(CLOCK, 5.0)),
        ):
            with pytest.raises(Unavailable) as caught:
                call()
            assert str(caught.value) == FAILED + problem
            assert not isinstance(caught.value, OutcomeUnknown)


@pytest.mark.parametrize("allowed_s,bound_s", [(0.4, 0.4), (60.0, 1.5)])
def test_d14_a_silent_name_server_costs_a_second_and_a_half_or_what_the_call_has(
    allowed_s: float, bound_s: float
) -> None:
    """Both services are asked at once, and opening the store asks nobody: a DEL takes down its interface first."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        with use_name_server(silent.getsockname()[1]):
            store = datastore_from_settings(SETTINGS, clock=CLOCK)
            silent.settimeout(0)
            with pytest.raises(BlockingIOError):
                silent.recv(512)
            started = CLOCK.monotonic()
            with closing(store), pytest.raises(Unavailable) as caught:
                store.read([Get(IPPOOL.key("main"))], deadline=Deadline.after(CLOCK, allowed_s))
            assert CLOCK.monotonic() - started < bound_s + MARGIN_S
    assert str(caught.value) == f"{FAILED}no name server answered within {bound_s:.1f} s"


@pytest.mark.parametrize(
    "configuration,problem",
    [
        (b"nameserver dns.example\n", "nameserver dns.example is not a"),
        (b"nameserver 127.0.0.1#5353\n", "nameserver 127.0.0.1#5353 is not a"),
        ("# Käse\nnameserver 127.0.0.1\n".encode("latin-1"), "'utf-8' codec can't decode byte"),
        (b"search a..b\nnameserver 127.0.0.1\n", "A DNS label is empty"),
        (b"", "no nameservers"),
    ],
)
def test_a_configuration_of_the_machine_that_makes_no_sense_is_named(
    configuration: bytes, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "resolv.conf"
    file.write_bytes(configuration)
    read = dns.resolver.Resolver.read_resolv_conf
    monkeypatch.setattr(dns.resolver, "default_resolver", None)
    monkeypatch.setattr(dns.resolver.Resolver, "read_resolv_conf", lambda resolver, _path: read(resolver, str(file)))
    with pytest.raises(Unavailable) as caught:
        discover()
    assert str(caught.value).startswith(f"{FAILED}/etc/resolv.conf: {problem}")


def test_where_no_name_server_listens_the_call_fails_in_time() -> None:
    started = CLOCK.monotonic()
    with use_name_server(reserve_port()), pytest.raises(Unavailable, match="failed to discover etcd endpoints"):
        discover(seconds=1.0)
    assert CLOCK.monotonic() - started < 1.0 + MARGIN_S


@pytest.mark.etcd
def test_s14_a_store_finds_its_members_once() -> None:
    """By its first call; one that nobody answered is asked again."""
    with start_etcd() as etcd:
        target = f"0 0 {etcd.members[0].port} localhost."
        with closing(datastore_from_settings(SETTINGS, clock=CLOCK)) as store:
            assert store.description.location == "SRV records of etcd.local"
            with open_name_server({}), pytest.raises(Unavailable):
                store.read([Get(IPPOOL.key("main"))], deadline=Deadline.after(CLOCK, 5.0))
            with open_name_server({PLAIN: (target,)}) as server:
                for _ in range(3):
                    store.read([Get(IPPOOL.key("main"))], deadline=Deadline.after(CLOCK, 5.0))
                assert sorted(server.queried_names) == sorted([SSL, PLAIN])
