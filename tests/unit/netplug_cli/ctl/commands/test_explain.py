"""``ipam explain``: what it prints about addresses, handles, pods and requests, and how it exits."""

from __future__ import annotations

import json

import pytest
import yaml

from netplug_cli.ctl.commands.explain import Explanation, explanation_lines
from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.clock import SECOND_NS
from netplug_core.ipam.allocation.request import AssignRequest, Specific
from netplug_core.ipam.model import Affinity, AffinityState, Attribute, Block, Handle, affinity_key, handle_key
from netplug_core.ipam.outcome import BlockOutcome, BlockTrace
from netplug_core.ipam.reporting.explanation import RequestExplanation
from netplug_core.records import Create
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPReservation, IPReservationSpec, ippool_key, ipreservation_key
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from tests.harness.ctl import ToolHarness

PREFIX = Prefix.parse("10.65.0.0/26")
POD = (("namespace", "shop"), ("node", "node-b"), ("pod", "web-0"), ("timestamp", "2026-01-01T00:00:00Z"))
MINE = Attribute(handle="net.a", owner=POD, alternate=(("pod", "web-1"),))


def endpoint(pod: str) -> Create[object]:
    spec = WorkloadEndpointSpec(orchestrator="k8s", node="node-a", pod=pod, endpoint="eth0")
    value = WorkloadEndpoint(metadata=Metadata(name=pod, namespace="shop"), spec=spec)
    return Create(WORKLOAD_ENDPOINT.key("shop", pod), value)


@pytest.fixture
def used(harness: ToolHarness) -> ToolHarness:
    """A pool with a block of node-a, from which node-b has borrowed an address for a pod; another address cools."""
    harness.run_command("create", "-f", harness.write_pools(("main", "10.65.0.0/24")))
    now_ns = harness.clock.now_ns()
    block = Block.new(PREFIX, owner="host:node-a", now_ns=SECOND_NS)
    block = block.assign((Ordinal(4), Ordinal(7)), MINE).release(frozenset({Ordinal(7)}), cooling_from_ns=now_ns)
    reserved = IPReservationSpec(reserved=(Prefix.parse("10.65.0.0/30"),))
    harness.store_records(
        Create(affinity_key("host:node-a", PREFIX), Affinity(state=AffinityState.CONFIRMED)),
        Create(handle_key("net.a"), Handle(blocks=((PREFIX, 1),))),
        Create(block.key, block),
        Create(ipreservation_key("routers"), IPReservation(metadata=Metadata(name="routers"), spec=reserved)),
    )
    assert harness.run_command("ipam", "configure", "--ip-cooldown-seconds", "60") == 0
    return harness


# --- addresses --------------------------------------------------------------------------------------------------------

EXPLAINED = """10.65.0.4 is in use
  Since:       2026-01-01T00:00:00Z
  Handle:      net.a
  Owner:       namespace=shop node=node-b pod=web-0 timestamp=2026-01-01T00:00:00Z
  Alternate:   pod=web-1
  Block:       10.65.0.0/26 of node-a, claimed 1970-01-01T00:00:01Z; 2 of 64 addresses in use
  Affinity:    confirmed
  Borrowed by: node-b
  Pool:        IPPool main (10.65.0.0/24) may serve
"""


@pytest.mark.parametrize("subject", ["10.65.0.4", "net.a", "shop/web-0"])
def test_who_has_an_address_by_address_handle_or_pod(used: ToolHarness, subject: str) -> None:
    assert used.run_command("ipam", "explain", subject) == 0
    assert (used.out, used.err) == (EXPLAINED, "")


def test_an_address_that_cools_down(used: ToolHarness) -> None:
    assert used.run_command("ipam", "explain", "10.65.0.7") == 0
    assert used.out.splitlines()[:3] == [
        "10.65.0.7 is cooling down",
        "  Released:    2026-01-01T00:00:00Z",
        "  Given again: from 2026-01-01T00:01:01Z on",
    ]


def test_an_address_that_is_reserved_one_in_no_pool_and_one_by_a_setting(used: ToolHarness) -> None:
    used.run_command("ipam", "configure", "--strictaffinity", "true")
    used.run_command("ipam", "explain", "10.65.0.1")
    assert used.out.startswith("10.65.0.1 is not assigned\n  Block:       10.65.0.0/26 of node-a, ")
    assert used.out.endswith(
        "  Reserved by: IPReservation(routers)\n"
        "  Rule:        strict affinity is on: nothing is borrowed from blocks of other nodes\n"
    )
    used.run_command("ipam", "explain", "10.99.0.1")
    assert used.out == "10.99.0.1 is not assigned\n  Pool: no IPPool contains it\n"


