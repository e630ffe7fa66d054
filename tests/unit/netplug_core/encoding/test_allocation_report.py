"""The file of a report: its text, what comes back, and how each damage is refused."""

import json

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Address
from netplug_core.encoding.export import decode_report, encode_report
from netplug_core.errors import ConfigurationError
from netplug_core.ipam.gc.candidates import AllocationRef
from netplug_core.ipam.model import BLOCK
from netplug_core.ipam.reporting.usage import HandleRef, common_leaks
from tests.harness.collector import leave_handle
from tests.harness.leaks import make_harness, put_endpoint, read_report

ENTRY = {"ip": "10.0.0.1", "handle": "h", "sequenceNumber": 2**63 + 1, "inUse": False, "coolingDown": False}
REPORT = {
    "version": "v3.33.0",
    "clusterGUID": "guid-1",
    "clusterInformationRevision": "7",
    "allocations": {"10.0.0.1": [ENTRY]},
    "leakedHandles": [{"id": "h-left", "uid": "u", "revision": "u/9"}],
}


def refusal(report: object) -> str:
    with pytest.raises(ConfigurationError) as refused:
        decode_report(report if isinstance(report, str) else json.dumps(report), "r.json")
    return str(refused.value)


def test_the_text_of_a_report() -> None:
    harness = make_harness(MemoryMode.KUBE_LIKE)
    harness.assign_to("10.0.0.1", "h-leaked", node="node-a", timestamp="2026-01-01 00:00:00 +0000 UTC")
    harness.assign_to_pod("10.0.0.2", node="node-b")
    harness.assign_to("10.0.0.5", None, block_of="node-a", container="c1")
    put_endpoint(harness, "web", "10.0.0.2")
    leave_handle(harness)
    report = read_report(harness)
    text = "".join(encode_report(report))
    found = json.loads(text)
    assert list(found) == [
        "version", "clusterGUID", "datastoreLocked", "clusterInformationRevision", "clusterType", "allocations",
        "leakedHandles",
    ]  # fmt: skip
    assert (found["version"], found["clusterGUID"], found["datastoreLocked"]) == ("v3.33.0", "guid-1", True)
    assert found["leakedHandles"] == [
        {"id": "h-left", "uid": report.leaked_handles[0].uid, "revision": report.leaked_handles[0].revision}
    ]
    assert found["leakedHandles"][0]["uid"]
    (leaked,) = found["allocations"]["10.0.0.1"]
    assert leaked == {
        "ip": "10.0.0.1",
        "handle": "h-leaked",
        "sequenceNumber": harness.get(harness.key_of("10.0.0.1")).held()[0].sequence,
        "pod": "",
        "namespace": "",
        "node": "node-a",
        "type": "",
        "creationTimestamp": "2026-01-01 00:00:00 +0000 UTC",
        "inUse": False,
        "borrowed": False,
        "coolingDown": False,
        "owners": [],
    }
    (used,) = found["allocations"]["10.0.0.2"]
    assert (used["pod"], used["inUse"], used["borrowed"], used["owners"]) == (
        "web",
        True,
        True,
        ["WorkloadEndpoint(default/web)"],
    )
    (unknown,) = found["allocations"]["10.0.0.5"]
    assert (unknown["inUse"], unknown["handle"], len(unknown["owners"])) == (True, "", 1)
    assert sum(line.startswith('    "10.0.0.') for line in text.splitlines()) == 3
    leaks = decode_report(text, "r.json")
    assert leaks.header == report.header
    assert {str(ref.address) for ref in leaks.addresses} == {"10.0.0.1"}
    assert leaks.handles == frozenset(report.leaked_handles)


def test_a_cooling_address_is_no_leak() -> None:
    harness = make_harness(MemoryMode.ATOMIC)
    harness.assign_to("10.0.0.1", "h")
    harness.release("10.0.0.1", cooling=True)
    text = "".join(encode_report(read_report(harness)))
    assert json.loads(text)["allocations"]["10.0.0.1"][0]["coolingDown"] is True
    assert decode_report(text, "r.json").addresses == frozenset()


