"""What a status file says, what it is called, and which ones say that policy is programmed."""

import json

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import parse_time
from netplug_core.ipam.allocation.request import AssignedAddress, Assignment
from netplug_core.names import container_mac
from netplug_core.workload import (
    EndpointStatus,
    NewObjectMetadata,
    WorkloadIdentity,
    build_endpoint,
    find_difference,
    parse_status,
    render_status,
    status_file_name,
    status_file_of,
)

WORKLOAD = WorkloadIdentity(
    node="node-1", network="net1", container_id="c1", interface="eth0", pod="test-pod-1", pod_namespace="test"
)
ADDRESSES = (Address.parse("10.0.0.7"), Address.parse("fd00::7"))
BOOT = "1f0b2b44-0000-4000-8000-000000000001"
STATUS = EndpointStatus.expected_by(WORKLOAD, ADDRESSES, boot_id=BOOT)
ENDPOINT = "test/node--1-k8s-test--pod--1-eth0"
MEMBERS = {
    "version": 1,
    "containerID": "c1",
    "endpoint": ENDPOINT,
    "ifaceName": WORKLOAD.host_interface,
    "mac": container_mac("net1.c1"),
    "ipv4Nets": ["10.0.0.7/32"],
    "ipv6Nets": ["fd00::7/128"],
    "bootID": BOOT,
    "programmedAt": "2026-01-01T00:00:00Z",
}
STORED = build_endpoint(
    WORKLOAD,
    Assignment(
        addresses=tuple(
            AssignedAddress(address=each, prefix=Prefix(each.family, each.value, each.family.width))
            for each in ADDRESSES
        )
    ),
    NewObjectMetadata(uid="u", creation_time_ns=0),
)
WRITTEN = EndpointStatus.of(STORED, boot_id=BOOT, programmed_at_ns=parse_time("2026-01-01T00:00:00Z"))


def test_check_107_the_name_of_a_pods_status_file() -> None:
    assert status_file_of(WORKLOAD) == "k8s test%2Ftest-pod-1 eth0"
    assert status_file_name(STORED) == status_file_of(WORKLOAD)
    plain = evolve(WORKLOAD, pod="", pod_namespace="", interface="net/1")
    assert status_file_of(plain) == "cni default%2Fc1 net%2F1"


def test_the_form_of_a_status_file() -> None:
    assert json.loads(render_status(WRITTEN)) == MEMBERS
    assert parse_status(render_status(WRITTEN)) == WRITTEN
    assert json.loads(render_status(EndpointStatus(container_id="c1", host_interface="netp1"))) == {
        "version": 1,
        "containerID": "c1",
        "ifaceName": "netp1",
    }


def with_members(**changes: object) -> str:
    return json.dumps({key: value for key, value in {**MEMBERS, **changes}.items() if value is not None})


@pytest.mark.parametrize(
    "text",
    [
        render_status(WRITTEN),
        with_members(),
        with_members(bgpPeerName="peer", another=[1]),
        with_members(version=2, programmedAt=None),
        with_members(mac=None, endpoint=None, ipv4Nets=None, ipv6Nets=None),
        with_members(mac="02:00:00:00:00:01"),
        with_members(ipv6Nets=["FD00:0::7/128", "fd00::8/128"]),
    ],
    ids=["ours", "members", "more-members", "later-version", "names-only", "another-mac", "other-spelling"],
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
        (with_members(containerID=None), "it names the container ''"),
        (with_members(bootID="another"), "it was written before this machine was started again"),
        (with_members(bootID=None), "it was written before this machine was started again"),
        (with_members(containerID="c" * 9999), f"it names the container '{'c' * 199}…"),
        (with_members(ipv4Nets=["10.0.0.6/32"]), "it does not have the address 10.0.0.7/32"),
        (with_members(ipv6Nets=None), "it does not have the address fd00::7/128"),
    ],
)
def test_any_other_file_does_not_count(text: str, reason: str) -> None:
    assert reason in find_difference(text, STATUS)


def test_what_two_say_is_compared_without_the_time() -> None:
    later = evolve(WRITTEN, programmed_at_ns=None)
    assert WRITTEN.says_the_same(later)
    assert not WRITTEN.says_the_same(evolve(later, container_id="c2"))