def test_an_address_of_a_block_without_owner(used: ToolHarness) -> None:
    block = Block.new(Prefix.parse("10.65.0.64/26"), owner="", now_ns=1).assign((Ordinal(0),), Attribute())
    used.store_records(Create(block.key, block.relinquished()))
    used.run_command("ipam", "explain", "10.65.0.64")
    assert used.out == (
        "10.65.0.64 is in use\n"
        "  Block: 10.65.0.64/26 without an owner; 1 of 64 addresses in use\n"
        "  Pool:  IPPool main (10.65.0.0/24) may serve\n"
    )


def test_damaged_records_are_named_and_the_rest_is_explained(used: ToolHarness) -> None:
    used.damage = {ippool_key("main"): b"{", affinity_key("host:node-a", PREFIX): b"{"}
    assert used.run_command("ipam", "explain", "10.65.0.4") == 0
    assert used.out.startswith("10.65.0.4 is in use\n")
    assert "  Pool:        none that can be read contains it\n" in used.out
    assert "  Problem:     the stored record IPPool(main) is malformed: " in used.out
    assert "  Problem:     ipam check --fix would restore the affinity of host:node-a" in used.out


def test_a_damaged_block_is_named_for_its_pod(used: ToolHarness) -> None:
    block = Block.new(Prefix.parse("10.65.0.64/26"), owner="host:node-a", now_ns=1)
    used.store_records(Create(block.key, block))
    used.damage = {block.key: b"{"}
    assert used.run_command("ipam", "explain", "shop/web-0") == 0
    assert used.out.startswith(EXPLAINED)
    assert used.out.splitlines()[-1].startswith("problem: the stored record IPAMBlock(ipv4/10.65.0.64/26) is malformed")


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_pod_without_an_address_learns_what_it_would_get(used: ToolHarness) -> None:
    used.store_records(endpoint("web-9"))
    assert used.run_command("ipam", "explain", "shop/web-9") == 0
    assert used.out == (
        "no address is held for the pod shop/web-9\n"
        "\n"
        "A request for an IPv4 address for shop/web-9 from node-a would get 10.65.0.5\n"
        "Considered:\n"
        "  IPPool main (10.65.0.0/24) may serve\n"
        "  block 10.65.0.0/26 gave addresses\n"
    )


def test_a_pod_of_which_no_node_is_known(used: ToolHarness) -> None:
    assert used.run_command("ipam", "explain", "shop/web-9") == 1
    assert used.out == (
        "no address is held for the pod shop/web-9; no endpoint says on which node it is: "
        "--node NODE says what it would get there\n"
    )


def test_a_refusal_is_in_the_words_of_the_error(used: ToolHarness) -> None:
    assert used.run_command("ipam", "explain", "--node", "node-z", "--pool", "none") == 1
    assert used.out == (
        "A request for an IPv4 address of none from node-z would be refused with code 101 (pool-not-found):\n"
        "  the given pool (none) does not exist, or is not enabled; pools of this cluster: main (10.65.0.0/24)\n"
        "What to do: name a pool by its name or its whole CIDR, or create it\n"
    )


def test_a_locked_datastore_refuses_a_request(used: ToolHarness) -> None:
    used.set_locked()
    assert used.run_command("ipam", "explain", "--node", "node-a") == 1
    assert "would be refused with code 11:\n" in used.out
    assert "spec.datastoreReady is false: pod networking is locked" in used.out


def test_a_pool_that_does_not_serve_says_why(used: ToolHarness) -> None:
    used.run_command("patch", "ippool", "main", "-p", '{"spec": {"disabled": true}}')
    assert used.run_command("ipam", "explain", "--node", "node-a") == 1
    assert "would be refused with code 104 (no-pool-selected):\n" in used.out
    assert "IPPool main (10.65.0.0/24) is disabled" in used.out


def test_a_pod_with_addresses_gets_a_request_only_if_asked(used: ToolHarness) -> None:
    assert used.run_command("ipam", "explain", "shop/web-0", "--node", "node-a", "--family", "4") == 0
    assert used.out.startswith(f"{EXPLAINED}\nA request for an IPv4 address for shop/web-0 from node-a would get ")


