"""``ipam show`` and ``ipam configure``: what they print, and how they exit."""

import csv
import json

import pytest
import yaml

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.ipam.model import Attribute, Block
from netplug_core.records import Create
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPReservation, IPReservationSpec, ipreservation_key
from tests.harness.ctl import ToolHarness

MINE = Attribute(handle="net.4f2a", owner=(("node", "node-a"), ("note", 'two "words"'), ("pod", "web-0")))


def block(cidr: str, held: int, attribute: Attribute, owner: str = "host:node-a") -> Create[object]:
    empty = Block.new(Prefix.parse(cidr), owner=owner, now_ns=1)
    full = empty.assign(tuple(map(Ordinal, range(held))), attribute)
    return Create(full.key, full)


def reserve(*cidrs: str) -> Create[object]:
    spec = IPReservationSpec(reserved=tuple(map(Prefix.parse, cidrs)))
    return Create(ipreservation_key("routers"), IPReservation(metadata=Metadata(name="routers"), spec=spec))


def lines(harness: ToolHarness) -> list[str]:
    return harness.out.splitlines()


@pytest.fixture
def used(harness: ToolHarness) -> ToolHarness:
    """Five addresses of an IPv4 pool and seven of an IPv6 pool."""
    harness.run_command("create", "-f", harness.write_pools(("v4", "10.65.0.0/16"), ("v6", "fd5f:abcd:64::/48")))
    harness.store_records(block("10.65.0.0/26", 5, MINE), block("fd5f:abcd:64::/122", 7, Attribute()))
    return harness


# --- pools and blocks ----------------------------------------------------------------------------------------------


def test_how_full_each_pool_is(used: ToolHarness) -> None:
    """S-51 of the catalogue."""
    assert used.run_command("ipam", "show") == 0
    assert lines(used) == [
        "POOL   CIDR                IPS TOTAL    IPS IN USE   IPS COOLING   IPS RESERVED   IPS FREE",
        "v4     10.65.0.0/16        65536        5 (0%)       0             0              65531 (100%)",
        "v6     fd5f:abcd:64::/48   1.2089e+24   7 (0%)       0             0              1.2089e+24 (100%)",
    ]


def test_pools_of_one_family_have_a_total_and_orphans_a_row(used: ToolHarness) -> None:
    used.run_command("create", "-f", used.write_pools(("more", "10.66.0.0/24")))
    used.store_records(reserve("10.66.0.0/25"), block("10.66.0.0/26", 2, MINE), block("10.70.0.0/28", 8, MINE))
    used.run_command("ipam", "show")
    header, *rows = lines(used)
    assert header.startswith("POOL                         CIDR ")
    assert [row.split("  ")[0] for row in rows] == ["more", "v4", "v6", "orphaned allocation blocks", "all IPv4"]
    assert rows[0].split() == ["more", "10.66.0.0/24", "256", "2", "(1%)", "0", "128", "128", "(50%)"]
    assert rows[3].split()[3:] == ["0.0.0.0/0", "16", "8", "(50%)", "0", "0", "8", "(50%)"]
    assert rows[4].split() == ["all", "IPv4", "65792", "7", "(0%)", "0", "128", "65659", "(100%)"]


def test_pools_are_named_or_given_as_a_cidr(used: ToolHarness) -> None:
    assert used.run_command("ipam", "show", "fd5f:abcd:64::/48", "v4") == 0
    assert [line.split()[0] for line in lines(used)] == ["POOL", "v6", "v4"]
    assert used.run_command("ipam", "show", "v5") == 1
    assert (used.out, used.err) == ("", "netplugctl: resource does not exist: IPPool(v5); did you mean v4?\n")


def test_blocks_and_then_every_address_with_its_handle(used: ToolHarness) -> None:
    """S-51 of the catalogue."""
    used.store_records(reserve("10.65.0.60/30", "fd5f:abcd:64::/120"))
    assert used.run_command("ipam", "show", "--show-blocks") == 0
    _, blocks, held = used.out.split("\n\n")
    assert blocks.splitlines() == [
        "BLOCK                NODE     IPS IN USE   IPS COOLING   IPS RESERVED   IPS FREE",
        "10.65.0.0/26         node-a   5 (8%)       0             4              55 (86%)",
        "fd5f:abcd:64::/122   node-a   7 (11%)      0             64             0 (0%)",
    ]
    rows = held.splitlines()
    assert len(rows) == 13
    assert rows[0] == "IP HANDLE OWNER"
    assert rows[1] == r'10.65.0.0 net.4f2a node=node-a note="two \"words\"" pod=web-0'
    assert rows[6] == "fd5f:abcd:64:: -"


