"""``ipam check --show-all-ips`` and ``--show-problem-ips``: the lines, the object for programs, and the exit status."""

import csv
import json

import pytest
import yaml

from netplug_cli.formatting import escape_unprintable
from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.ipam.model import Affinity, AffinityState, Attribute, Block, Handle, affinity_key, handle_key
from netplug_core.records import Create
from netplug_core.resources.fields import Metadata
from netplug_core.resources.kinds import key_of
from netplug_core.resources.workloadendpoint import WorkloadEndpoint, WorkloadEndpointSpec
from tests.harness.ctl import ToolHarness

PREFIX = Prefix.parse("10.65.0.0/26")
USED = "10.65.0.1 is used by WorkloadEndpoint(default/web), handle net.a"
LEAKED = "10.65.0.2 is not in use, handle net.a\\x9b; problem: no workload endpoint has it"
LOST = f"{LEAKED}, its handle is missing or damaged"
UNALLOCATED = (
    "10.65.0.9 is used by WorkloadEndpoint(default/web); problem: it is not allocated, so another workload may get it "
    "from IPPool(main)"
)
QUIET = [
    "10.65.0.3 may be in use: container c1 has no endpoint, as one that another main plugin attached",
    "10.65.0.4 cools down",
]
COUNTS = [
    "Found 1 addresses that are not in use (1 are, 1 cool down, and of 1 it is not known).",
    "Found 0 handles with no matching IPs (and 1 handles with matches).",
]


@pytest.fixture
def checked(harness: ToolHarness) -> ToolHarness:
    """An address of each state, one that a workload has and no block holds, and a handle that is missing."""
    harness.run_command("create", "-f", harness.write_pools(("main", "10.65.0.0/16")))
    block = Block.new(PREFIX, owner="host:a", now_ns=1)
    for ordinal, attribute in (
        (1, Attribute(handle="net.a")),
        (2, Attribute(handle="net.a\x9b")),
        (3, Attribute(owner=(("container", "c1"),))),
        (4, Attribute(handle="net.a")),
    ):
        block = block.assign((Ordinal(ordinal),), attribute)
    block = block.release(frozenset({Ordinal(4)}), cooling_from_ns=5)
    spec = WorkloadEndpointSpec(
        orchestrator="cni", node="a", endpoint="eth0",
        addresses=(Address.parse("10.65.0.1"), Address.parse("10.65.0.9"), Address.parse("192.0.2.1")),
    )  # fmt: skip
    endpoint = WorkloadEndpoint(metadata=Metadata(name="web", namespace="default"), spec=spec)
    harness.store_records(
        Create(block.key, block),
        Create(handle_key("net.a"), Handle(blocks=((PREFIX, 1),))),
        Create(affinity_key("host:a", PREFIX), Affinity(state=AffinityState.CONFIRMED)),
        Create(key_of(endpoint), endpoint),
    )
    return harness


def test_all_addresses_or_those_with_a_problem_are_listed(checked: ToolHarness) -> None:
    assert checked.run_command("ipam", "check", "--show-problem-ips") == 1
    *_, end = (number for number, line in enumerate(checked.out.splitlines()) if line.startswith("Check complete"))
    assert checked.out.splitlines()[end + 1 :] == [LOST, UNALLOCATED, *COUNTS]
    for options in (["--show-all-ips"], ["--show-all-ips", "--show-problem-ips"]):
        assert checked.run_command("ipam", "check", *options) == 1
        assert checked.out.splitlines()[end + 1 :] == [USED, LOST, *QUIET, UNALLOCATED, *COUNTS]
    assert checked.err == ""


def test_a_program_gets_an_object(checked: ToolHarness) -> None:
    assert checked.run_command("ipam", "check", "--show-all-ips", "-o", "json") == 1
    found = json.loads(checked.out)["addresses"]
    assert [(each["ip"], each["state"], each["allocated"], len(each["problems"])) for each in found] == [
        ("10.65.0.1", "used", True, 0),
        ("10.65.0.2", "leaked", True, 2),
        ("10.65.0.3", "undetermined", True, 0),
        ("10.65.0.4", "cooling", True, 0),
        ("10.65.0.9", "used", False, 1),
    ]
    assert list(found[0]) == ["ip", "allocated", "handle", "state", "detail", "problems"]
    assert (found[1]["handle"], found[1]["detail"]) == ("net.a\x9b", "no workload endpoint has it")
    assert "\x9b" not in checked.out
    assert checked.err.splitlines()[-2:] == COUNTS
    assert checked.run_command("ipam", "check", "--show-problem-ips", "-o", "json") == 1
    assert [each["ip"] for each in json.loads(checked.out)["addresses"]] == ["10.65.0.2", "10.65.0.9"]


