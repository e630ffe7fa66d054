"""The node process enforces stored policies on a real kernel, in both families."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing

import pytest
from attrs import evolve

from netplug_backends.linux.nftables import NftablesRuleset
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.dataplane.filter import POLICY_TABLE, SOURCE_GUARD
from netplug_core.policy.model import UDP
from netplug_core.resources.fields import PortRange
from netplug_core.resources.networkpolicy import Direction
from netplug_core.resources.policyrule import EntityRule, PolicyRule, Protocol, RuleAction
from tests.harness.damaged_records import store_raw
from tests.harness.nat_scene import ADDRESSES
from tests.harness.node import NetnsNode
from tests.harness.policies import allow, deny, make_global_policy, make_policy
from tests.harness.policy_flood import ALLOWED, DENIED, count, count_packets, flooded
from tests.harness.policy_node import OUTSIDE, PolicyNode, namespace_profile, open_policy_node, stored_pod
from tests.harness.policy_scene import received
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.netns]

WEB = "app == 'web'"
PROGRAMMED = "policy is programmed"
FROM_CLIENT = allow(source=EntityRule(selector="app == 'client'"))
ISOLATED = {"client_web": False, "outside_web": False}


@pytest.fixture(params=Family, ids=str)
def here(node: NetnsNode, request: pytest.FixtureRequest) -> Iterator[PolicyNode]:
    with open_policy_node(node, request.param) as made:
        yield made


@pytest.fixture
def enforcing(here: PolicyNode) -> PolicyNode:
    """A node process that enforces."""
    here.start()
    here.wait_for_line(PROGRAMMED)
    return here


def to_port(port: int) -> PolicyRule:
    """Packets of UDP to a port are allowed."""
    return allow(protocol=Protocol(UDP), destination=EntityRule(ports=(PortRange(port, port),)))


def table(node: PolicyNode) -> list[str]:
    """What the table of policy has in it without counters, in an order of its own; nothing if there is none."""
    return sorted(re.split(r"[\s,]+", node.node.run_unchecked("nft", "-s", "list", "table", "inet", "netplug").stdout))


def handles(node: PolicyNode) -> list[str]:
    """The numbers that the kernel gave to chains and rules when they were made."""
    return re.findall(r"# handle [0-9]+", node.nft("-a", "list", "table", "inet", "netplug"))


def source_drops(node: PolicyNode) -> int:
    """How many packets the guard of sources has dropped."""
    with node.scene.nat.inside():
        return NftablesRuleset().count_packets(POLICY_TABLE, SOURCE_GUARD)


def nodad(node: PolicyNode) -> tuple[str, ...]:
    """An address of IPv6 is usable at once."""
    return ("nodad",) if node.scene.nat.family is Family.IPV6 else ()


def test_stored_policies_close_and_open_workloads(enforcing: PolicyNode) -> None:
    """P-1, P-2, P-3, P-5, P-26."""
    enforcing.wait_for()
    isolating = make_policy("isolate", selector=WEB)
    enforcing.put(isolating)
    enforcing.wait_for(**ISOLATED)
    enforcing.put(make_policy("isolate", FROM_CLIENT, selector=WEB))
    enforcing.wait_for(outside_web=False)
    outside = Prefix.parse(enforcing.scene.nat.addresses.outsides)
    everyone = make_policy("isolate", allow(), selector=WEB)
    first = make_global_policy("first", deny(source=EntityRule(nets=(outside,))), order=10.0, selector=WEB)
    enforcing.put(evolve(everyone, spec=evolve(everyone.spec, order=1000.0)), first)
    enforcing.wait_for(outside_web=False)
    enforcing.put(evolve(first, spec=evolve(first.spec, order=2000.0)))
    enforcing.wait_for()
    enforcing.remove(first)
    enforcing.put(make_policy("isolate", selector=WEB, types=(Direction.EGRESS,)))
    enforcing.wait_for(web_client=False, web_outside=False, web_node=False)
    enforcing.remove(isolating)
    enforcing.wait_for()


def test_members_follow_the_labels_of_a_namespace(enforcing: PolicyNode) -> None:
    """P-11."""
    from_y = allow(source=EntityRule(namespace_selector="team == 'y'"))
    enforcing.put(make_policy("isolate", from_y, selector=WEB))
    enforcing.wait_for(**ISOLATED)
    before = enforcing.nft("-s", "-t", "list", "table", "inet", "netplug")
    enforcing.put(namespace_profile("x", team="y"))
    enforcing.wait_for(outside_web=False)
    assert enforcing.nft("-s", "-t", "list", "table", "inet", "netplug") == before, "only members have changed"


def test_a_workload_sends_from_its_own_addresses_alone(enforcing: PolicyNode) -> None:
    """P-44."""
    scene = enforcing.scene
    at, client = scene.nat.addresses, scene.nat.client.name
    width = 32 if scene.nat.family is Family.IPV4 else 128
    enforcing.wait_for()
    enforcing.node.run("ip", "-n", client, "addr", "add", f"{at.floating}/{width}", "dev", "eth0", *nodad(enforcing))
    before = source_drops(enforcing)
    assert not scene.passes(client, at.outside, "world", source=at.floating)
    assert source_drops(enforcing) > before
    assert scene.passes(client, at.outside, "world", source=at.client)


def test_what_is_in_force_outlives_the_process(here: PolicyNode) -> None:
    """P-50, P-51: also while the store is away."""
    here.put(make_policy("isolate", selector=WEB))
    here.start()
    here.wait_for_line(PROGRAMMED)
    here.wait_for(**ISOLATED)
    before, held = table(here), handles(here)
    here.kill()
    here.wait_for(**ISOLATED)
    here.start()
    here.wait_for_line(PROGRAMMED, 2)
    assert table(here) == before
    assert handles(here) == held, "nothing was written"
    here.kill()
    os.rename(here.node.database, f"{here.node.database}.away")
    os.mkdir(here.node.database)
    here.start()
    here.wait_for_line("cannot be followed")
    here.wait_for(**ISOLATED)
    assert table(here) == before
    os.rmdir(here.node.database)
    os.rename(f"{here.node.database}.away", here.node.database)
    here.remove(make_policy("isolate"))
    here.wait_for()


def test_a_process_that_dies_and_comes_back_costs_no_packet(enforcing: PolicyNode) -> None:
    """P-50: of a flood, all that is allowed passes, and nothing else."""
    scene = enforcing.scene
    enforcing.put(make_policy("isolate", to_port(ALLOWED), selector=WEB))
    enforcing.wait_for(**ISOLATED)
    count_packets(enforcing.node)
    with flooded(scene):
        enforcing.kill()
        enforcing.start()
        enforcing.wait_for_line(PROGRAMMED, 2)
    found = count(scene)
    assert min(found.denied_in, found.allowed_in) > 0
    assert (found.denied_out, found.allowed_out) == (0, found.allowed_in)


def test_what_changes_while_no_process_runs_opens_nothing_when_it_is_made_up_for(enforcing: PolicyNode) -> None:
    """P-52: one policy is deleted and one is created; nothing passes that neither of them lets pass."""
    scene, first = enforcing.scene, make_policy("first", to_port(ALLOWED), selector=WEB)
    enforcing.put(first)
    enforcing.wait_for(**ISOLATED)
    enforcing.kill()
    enforcing.remove(first)
    enforcing.put(make_policy("second", evolve(to_port(DENIED), action=RuleAction.DENY), allow(), selector=WEB))
    count_packets(enforcing.node)
    with flooded(scene):
        enforcing.start()
        enforcing.wait_for_line(PROGRAMMED, 2)
    found = count(scene)
    assert (found.denied_in > 0, found.denied_out) == (True, 0)
    enforcing.wait_for()


def test_workloads_without_a_process_stay_as_they_are_until_everything_is_known(here: PolicyNode) -> None:
    """P-49: no table, no guard; and P-72: then all at once, and a flow that is allowed loses nothing."""
    here.node.run("sh", "-c", "! nft list table inet netplug 2>/dev/null")
    here.start(NETPLUG_POLICY="Disabled")
    here.wait_for_line("the packet filter is programmed")
    here.node.run("sh", "-c", "! nft list table inet netplug 2>/dev/null")
    here.kill()
    others = (stored_pod(f"other-{number}", texts=(), interface_name=f"netpo{number}") for number in range(48))
    here.put(make_policy("isolate", to_port(ALLOWED), selector=WEB), *others)
    count_packets(here.node)
    with flooded(here.scene):
        here.start()
        here.wait_for_line(PROGRAMMED)
        programmed = count(here.scene)
        wait_until(lambda: count(here.scene).denied_in > programmed.denied_in, "more packets come")
    found = count(here.scene)
    assert found.denied_out > 0, "before"
    assert found.denied_out == programmed.denied_out, "afterwards"
    assert found.allowed_out == found.allowed_in
    here.wait_for(**ISOLATED)
    assert "the guard" not in here.process_lines()


def test_a_table_that_another_program_removes_or_changes_is_repaired(enforcing: PolicyNode) -> None:
    """P-54, P-55."""
    enforcing.put(make_policy("isolate", selector=WEB))
    enforcing.wait_for(**ISOLATED)
    before = table(enforcing)
    enforcing.nft("flush", "ruleset")
    enforcing.nft("add", "table", "inet", "other")
    enforcing.wait_for_line("another program has removed the table of policy")
    assert 'program="nft"' in enforcing.process_lines(), "it was heard, not found"
    wait_until(lambda: table(enforcing) == before, "the table is whole again")
    enforcing.wait_for(**ISOLATED)
    left_alone = enforcing.nft("-a", "-s", "list", "chain", "inet", "netplug", "tw-netp6")
    for number, change in enumerate((("insert", "rule", "accept"), ("flush", "chain")), 1):
        enforcing.nft(*change[:2], "inet", "netplug", "tw-netp5", *change[2:])
        enforcing.wait_for_line("another program has changed the table of policy", number)
        wait_until(lambda: table(enforcing) == before, "the chain is as it was")
        assert enforcing.nft("-a", "-s", "list", "chain", "inet", "netplug", "tw-netp6") == left_alone
    assert "table inet other" in enforcing.nft("list", "tables")


def test_a_chain_of_another_program_that_drops_is_named_with_a_remedy(here: PolicyNode) -> None:
    chain = "{ type filter hook forward priority 0; policy drop; }"
    here.node.run("nft", "-f", "-", stdin=f"table ip filter {{ chain FORWARD {chain}; }}")
    here.start()
    here.wait_for_line("another program may drop packets that policy allows")
    assert "nft 'chain ip filter FORWARD { policy accept; }'" in here.process_lines()


def test_an_address_that_moves_takes_no_connection_along(enforcing: PolicyNode) -> None:
    """P-58."""
    scene, at = enforcing.scene, enforcing.scene.nat.addresses
    family, client = scene.nat.family, scene.nat.client.name
    width = 32 if family is Family.IPV4 else 128
    enforcing.wait_for()
    with scene.nat.socket_at(scene.nat.web.name, at.web, 8081) as first, scene.nat.socket_at(OUTSIDE) as outside:
        outside.sendto(b"request", (at.web, 8081))
        _, peer = first.recvfrom(100)
        first.sendto(b"answer", peer)
        assert outside.recvfrom(100)[0] == b"answer"
        enforcing.put(make_policy("isolate", selector="app == 'client'"))
        enforcing.wait_for(web_client=False)
        enforcing.node.run("ip", "-n", client, "addr", "add", f"{at.web}/{width}", "dev", "eth0", *nodad(enforcing))
        enforcing.remove(stored_pod("web"))
        enforcing.put(stored_pod("client", texts=(at.client, at.web)))
        guarded = ("list", "set", "inet", "netplug", f"src-v{family.value}")
        wait_until(lambda: f'"netp6" . {at.web}' in enforcing.nft(*guarded), "the address is the other one's")
        enforcing.node.run("ip", "route", "replace", f"{at.web}/{width}", "dev", "netp6")
        with scene.nat.socket_at(client, at.web, 8081) as second:
            second.settimeout(0)

            # The set is in the kernel a moment before the connections are forgotten, and others' packets count too.
            def is_closed() -> bool:
                list(received(second))
                before = scene.dropped()
                outside.sendto(b"more", (at.web, 8081))
                return scene.dropped() > before and not list(received(second))

            wait_until(is_closed, "its packets are dropped")
            for _ in range(20):
                outside.sendto(b"more", (at.web, 8081))
            assert not list(received(second))


def test_a_rule_that_cannot_be_enforced_leaves_the_others_in_force(enforcing: PolicyNode) -> None:
    """P-66."""
    broken = allow(destination=EntityRule(selector="app =="))
    enforcing.put(make_policy("isolate", broken, FROM_CLIENT, selector=WEB))
    enforcing.wait_for(outside_web=False)
    enforcing.wait_for_line("a part of a policy is not enforced as it stands")


@pytest.mark.night
def test_a_policy_whose_record_cannot_be_read_opens_nothing(enforcing: PolicyNode) -> None:
    """What was known of it stays in force; where nothing was, its namespace is closed. Other policies go on."""
    from_nobody, at = make_policy("isolate", selector=WEB), enforcing.scene.nat.addresses
    far = stored_pod("client", namespace="y")
    enforcing.remove(stored_pod("client"))
    enforcing.put(from_nobody, namespace_profile("y"), far)
    enforcing.wait_for(**ISOLATED)
    store_raw(enforcing.node.database, "NetworkPolicy", ("x", "isolate"), "{")
    enforcing.wait_for_line("a stored record cannot be read; what was known of it before counts")
    enforcing.put(make_policy("other", namespace="y"))
    enforcing.wait_for(**ISOLATED, web_client=False)
    enforcing.remove(make_policy("other", namespace="y"))
    enforcing.wait_for(**ISOLATED)
    enforcing.kill()
    enforcing.start()
    enforcing.wait_for_line(PROGRAMMED, 2)
    enforcing.wait_for(**ISOLATED, web_client=False, web_outside=False, web_node=False)
    assert enforcing.scene.passes(enforcing.scene.nat.client.name, at.outside, OUTSIDE), "it is another namespace's"
    enforcing.wait_for_line("NetworkPolicy x/isolate: cannot be read: the endpoints that it may be for are closed")
    with closing(sqlite3.connect(enforcing.node.database, timeout=30)) as connection, connection:
        connection.execute("DELETE FROM record WHERE path = 'x\x1fisolate'")
    enforcing.wait_for()


def test_an_endpoint_on_what_is_no_interface_leaves_the_others_as_they_are(enforcing: PolicyNode) -> None:
    """The kernel would refuse the table with it."""
    enforcing.put(stored_pod("odd", texts=(), interface_name="netp-of-a-long-name"), make_policy("p", selector=WEB))
    enforcing.wait_for(**ISOLATED)
    enforcing.wait_for_line("no interface has the name 'netp-of-a-long-name': it is not programmed")


def test_status_files_say_for_which_container_policy_is_programmed(enforcing: PolicyNode) -> None:
    """P-64: as long as the interface is up, and no other file is there."""
    name = "k8s x%2Fweb eth0"
    wait_until(lambda: len(enforcing.statuses()) == 2, "both endpoints have files")
    found = next(each for each in enforcing.statuses().values() if each.host_interface == "netp5")
    assert (found.container_id, found.endpoint) == ("c1", "x/here-k8s-web-eth0")
    assert {each.first for each in (*found.ipv4_nets, *found.ipv6_nets)} == {
        Address.parse(ADDRESSES[each].web) for each in Family
    }
    path = next(each for each, one in enforcing.statuses().items() if one == found)
    assert stat.S_IMODE(os.stat(f"{enforcing.node.file('endpoint-status')}/{path}").st_mode) == 0o644, name
    enforcing.node.run("ip", "link", "set", "netp5", "down")
    wait_until(lambda: path not in enforcing.statuses(), "the file of an interface that is down is gone")
    enforcing.node.run("ip", "link", "set", "netp5", "up")
    wait_until(lambda: path in enforcing.statuses(), "it is there again")
    web = stored_pod("web")
    enforcing.put(evolve(web, spec=evolve(web.spec, container_id="c2")))
    wait_until(lambda: enforcing.statuses().get(path, found).container_id == "c2", "it is the next container's")
    enforcing.remove(web)
    wait_until(lambda: path not in enforcing.statuses(), "an endpoint that is gone has none")