def test_the_blocks_of_a_pool_alone(used: ToolHarness) -> None:
    used.store_records(block("10.70.0.0/28", 8, MINE))
    used.run_command("ipam", "show", "v4", "--show-blocks")
    pools, blocks, held = used.out.split("\n\n")
    assert [len(part.splitlines()) for part in (pools, blocks, held)] == [2, 2, 6]


def test_shares_are_of_the_block(harness: ToolHarness) -> None:
    """S-51 of the catalogue."""
    harness.store_records(
        block("10.66.0.0/29", 8, Attribute()), block("10.66.0.8/29", 3, Attribute(), owner="virtual:lb")
    )
    harness.run_command("ipam", "show", "--show-blocks")
    rows = [line.split(maxsplit=2)[1:] for line in harness.out.split("\n\n")[1].splitlines()[1:]]
    assert [[node, shares.split()] for node, shares in rows] == [
        ["node-a", ["8", "(100%)", "0", "0", "0", "(0%)"]],
        ["virtual:lb", ["3", "(38%)", "0", "0", "5", "(62%)"]],
    ]


def test_an_address_that_cools_down_says_when_it_was_released(harness: ToolHarness) -> None:
    harness.store_records(block("10.66.0.0/29", 1, Attribute(released_ns=1_767_225_600_000_000_000)))
    harness.run_command("ipam", "show", "--show-blocks")
    assert harness.out.splitlines()[-1] == "10.66.0.0 - released=2026-01-01T00:00:00Z"
    assert lines(harness)[1].split()[-7:] == ["8", "1", "(12%)", "1", "0", "7", "(88%)"]


def test_nothing_to_show_is_headers_alone(harness: ToolHarness) -> None:
    assert harness.run_command("ipam", "show", "--show-blocks") == 0
    assert [line.split()[:1] for line in harness.out.splitlines()] == [["POOL"], [], ["BLOCK"], [], ["IP"]]
    assert harness.err == "netplugctl: no IPPool found\n"


# --- one address ---------------------------------------------------------------------------------------------------


def test_an_address_in_use_has_a_handle_and_owners(used: ToolHarness) -> None:
    """S-51 of the catalogue."""
    assert used.run_command("ipam", "show", "--ip", "10.65.0.4") == 0
    assert used.out.splitlines() == [
        "IP 10.65.0.4 is in use",
        "Handle ID: net.4f2a",
        "Active Owner Attributes:",
        "  node: node-a",
        '  note: two "words"',
        "  pod: web-0",
    ]
    used.run_command("ipam", "show", "--ip=fd5f:abcd:64:0::6")
    assert used.out.splitlines() == [
        "IP fd5f:abcd:64::6 is in use",
        "Handle ID: <none>",
        "No Active Owner attributes defined",
    ]


def test_an_alternate_owner_is_shown(harness: ToolHarness) -> None:
    harness.store_records(block("10.66.0.0/29", 1, Attribute(handle="h", alternate=(("node", "b"), ("pod", "c")))))
    harness.run_command("ipam", "show", "--ip", "10.66.0.0")
    assert harness.out.splitlines()[2:] == [
        "No Active Owner attributes defined",
        "Alternate Owner Attributes:",
        "  node: b",
        "  pod: c",
    ]


def test_a_free_address_may_be_reserved(used: ToolHarness) -> None:
    """S-51 of the catalogue."""
    used.store_records(reserve("10.65.0.9"))
    assert used.run_command("ipam", "show", "--ip", "10.65.0.8") == 0
    assert used.out == "10.65.0.8 is not assigned\n"
    used.run_command("ipam", "show", "--ip", "10.65.0.9")
    assert used.out == "10.65.0.9 is not assigned; it is reserved by IPReservation(routers)\n"


def test_an_address_that_cools_down_is_said_to(harness: ToolHarness) -> None:
    harness.run_command("ipam", "configure", "--ip-cooldown-seconds", "60")
    harness.store_records(block("10.66.0.0/29", 1, Attribute(released_ns=1_767_225_600_000_000_000)))
    assert harness.run_command("ipam", "show", "--ip", "10.66.0.0") == 0
    assert harness.out == (
        "IP 10.66.0.0 is cooling down: released at 2026-01-01T00:00:00Z, given again from 2026-01-01T00:01:01Z on\n"
    )


@pytest.mark.parametrize("text", ["10.240.0.300", "10.65.0.0/26", ""])
def test_what_is_no_address_is_exit_2(harness: ToolHarness, text: str) -> None:
    """S-51 of the catalogue."""
    assert harness.run_command("ipam", "show", f"--ip={text}") == 2
    assert f"netplugctl: Invalid value for '--ip': invalid IP address: '{text}'" in harness.err


