"""The laws of endpoint status files: each counts for the endpoint and container that it was written for, and no other.

1. What is written for an endpoint counts for it.
2. It counts for no other container, for no other interface, and after no other boot.
3. Any part of it that is not whole does not count, and any text and any JSON is judged without an error.
"""

from __future__ import annotations

import json

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from netplug_core.addressing import Address
from netplug_core.testing.strategies import addresses
from netplug_core.workload import EndpointStatus, WorkloadIdentity, find_difference, render_status

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=12)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = st.sampled_from(("containerID", "ifaceName", "mac", "ipv4Nets", "ipv6Nets", "another", "bootID"))
HELD = st.lists(addresses(), max_size=3, unique=True).map(tuple)


@st.composite
def workloads(draw: st.DrawFn) -> WorkloadIdentity:
    return WorkloadIdentity(
        node="n",
        network=draw(NAMES),
        container_id=draw(NAMES),
        interface=draw(st.sampled_from(("eth0", "net1"))),
        pod=draw(NAMES),
        pod_namespace=draw(NAMES),
    )


@given(workloads(), HELD)
def test_what_is_written_for_an_endpoint_counts_for_it(workload: WorkloadIdentity, held: tuple[Address, ...]) -> None:
    status = EndpointStatus.expected_by(workload, held, boot_id="b")
    assert find_difference(render_status(status), status) == ""
    assert find_difference(render_status(evolve(status, programmed_at_ns=0)), status) == ""


@given(workloads(), workloads(), HELD)
def test_it_counts_for_no_other(first: WorkloadIdentity, second: WorkloadIdentity, held: tuple[Address, ...]) -> None:
    text = render_status(EndpointStatus.expected_by(first, held, boot_id="b"))
    is_same = (first.container_id, first.host_interface) == (second.container_id, second.host_interface)
    assert (find_difference(text, EndpointStatus.expected_by(second, held, boot_id="b")) == "") is is_same
    restarted = evolve(first, container_id=f"{first.container_id}x")
    assert find_difference(text, EndpointStatus.expected_by(restarted, held, boot_id="b")) != ""
    assert find_difference(text, EndpointStatus.expected_by(first, held, boot_id="c")) != ""


@given(workloads(), HELD, st.data())
def test_what_is_not_whole_does_not_count(
    workload: WorkloadIdentity, held: tuple[Address, ...], data: st.DataObject
) -> None:
    status = EndpointStatus.expected_by(workload, held, boot_id="b")
    text = render_status(status).rstrip()
    assert find_difference(text[: data.draw(st.integers(0, len(text) - 1))], status) != ""


@given(st.text() | JSON_VALUES.map(json.dumps) | st.dictionaries(MEMBERS, JSON_VALUES).map(json.dumps))
def test_any_text_is_judged(text: str) -> None:
    status = EndpointStatus.expected_by(
        WorkloadIdentity(node="n", network="a", container_id="b", interface="eth0"), (), boot_id="b"
    )
    assert find_difference(text, status) != ""
