"""Pools and addresses through the front door: what it does, and how it refuses wrong arguments."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

import netplug_core
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import AllocationError, ConfigurationError, InvalidArgument
from netplug_core.hookspecs import HostServices
from netplug_core.ipam.allocation.request import Shortfall
from netplug_core.ipam.model import BLOCK
from netplug_core.library import Network
from netplug_core.records import Decision, Get, List, NeedMore, NotFound, Snapshot, Update
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import AllowedUse, AssignmentMode
from netplug_core.resources.node import NODE, Node
from netplug_core.testing.clock import ManualClock

POOL = "10.0.0.0/24"


@pytest.fixture
def net() -> Iterator[Network]:
    dice = Random(1)  # noqa: S311  a test that is the same every time
    host = HostServices(clock=ManualClock(), chance=dice.random, new_uid=lambda: f"{dice.getrandbits(128):032x}")
    with netplug_core.open("memory:", host=host) as opened:
        yield opened


def texts(addresses: tuple[Address, ...]) -> list[str]:
    return [str(address) for address in addresses]


def owners(net: Network) -> dict[str, str]:
    blocks = net.store.read([List(BLOCK)], deadline=net.deadline()).list(List(BLOCK))
    return {str(record.value.prefix): record.value.owner for record in blocks}


# --- pools -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cidr, name, block_length", [
    (POOL, "10-0-0-0-24", 26), ("10.0.0.0/27", "10-0-0-0-27", 27), ("10.0.0.7", "10-0-0-7-32", 32),
    ("fd00::/64", "fd00---64", 122), ("fd00::/127", "fd00---127", 127),
])  # fmt: skip
def test_a_pool_gets_a_name_and_blocks_that_fit(net: Network, cidr: str, name: str, block_length: int) -> None:
    pool = net.create_pool(cidr)
    assert (pool.metadata.name, pool.spec.block_length) == (name, block_length)
    family = {Family.IPV4: "ipv4", Family.IPV6: "ipv6"}[pool.spec.prefix.family]
    one: Any = {family: 1}
    assert len(net.assign("h", **one)) == 1
    (stored,) = net.pools()
    assert stored.spec == pool.spec
    assert stored.metadata.uid


def test_a_pool_takes_every_option(net: Network) -> None:
    pool = net.create_pool(
        Prefix.parse(POOL),
        name="main",
        block_length=28,
        allowed_uses=[AllowedUse.WORKLOAD],
        node_selector="rack == 'a'",
        namespace_selector="team == 'b'",
        assignment_mode=AssignmentMode.MANUAL,
        is_disabled=True,
    )
    spec = pool.spec
    assert (spec.block_length, spec.node_selector, spec.namespace_selector) == (28, "rack == 'a'", "team == 'b'")
    assert (spec.allowed_uses, spec.assignment_mode, spec.is_disabled) == (
        (AllowedUse.WORKLOAD,),
        AssignmentMode.MANUAL,
        True,
    )


def test_a_pool_is_judged_beside_its_neighbours_and_by_itself(net: Network) -> None:
    net.create_pool(POOL)
    for cidr, options, text in (
        ("10.0.0.0/25", {}, "CIDR overlaps with IPPool"),
        ("10.1.0.0/24", {"name": "10-0-0-0-24"}, "already exists"),
        ("10.1.0.0/24", {"node_selector": "=="}, "spec.nodeSelector"),
        ("10.1.0.0/24", {"name": "A_b"}, "metadata.name"),
    ):
        arguments: Any = options
        with pytest.raises(ConfigurationError, match=text):
            net.create_pool(cidr, **arguments)
    assert len(net.pools()) == 1


def test_the_first_pool_gives_the_cluster_its_identity(net: Network) -> None:
    net.create_pool(POOL)
    record = net.store.read([Get(CLUSTER_INFORMATION_KEY)], deadline=net.deadline()).find(CLUSTER_INFORMATION_KEY)
    assert record is not None
    assert record.value.spec.cluster_guid


@pytest.mark.parametrize("cidr, options, message", [
    ("10.0.0.1/24", {}, "create_pool(cidr): '10.0.0.1/24' is not accepted; it has host bits set; 10.0.0.0/24 is the "),
    ("nonsense", {}, "create_pool(cidr): 'nonsense' is not accepted; a Prefix or a text such as 10.0.0.0/24 is expec"),
    ("10.0.0.0/33", {}, "create_pool(cidr): '10.0.0.0/33' is not accepted; a Prefix or a text such as 10.0.0.0/24 is"),
    (POOL, {"block_length": 99}, "create_pool(block_length): 99 is not accepted; a prefix length from 24 to 32 is "),
    ("10.0.0.0/8", {"block_length": 19}, "create_pool(block_length): 19 is not accepted; a prefix length from 20 to "),
    ("fd00::/64", {"block_length": 64}, "create_pool(block_length): 64 is not accepted; a prefix length from 116 to "),
    (POOL, {"block_length": 23}, "create_pool(block_length): 23 is not accepted; a prefix length from 24 to 32 is "),
    (24, {}, "create_pool(cidr): 24 is not accepted; a Prefix or a text such as 10.0.0.0/24 is expected"),
    (POOL, {"size": 3}, "create_pool(size): 3 is not accepted; there is no such argument; there are name, "),
    (POOL, {"block_length": "26"}, "create_pool(block_length): '26' is not accepted; a whole number of at least 1"),
    (POOL, {"name": 5}, "create_pool(name): 5 is not accepted; a text is expected"),
    (POOL, {"is_disabled": "no"}, "create_pool(is_disabled): 'no' is not accepted; True or False is expected"),
    (POOL, {"allowed_uses": "Workload"}, "create_pool(allowed_uses): 'Workload' is not accepted; a list is expected"),
    (POOL, {"allowed_uses": ["Workload"]}, "create_pool(allowed_uses): 'Workload' is not accepted; one of AllowedUse."),
    (POOL, {"allowed_uses": []}, "create_pool(allowed_uses): [] is not accepted"),
    (POOL, {"assignment_mode": "Manual"}, "create_pool(assignment_mode): 'Manual' is not accepted; one of Assignment"),
])  # fmt: skip
def test_an_argument_of_a_pool_is_checked(net: Network, cidr: Any, options: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(InvalidArgument) as refusal:
        net.create_pool(cidr, **options)
    assert str(refusal.value).startswith(message)
    assert net.pools() == ()


# --- addresses -------------------------------------------------------------------------------------------------------


def test_a_handle_holds_what_it_was_assigned_until_it_is_released(net: Network) -> None:
    net.create_pool(POOL)
    assert texts(net.assign("job-1", ipv4=2)) == ["10.0.0.0", "10.0.0.1"]
    assert texts(net.assign("job-1", ipv4=2)) == ["10.0.0.0", "10.0.0.1"]
    assert texts(net.assign("job-2", ipv4=1)) == ["10.0.0.2"]
    assert texts(net.held("job-1")) == ["10.0.0.0", "10.0.0.1"]
    assert texts(net.release("job-1")) == ["10.0.0.0", "10.0.0.1"]
    assert net.held("job-1") == net.release("job-1") == ()


def test_both_families_come_ipv4_first(net: Network) -> None:
    net.create_pool(POOL)
    net.create_pool("fd00::/122")
    assert texts(net.assign("job-1", ipv6=1, ipv4=1)) == ["10.0.0.0", "fd00::"]
    assert texts(net.assign("job-2", address="fd00::7", ipv4=1)) == ["10.0.0.1", "fd00::7"]


def test_one_address_is_asked_for_by_name(net: Network) -> None:
    net.create_pool(POOL)
    assert texts(net.assign("job-1", address=Address.parse("10.0.0.9"))) == ["10.0.0.9"]
    with pytest.raises(AllocationError, match=r"10\.0\.0\.9: Address already assigned .* by handle job-1"):
        net.assign("job-2", address="10.0.0.9")


def test_a_program_without_nodes_shares_the_blocks_of_the_library(net: Network) -> None:
    net.create_pool(POOL)
    net.assign("job-1", ipv4=1)
    assert owners(net) == {"10.0.0.0/26": "virtual:library"}
    (held,) = net.store.read([List(BLOCK)], deadline=net.deadline()).list(List(BLOCK))[0].value.held()
    assert "node" not in dict(held.attribute.owner)


def test_a_node_has_blocks_of_its_own(net: Network) -> None:
    net.create_pool(POOL)
    net.assign("job-1", ipv4=1, node="worker-3")
    assert list(owners(net).values()) == ["host:worker-3"]
    with netplug_core.open("memory:", node="worker-4", host=net.host) as other:
        other.create_pool(POOL)
        other.assign("job-1", ipv4=1)
        assert list(owners(other).values()) == ["host:worker-4"]


def test_less_than_was_asked_is_an_error_unless_it_is_asked_for_by_name(net: Network) -> None:
    net.create_pool("10.0.0.0/30")
    with pytest.raises(AllocationError, match="Only 4 of the 5 requested IPv4 addresses are available, so no"):
        net.assign("job-1", ipv4=5)
    assert net.held("job-1") == ()
    assert len(net.assign("job-1", ipv4=5, shortfall=Shortfall.RETURN)) == 4


def test_pools_are_named_by_name_prefix_or_value(net: Network) -> None:
    net.create_pool(POOL)
    manual = net.create_pool("10.1.0.0/24", name="manual", assignment_mode=AssignmentMode.MANUAL)
    assert texts(net.assign("a", ipv4=1)) == ["10.0.0.0"]
    for handle, pool in (("b", "manual"), ("c", manual.spec.prefix), ("d", manual)):
        (address,) = net.assign(handle, ipv4=1, pools=[pool])
        assert address in manual.spec.prefix
    with pytest.raises(AllocationError, match="no configured netplug pools") as refusal:
        net.assign("e", ipv6=1)
    assert "for node" not in str(refusal.value)


def test_owner_use_and_labels_reach_the_allocator(net: Network) -> None:
    net.create_pool(POOL, allowed_uses=[AllowedUse.WORKLOAD], namespace_selector="team == 'b'")
    with pytest.raises(AllocationError):
        net.assign("job-1", ipv4=1)
    with pytest.raises(AllocationError):
        net.assign("job-1", ipv4=1, namespace_labels={"team": "b"}, use=AllowedUse.TUNNEL)
    net.assign("job-1", ipv4=1, namespace_labels={"team": "b"}, owner={"team": "b", "job": "1"})
    (held,) = net.store.read([List(BLOCK)], deadline=net.deadline()).list(List(BLOCK))[0].value.held()
    assert {"team": "b", "job": "1"}.items() <= dict(held.attribute.owner).items()


@pytest.mark.parametrize("options, message", [
    ({}, "assign: () is not accepted; one of ipv4, ipv6 and address is expected"),
    ({"ipv4": 0}, "assign(ipv4): 0 is not accepted; a whole number of at least 1 is expected"),
    ({"ipv4": -1}, "assign(ipv4): -1 is not accepted; "),
    ({"ipv6": True}, "assign(ipv6): True is not accepted; "),
    ({"ipv4": None}, "assign(ipv4): None is not accepted; "),
    ({"family": 4}, "assign(family): 4 is not accepted; there is no such argument; there are ipv4, ipv6, address, "),
    ({"ipv4": 1, "use": "Workload"}, "assign(use): 'Workload' is not accepted; one of AllowedUse.WORKLOAD, "),
    ({"ipv4": 1, "shortfall": "return"}, "assign(shortfall): 'return' is not accepted; one of Shortfall.REFUSE, "),
    ({"ipv4": 1, "node": ""}, "assign(node): '' is not accepted; the name of a node is expected, of printable char"),
    ({"ipv4": 1, "node": "a\n"}, "assign(node): 'a\\n' is not accepted; the name of a node is expected, of printable"),
    ({"ipv4": 1, "node": "\udcff"}, "assign(node): '\\udcff' is not accepted; the name of a node is expected, of pr"),
    ({"ipv4": 1, "owner": "me"}, "assign(owner): 'me' is not accepted; a mapping of texts to texts is expected"),
    ({"ipv4": 1, "owner": {"job": 1}}, "assign(owner): {'job': 1} is not accepted; a mapping of texts to texts"),
    ({"ipv4": 1, "pools": "main"}, "assign(pools): 'main' is not accepted; a list of pools' names or prefixes"),
    ({"ipv4": 1, "pools": Prefix.parse(POOL)}, "assign(pools): '10.0.0.0/24' is not accepted"),
    ({"ipv4": 1, "pools": [4]}, "assign(pools): 4 is not accepted; a list of pools' names or prefixes is expected"),
    ({"ipv4": 1, "ipv6": 1, "pools": ["main"]}, "assign(pools): ('main',) is not accepted; with pools, "),
    ({"address": "10.0.0"}, "assign(address): '10.0.0' is not accepted; an Address or a text such as 10.0.0.7 is "),
    ({"address": 7}, "assign(address): 7 is not accepted; an Address or a text such as 10.0.0.7 is expected"),
    ({"address": "10.0.0.7", "ipv4": 1}, "assign(ipv4): 1 is not accepted; leave it out: address is 10.0.0.7, of this"),
])  # fmt: skip
def test_an_argument_of_an_assignment_is_checked(net: Network, options: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(InvalidArgument) as refusal:
        net.assign("job-1", **options)
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize("function", ["assign", "release", "held"])
@pytest.mark.parametrize("handle", ["", None, 7, b"job-1", "job\0", "job\n1", "\udcff"])
def test_a_handle_is_a_text(net: Network, function: str, handle: object) -> None:
    with pytest.raises(InvalidArgument, match=rf"^{function}\(handle\): .* is not accepted; a text "):
        getattr(net, function)(handle, **({"ipv4": 1} if function == "assign" else {}))


# --- the typed store -------------------------------------------------------------------------------------------------


def test_a_record_is_changed_by_a_decision(net: Network) -> None:
    pool = net.create_pool(POOL)
    node = Node(metadata=Metadata(name="n"))

    def decide(snapshot: Snapshot) -> Decision[str] | NeedMore:
        if not snapshot.has(Get(pool.key)):
            return NeedMore((Get(pool.key),))
        record = snapshot.find(pool.key)
        assert record is not None
        return Decision((Update(pool.key, record.value, record.revision),), "done")

    assert net.run([], decide).result == "done"
    with pytest.raises(NotFound):
        net.run([], lambda _snapshot: Decision((), NotFound(NODE.key(node.metadata.name))))


def test_a_decision_of_another_type_is_refused(net: Network) -> None:
    nothing: Any = None
    with pytest.raises(InvalidArgument, match=r"^run\(decide\): None is not accepted; a function is expected that"):
        net.run([], lambda _snapshot: nothing)


def test_the_ipam_refuses_a_number_for_a_deadline(net: Network) -> None:
    number: Any = 5
    with pytest.raises(InvalidArgument, match=r"^deadline: 5 is not accepted; a Deadline is expected"):
        net.ipam.held("job-1", deadline=number)


def test_a_deadline_is_the_networks_or_another(net: Network) -> None:
    assert net.deadline().remaining_s == 10
    assert net.deadline(3).remaining_s == 3
    assert net.pace().deadline.remaining_s == 10