# --- borrowed addresses --------------------------------------------------------------------------------------------


def test_borrowed_addresses_say_who_has_them_and_whose_block_it_is(harness: ToolHarness) -> None:
    holders: list[tuple[str, dict[str, str], list[str]]] = [
        ("10.66.0.0/29", {"pod": "web-0", "namespace": "shop"}, ["pod", "shop/web-0"]),
        ("10.66.0.8/29", {"pod": "web-1"}, ["pod", "web-1"]),
        ("10.66.0.16/29", {"service": "dns", "namespace": "system"}, ["service", "system/dns"]),
        ("10.66.0.24/29", {"service": "dns"}, ["service", "dns"]),
        ("10.66.0.32/29", {"container": "4f2a"}, ["container", "4f2a"]),
        ("10.66.0.40/29", {"type": "ipipTunnelAddress"}, ["ipipTunnelAddress", "h"]),
    ]
    for cidr, owner, _ in holders:
        pairs = tuple(sorted({**owner, "node": "node-b"}.items()))
        harness.store_records(block(cidr, 1, Attribute(handle="h", owner=pairs)))
    harness.store_records(block("10.66.0.48/29", 1, Attribute(owner=(("node", "node-b"),)), owner="virtual:lb"))
    harness.store_records(block("10.66.0.56/29", 1, MINE))
    assert harness.run_command("ipam", "show", "--show-borrowed") == 0
    header, *rows = lines(harness)
    assert header == "IP           BORROWING-NODE   BLOCK           BLOCK OWNER   TYPE                ALLOCATED-TO"
    assert [row.split() for row in rows] == [
        *([cidr.removesuffix("/29"), "node-b", cidr, "node-a", *cells] for cidr, _, cells in holders),
        ["10.66.0.48", "node-b", "10.66.0.48/29", "virtual:lb"],
    ]


# --- the rules -----------------------------------------------------------------------------------------------------


def test_the_rules_have_defaults_and_showing_them_stores_nothing(harness: ToolHarness) -> None:
    """Trap 13."""
    assert harness.run_command("ipam", "show", "--show-configuration") == 0
    assert [line.split() for line in harness.out.splitlines()] == [
        ["PROPERTY", "VALUE"],
        ["StrictAffinity", "false"],
        ["AutoAllocateBlocks", "true"],
        ["MaxBlocksPerHost", "0"],
        ["IPCooldownSeconds", "0"],
    ]
    assert harness.store.calls.commits == 0


def test_only_the_rules_that_are_given_change(harness: ToolHarness) -> None:
    """Trap 38."""
    assert harness.run_command("ipam", "configure", "--strictaffinity=true", "--max-blocks-per-host", "4") == 0
    assert harness.out == "Successfully set StrictAffinity to: true\nSuccessfully set MaxBlocksPerHost to: 4\n"
    assert harness.run_command("ipam", "configure", "--ip-cooldown-seconds=0") == 0
    assert harness.out == "Successfully set IPCooldownSeconds to: 0\n"
    assert harness.run_command("ipam", "configure", "--max-blocks-per-host=0") == 0
    harness.run_command("ipam", "show", "--show-configuration")
    assert [line.split()[1] for line in lines(harness)] == ["VALUE", "true", "true", "0", "0"]


def test_a_rule_that_nothing_acts_upon_is_shown_where_it_is_set(harness: ToolHarness) -> None:
    text = "kind: IPAMConfiguration\napiVersion: projectnetplug.org/v3\nmetadata: {name: default}\n"
    harness.run_command("apply", "-f", harness.write_file(f"{text}spec: {{kubeVirtVMAddressPersistence: Disabled}}\n"))
    harness.run_command("ipam", "show", "--show-configuration")
    assert harness.out.splitlines()[-1].split() == ["KubeVirtVMAddressPersistence", "Disabled"]


def test_rules_that_contradict_each_other_are_refused(harness: ToolHarness) -> None:
    assert harness.run_command("ipam", "configure", "--max-blocks-per-host", "4") == 1
    assert harness.out == ""
    assert harness.err == (
        "netplugctl: IPAMConfiguration(default): error with field spec.maxBlocksPerHost = '4' "
        "(can only be set with strictAffinity true)\n"
    )


