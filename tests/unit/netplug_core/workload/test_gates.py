"""Which answers make a readiness gate ready, and which status files say that policy is programmed."""

import json

import pytest
from attrs import evolve

from netplug_core.addressing import Address
from netplug_core.names import container_mac
from netplug_core.workload.endpoint import WorkloadIdentity
from netplug_core.workload.gates import (
    EndpointStatus,
    ProbeResult,
    find_difference,
    gates_of,
    redact_url,
    render_status,
    status_file_of,
)

WORKLOAD = WorkloadIdentity(
    node="node-1", network="net1", container_id="c1", interface="eth0", pod="test-pod-1", pod_namespace="test"
)
ADDRESSES = (Address.parse("10.0.0.7"), Address.parse("fd00::7"))
STATUS = EndpointStatus.of(WORKLOAD, ADDRESSES)
MEMBERS = {
    "containerID": "c1",
    "ifaceName": WORKLOAD.host_interface,
    "mac": container_mac("net1.c1"),
    "ipv4Nets": ["10.0.0.7/32"],
    "ipv6Nets": ["fd00::7/128"],
}


@pytest.mark.parametrize(
    "status, is_ready",
    [
        (0, False),
        (100, False),
        (199, False),
        (200, True),
        (204, True),
        (302, True),
        (399, True),
        (400, False),
        (500, False),
    ],
)
def test_a_gate_is_ready_with_a_status_from_200_to_399(status: int, *, is_ready: bool) -> None:
    assert ProbeResult(status=status).is_ready is is_ready


def test_a_result_is_shown_as_its_status_or_its_problem() -> None:
    assert [str(ProbeResult(status=503)), str(ProbeResult(problem="Connection refused"))] == [
        "status 503",
        "Connection refused",
    ]


def test_a_gate_is_shown_with_its_place_and_without_secrets() -> None:
    assert [str(gate) for gate in gates_of(("http://a/b", "https://c/d?token=t"))] == [
        "readiness_gates[0] http://a/b",
        "readiness_gates[1] https://c/d?…",
    ]
    assert redact_url("http://user:pass/word@host/") == "…"


# --- status files ----------------------------------------------------------------------------------------------------


def test_check_107_the_name_of_a_pods_status_file() -> None:
    assert status_file_of(WORKLOAD) == "k8s test%2Ftest-pod-1 eth0"
    plain = evolve(WORKLOAD, pod="", pod_namespace="", interface="net/1")
    assert status_file_of(plain) == "cni default%2Fc1 net%2F1"


def test_the_form_of_a_status_file() -> None:
    assert json.loads(render_status(STATUS)) == MEMBERS
    assert json.loads(render_status(EndpointStatus(container_id="c1", host_interface="netp1"))) == {
        "containerID": "c1",
        "ifaceName": "netp1",
    }


def with_members(**changes: object) -> str:
    return json.dumps({key: value for key, value in {**MEMBERS, **changes}.items() if value is not None})


@pytest.mark.parametrize(
    "text",
    [
        render_status(STATUS),
        with_members(),
        with_members(bgpPeerName="peer", another=[1]),
        with_members(mac=None, ipv4Nets=None, ipv6Nets=None),
        with_members(mac="02:00:00:00:00:01"),
        with_members(ipv6Nets=["FD00:0::7/128", "fd00::8/128"]),
        with_members(containerID=None),
        with_members(containerID=""),
    ],
    ids=["ours", "members", "more-members", "names-only", "another-mac", "other-spelling", "by-mac", "by-mac-empty"],
)
def test_a_file_of_the_endpoint_and_its_container_counts(text: str) -> None:
    assert find_difference(text, STATUS) == ""


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "it is not whole, or not JSON"),
        (with_members()[:-1], "it is not whole, or not JSON"),
        ("[" * 100_000, "it is not whole, or not JSON"),
        ("\ufffd\0", "it is not whole, or not JSON"),
        ("[]", "expected an object @ the file $, found []"),
        (with_members(containerID=1), "containerID"),
        (with_members(ipv4Nets="10.0.0.7/32"), "ipv4Nets"),
        (with_members(ipv4Nets=["10.0.0"]), "ipv4Nets"),
        ("{}", f"it names the interface '', and not {WORKLOAD.host_interface}"),
        (with_members(ifaceName="netpother"), f"it names the interface 'netpother', and not {WORKLOAD.host_interface}"),
        (with_members(containerID="c0"), "it names the container 'c0'"),
        (with_members(containerID=None, mac=container_mac("net1.c0")), "it names the container '"),
        (with_members(containerID=None, mac=None), "it names the container ''"),
        (with_members(containerID="c" * 9999), f"it names the container '{'c' * 199}…"),
        (with_members(ipv4Nets=["10.0.0.6/32"]), "it does not have the address 10.0.0.7/32"),
        (with_members(ipv6Nets=None), "it does not have the address fd00::7/128"),
    ],
)
def test_any_other_file_does_not_count(text: str, reason: str) -> None:
    assert reason in find_difference(text, STATUS)