def test_an_address_is_asked_for_by_name(used: ToolHarness) -> None:
    assert used.run_command("ipam", "explain", "10.65.0.4", "--node", "node-a") == 1
    assert "A request for the address 10.65.0.4 from node-a would be refused with code 112 (address-taken):" in used.out
    assert "10.65.0.4: Address already assigned in block 10.65.0.0/26 by pod shop/web-0" in used.out


def test_an_unknown_handle(used: ToolHarness) -> None:
    assert used.run_command("ipam", "explain", "net.zz") == 1
    assert used.out == "no address is held by the handle net.zz\n"


def test_a_long_trace_is_cut_for_people() -> None:
    trace = tuple(
        BlockTrace(block=Prefix.parse(f"10.0.{number}.0/24"), outcome=BlockOutcome.FULL) for number in range(25)
    )
    request = AssignRequest(handle=None, node="a", wanted=(Specific(address=Address.parse("10.0.0.1")),))
    found = RequestExplanation(request=request, addresses=(Address.parse("10.0.0.1"),), trace=trace)
    lines = list(explanation_lines(Explanation(subject="x", requests=(found,))))
    assert lines[-2:] == ["  block 10.0.19.0/24 has no free address", "  and 5 more; -o yaml shows all"]


# --- for programs -----------------------------------------------------------------------------------------------------


def test_documents_have_what_the_text_has(used: ToolHarness) -> None:
    assert used.run_command("ipam", "explain", "10.65.0.4", "-o", "yaml") == 0
    document = yaml.safe_load(used.out)
    assert document == {
        "subject": "10.65.0.4",
        "addresses": [
            {
                "address": "10.65.0.4",
                "state": "in-use",
                "since": "2026-01-01T00:00:00Z",
                "handle": "net.a",
                "sequenceNumber": SECOND_NS,
                "owner": dict(POD),
                "alternateOwner": {"pod": "web-1"},
                "block": {
                    "cidr": "10.65.0.0/26",
                    "owner": "host:node-a",
                    "claimedAt": "1970-01-01T00:00:01Z",
                    "affinity": "confirmed",
                    "borrowedBy": "node-b",
                    "inUse": 2,
                    "size": 64,
                },
                "pools": [
                    {
                        "name": "main",
                        "cidr": "10.65.0.0/24",
                        "state": "serves",
                        "text": "IPPool main (10.65.0.0/24) may serve",
                    }
                ],
            }
        ],
    }


def test_the_document_of_a_refusal_has_code_reason_and_next_step(used: ToolHarness) -> None:
    assert used.run_command("ipam", "explain", "10.65.0.4", "--node", "n", "-o", "json") == 1
    (request,) = json.loads(used.out)["requests"]
    assert (request["node"], request["requestedAddress"], request["family"]) == ("n", "10.65.0.4", "IPv4")
    assert request["error"]["code"] == 112
    assert request["error"]["reason"] == "address-taken"
    assert set(request["error"]) == {"code", "reason", "message", "nextStep"}


# --- wrong usage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv, message",
    [
        ([], "Give an ADDRESS, a NAMESPACE/POD, a HANDLE, or --node NODE."),
        (["10.65.0.4", "--family", "4"], "--family is not for an ADDRESS, which has one."),
        (["10.65.0.4", "--pool", "main"], "--pool is for a request: give --node too."),
        (["net.a", "--node", "n"], "--node, --pool and --family are not for a HANDLE."),
    ],
)
def test_options_that_do_not_fit(used: ToolHarness, argv: list[str], message: str) -> None:
    assert used.run_command("ipam", "explain", *argv) == 2
    assert message in used.err
    assert used.out == ""


@pytest.mark.parametrize(
    "subject, message",
    [
        ("10.240.0.300", "invalid IP address: '10.240.0.300'"),
        ("fd00::zz::1", "invalid IP address: 'fd00::zz::1'"),
        ("10.65.0.0/24", "10.65.0.0/24 is a CIDR"),
        ("shop/web_0", "'shop/web_0' is not the name of a pod"),
        ("/web", "'/web' is not the name of a pod"),
    ],
)
def test_a_subject_that_is_none(used: ToolHarness, subject: str, message: str) -> None:
    assert used.run_command("ipam", "explain", subject) == 1
    assert used.err.startswith(f"netplugctl: {message}; an address, NAMESPACE/POD or the id of a handle is expected")
    assert len(used.err.splitlines()) == 1