def test_an_empty_report() -> None:
    harness = make_harness(MemoryMode.ATOMIC)
    assert harness.names(BLOCK) == []
    text = "".join(encode_report(read_report(harness)))
    assert text.endswith('  "allocations": {},\n  "leakedHandles": []\n}\n')
    leaks = decode_report(text, "r.json")
    assert (leaks.addresses, leaks.handles) == (frozenset(), frozenset())


def test_large_numbers_are_exact_and_unknown_members_are_passed_over() -> None:
    leaks = decode_report(json.dumps(REPORT | {"more": 1}, indent=2), "r.json")
    assert leaks.addresses == {AllocationRef(Address.parse("10.0.0.1"), "h", 2**63 + 1)}
    assert leaks.handles == {HandleRef("h-left", "u/9", "u")}


def test_only_what_every_report_calls_leaked_counts() -> None:
    one = decode_report(json.dumps(REPORT), "1")
    other = decode_report(json.dumps(REPORT | {"allocations": {"10.0.0.1": [ENTRY | {"sequenceNumber": 1}]}}), "2")
    assert common_leaks([one]) == (one.addresses, one.handles)
    assert common_leaks([one, one]) == (one.addresses, one.handles)
    assert common_leaks([one, other]) == (frozenset(), one.handles)
    assert common_leaks([one, evolve(one, handles=frozenset())]) == (one.addresses, frozenset())


@pytest.mark.parametrize(
    "report, text",
    [
        ("", "r.json: no report of ipam check, or a damaged one: not JSON: Expecting value: line 1 column 1 (char 0)"),
        ('{"version": "v3.33.0",\n', "r.json: no report of ipam check, or a damaged one: not JSON: "),
        ("[" * 100_000, "r.json: no report of ipam check, or a damaged one: not JSON: "),
        ([], "r.json: no report of ipam check: an object is expected, found []"),
        ({}, "expected a text @ r.json $.clusterGUID, found nothing"),
        ({**REPORT, "clusterGUID": 7}, "expected a text @ r.json $.clusterGUID, found 7"),
        ({**REPORT, "allocations": None}, "expected an object @ r.json $.allocations, found nothing"),
        ({**REPORT, "allocations": [ENTRY]}, "expected an object @ r.json $.allocations, found [{"),
        (
            {**REPORT, "allocations": {"10.0.0.1": ENTRY}},
            "expected a list @ r.json $.allocations['10.0.0.1'], found {",
        ),
        ({**REPORT, "allocations": {"10.0.0.1": [1]}}, "expected an object @ r.json $.allocations['10.0.0.1'][0], "),
        (
            {**REPORT, "allocations": {"10.0.0.2": [ENTRY]}},
            "expected the address '10.0.0.2', under which the entry is @ r.json $.allocations['10.0.0.2'][0].ip, ",
        ),
        (
            {**REPORT, "allocations": {"10.0.0.1": [ENTRY, ENTRY | {"ip": "10.0.0.300"}]}},
            "expected an IP address @ r.json $.allocations['10.0.0.1'][1].ip, found '10.0.0.300'",
        ),
        (
            {**REPORT, "allocations": {"10.0.0.1": [ENTRY | {"sequenceNumber": 1.5e18}]}},
            "expected a whole number of at least 0 @ r.json $.allocations['10.0.0.1'][0].sequenceNumber, found 1.5e+18",
        ),
        (
            {**REPORT, "allocations": {"10.0.0.1": [ENTRY | {"inUse": None}]}},
            "expected true or false @ r.json $.allocations['10.0.0.1'][0].inUse, found nothing",
        ),
        (
            {**REPORT, "leakedHandles": [{"id": "h"}]},
            "expected a name @ r.json $.leakedHandles[0].revision, found nothing",
        ),
    ],
)  # fmt: skip
def test_a_damaged_report_is_one_clear_error(report: object, text: str) -> None:
    assert refusal(report).startswith(text)
    assert "\n" not in refusal(report)