@pytest.mark.parametrize(
    "argv",
    [
        ["configure"],
        ["configure", "--strictaffinity=perhaps"],
        ["configure", "--max-blocks-per-host=-1"],
        ["configure", "--ip-cooldown-seconds=soon"],
        ["show", "--ip", "10.0.0.1", "--show-blocks"],
        ["show", "--show-borrowed", "--show-configuration"],
        ["show", "v4", "--show-borrowed"],
    ],
)
def test_a_command_line_that_makes_no_sense_is_exit_2(harness: ToolHarness, argv: list[str]) -> None:
    assert harness.run_command("ipam", *argv) == 2
    assert harness.err.startswith("netplugctl: ")
    assert "\nnetplugctl: see 'netplugctl ipam" in harness.err
    assert harness.out == ""


# --- names from outside --------------------------------------------------------------------------------------------


def test_what_a_terminal_would_obey_is_written_out(used: ToolHarness) -> None:
    """A program that writes into the datastore could otherwise clear the screen of who looks, or hide a line."""
    owner = (("node", "node-b"), ("pod", "\x1b[2Jweb"), ("type", "a\x7fb"))
    used.store_records(block("10.65.1.0/26", 1, Attribute(handle="net.\x9b2J", owner=owner)))
    for argv in (["--show-blocks"], ["--show-borrowed"], ["--ip", "10.65.1.0"]):
        assert used.run_command("ipam", "show", *argv) == 0
        assert used.out.replace("\n", "").isprintable(), argv
        assert r"\x1b[2Jweb" in used.out or r"\u001b[2Jweb" in used.out
    assert used.run_command("ipam", "check") == 1
    assert r"net.\x9b2J" in used.out
    assert used.run_command("ipam", "explain", "10.65.1.0") == 0
    assert used.out.replace("\n", "").isprintable()


# --- formats ---------------------------------------------------------------------------------------------------------


def test_the_configuration_has_typed_values_in_every_format(harness: ToolHarness) -> None:
    rows = [
        {"property": "StrictAffinity", "value": False},
        {"property": "AutoAllocateBlocks", "value": True},
        {"property": "MaxBlocksPerHost", "value": 0},
        {"property": "IPCooldownSeconds", "value": 0},
    ]
    assert harness.run_command("ipam", "show", "--show-configuration", "-o", "json") == 0
    assert json.loads(harness.out) == {"rows": rows, "notes": []}
    assert harness.run_command("ipam", "show", "--show-configuration", "-o", "yaml") == 0
    assert yaml.safe_load(harness.out) == {"rows": rows, "notes": []}
    assert harness.run_command("ipam", "show", "--show-configuration", "-o", "csv") == 0
    assert list(csv.reader(lines(harness)))[:2] == [["property", "value"], ["StrictAffinity", "false"]]


def test_borrowed_addresses_are_rows(harness: ToolHarness) -> None:
    owner = (("namespace", "default"), ("node", "node-b"), ("pod", "web"))
    harness.store_records(block("10.66.0.0/29", 1, Attribute(handle="h", owner=owner)))
    assert harness.run_command("ipam", "show", "--show-borrowed", "-o", "json") == 0
    row = {
        "ip": "10.66.0.0",
        "borrowingNode": "node-b",
        "block": "10.66.0.0/29",
        "blockOwner": "node-a",
        "type": "pod",
        "allocatedTo": "default/web",
    }
    assert json.loads(harness.out) == {"rows": [row], "notes": []}


def test_pools_are_rows_with_numbers_and_without_totals(harness: ToolHarness) -> None:
    harness.store_records(block("10.66.0.0/29", 2, MINE))
    assert harness.run_command("ipam", "show", "-o", "json") == 0
    rows = json.loads(harness.out)["rows"]
    assert rows[-1]["inUse"] == 2
    assert [type(rows[-1][name]) for name in ("total", "inUse", "cooling", "reserved", "free")] == [int] * 5
    assert not [row for row in rows if row["pool"].startswith("all ")]


def test_an_output_that_is_not_offered_is_refused_with_what_is(harness: ToolHarness) -> None:
    assert harness.run_command("ipam", "show", "-o", "svg") == 2
    assert "'text', 'json', 'yaml', 'csv'" in harness.err


def test_blocks_and_addresses_are_written_for_programs(used: ToolHarness) -> None:
    assert used.run_command("ipam", "show", "--show-blocks", "-o", "json") == 0
    shown = json.loads(used.out)
    assert set(shown) == {"addresses", "pools", "blocks"}
    (first, *_) = shown["addresses"]
    assert (first["ip"], first["block"], first["node"]) == ("10.65.0.0", "10.65.0.0/26", "node-a")
    assert first["owner"] == {"node": "node-a", "note": 'two "words"', "pod": "web-0"}
    assert used.run_command("ipam", "show", "--ip", "10.65.0.0", "-o", "json") == 0
    (row,) = json.loads(used.out)["rows"]
    assert (row["state"], row["owner"]) == ("in use", first["owner"])