def test_the_report_goes_beside_the_list(checked: ToolHarness) -> None:
    file = str(checked.folder / "report.json")
    assert checked.run_command("ipam", "check", "--show-problem-ips", "-o", file) == 1
    assert checked.out.splitlines()[-4:] == [LOST, UNALLOCATED, *COUNTS]
    with open(file, encoding="utf-8") as report:
        assert len(json.load(report)["allocations"]) == 4
    assert checked.run_command("ipam", "check", "--show-problem-ips", "-o", "-") == 1
    assert len(json.loads(checked.out)["allocations"]) == 4
    assert checked.err.splitlines()[-4:] == [LOST, UNALLOCATED, *COUNTS]


def test_what_was_repaired_is_no_problem_any_more(checked: ToolHarness) -> None:
    assert checked.run_command("ipam", "check", "--fix", "--show-problem-ips") == 1
    assert LEAKED in checked.out.splitlines()
    assert checked.run_command("ipam", "check", "--fix", "--dry-run", "--show-problem-ips") == 1
    assert "its handle is missing" not in checked.out


def test_no_address_has_a_problem(harness: ToolHarness) -> None:
    harness.run_command("create", "-f", harness.write_pools(("main", "10.65.0.0/16")))
    assert harness.run_command("ipam", "check", "--show-all-ips", "-o", "json") == 0
    assert json.loads(harness.out) == {"addresses": []}


def test_an_address_that_is_used_and_not_allocated_is_enough_for_a_failure(checked: ToolHarness) -> None:
    assert checked.run_command("ipam", "check", "--fix") == 0
    assert checked.run_command("ipam", "release", "--ip", "10.65.0.2") == 0
    assert checked.run_command("ipam", "check", "-o", str(checked.folder / "report.json")) == 0
    assert checked.run_command("ipam", "check", "--show-problem-ips") == 1
    assert UNALLOCATED in checked.out.splitlines()


def test_without_a_list_the_formats_have_the_problems(checked: ToolHarness) -> None:
    checked.run_command("ipam", "check", "-o", "json")
    found = json.loads(checked.out)
    assert f"Checked {found['blocks']} blocks with {found['addresses']} addresses in use" in checked.err
    problems = found["problems"]
    begin = {True: "--fix would", False: "not repairable:"}
    said = [escape_unprintable(f"{begin[one['repairable']]} {one['problem']}") for one in problems]
    assert said == [line for line in checked.err.splitlines() if line.startswith(tuple(begin.values()))] != []
    checked.run_command("ipam", "check", "-o", "yaml")
    assert yaml.safe_load(checked.out) == found
    checked.run_command("ipam", "check", "--fix", "-o", "csv")
    rows = list(csv.DictReader(checked.out.splitlines()))
    assert [row["problem"] for row in rows] == [escape_unprintable(one["problem"]) for one in problems]
    assert {row["result"] for row in rows if row["repairable"] == "true"} <= {"done"}


def test_every_format_has_the_same_list(checked: ToolHarness) -> None:
    checked.run_command("ipam", "check", "--show-all-ips", "-o", "json")
    found = json.loads(checked.out)["addresses"]
    checked.run_command("ipam", "check", "--show-all-ips", "-o", "yaml")
    assert yaml.safe_load(checked.out)["addresses"] == found
    checked.run_command("ipam", "check", "--show-all-ips", "-o", "csv")
    rows = list(csv.DictReader(checked.out.splitlines()))
    assert [(row["ip"], row["state"], row["problems"]) for row in rows] == [
        (one["ip"], one["state"], "; ".join(one["problems"])) for one in found
    ]


def test_a_list_is_no_file(checked: ToolHarness) -> None:
    assert checked.run_command("ipam", "check", "--show-all-ips", "-o", "json", "--overwrite") == 2
    assert "--overwrite is for -o FILE." in checked.err
