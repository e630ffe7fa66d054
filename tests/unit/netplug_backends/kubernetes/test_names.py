"""Names of objects: known ones, those with a hash, and the property that no two records share a name (D4)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netplug_backends.kubernetes.names import (
    CrdMode,
    affinity_labels,
    affinity_name,
    block_name,
    block_name_start,
    handle_name,
    host_hash_label,
)
from netplug_core.addressing import Prefix
from netplug_core.errors import ConfigurationError
from netplug_core.testing.strategies import names, prefixes

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
BLOCK = Prefix.parse("10.0.0.0/30")

# Few and similar, so that two independent draws are nearly the same.
hosts = st.one_of(
    st.sampled_from(["a", "a-1", "a-1-2", "a-fd00", "a-fd00-1", "a.b", "A", "a_b", "-a", "a-", "x" * 252, "é", "~"]),
    names(longest=252),
)
alike = st.sampled_from(
    ["fd00:1::/64", "1::/64", "fd00::/64", "::/64", "0.0.0.0/26", "1.0.0.0/26", "1:2:3:4:5:6:7:8/128"]
)
blocks = st.one_of(alike.map(Prefix.parse), prefixes())
handles = st.one_of(
    st.sampled_from(
        ["net.A1", "net.a1", "net.a1~0123abcd", "net.a1-0123456789abcdef", "x" * 252, "x" * 260, "é", ".", ""]
    ),
    names(longest=252),
    st.text(max_size=20),
)


@pytest.mark.parametrize(
    "prefix,name",
    [
        ("10.0.0.0/26", "10-0-0-0-26"),
        ("fd80:24e2:f998:72d6::/122", "fd80-24e2-f998-72d6---122"),
        ("::/64", "0---64"),
        ("fd00::/8", "fd00---8"),
    ],
)
def test_blocks_are_named_by_their_prefix(prefix: str, name: str) -> None:
    """Trap 8: also prefixes that begin or end with two colons."""
    assert block_name(Prefix.parse(prefix)) == name


def test_affinities_of_hosts_are_named_by_host_and_prefix() -> None:
    assert affinity_name("host", "node-a", BLOCK) == "node-a-10-0-0-0-30"


def test_affinities_of_other_owners_end_in_the_owner_type() -> None:
    """Trap 5."""
    assert affinity_name("virtual", "node-a", BLOCK) == "node-a-10-0-0-0-30-virtual"


def test_s10_hosts_with_a_long_common_prefix_have_different_names() -> None:
    one, other = ("h" * 240 + letter * 12 for letter in "ab")
    first, second = affinity_name("host", one, BLOCK), affinity_name("host", other, BLOCK)
    assert first != second
    assert max(len(first), len(second)) <= 253
    assert first.startswith("h" * (252 - len("10-0-0-0-30") - 13) + "-10-0-0-0-30-")


def test_a_host_whose_name_is_ambiguous_with_an_address_gets_a_hash() -> None:
    ambiguous = affinity_name("host", "a-fd00", Prefix.parse("1::/64"))
    assert affinity_name("host", "a", Prefix.parse("fd00:1::/64")) == "a-fd00-1---64"
    assert re.fullmatch(r"a-fd00-1---64-[0-9a-f]{11}", ambiguous)


@pytest.mark.parametrize("handle", ["k8s-pod-network.4f2a", "a.b-c", "net.0123456789abcdef"])
def test_handles_are_named_by_their_id_if_it_is_a_valid_name(handle: str) -> None:
    assert handle_name(handle) == handle


def test_handles_that_differ_only_in_case_have_different_names() -> None:
    """Trap 6."""
    upper, lower = handle_name("net.A1"), handle_name("net.a1")
    assert lower == "net.a1"
    assert re.fullmatch(r"net-a1-[0-9a-f]{16}", upper)


def test_the_host_label_is_the_known_hash() -> None:
    """Lists of a host's affinities select by this label."""
    assert host_hash_label("node-a") == "PY3TQE2E3XMTETLM2MJO3UITKPFB27YUJ4T4E5XGPEJON3SM4QAA"


def test_s7_labels_have_type_host_and_family() -> None:
    labels = affinity_labels(("host", "my-host", "ipv4", "192.168.1.0/24"))
    assert labels == {
        "projectnetplug.org/affinity-type": "host",
        "projectnetplug.org/hostname-hash": host_hash_label("my-host"),
        "projectnetplug.org/ip-version": "4",
    }
    assert affinity_labels(("host",)) == {"projectnetplug.org/affinity-type": "host"}
    assert affinity_labels(()) == {}


@given(st.lists(st.tuples(st.sampled_from(["host", "virtual"]), hosts, blocks), min_size=2, max_size=6, unique=True))
def test_no_two_affinities_share_a_name(claims: list[tuple[str, str, Prefix]]) -> None:
    found = [affinity_name(*claim) for claim in claims]
    assert len(set(found)) == len(claims)
    assert all(SUBDOMAIN.fullmatch(name) and len(name) <= 253 for name in found)


@given(st.lists(blocks, min_size=2, max_size=6, unique=True))
def test_no_two_blocks_share_a_name(chosen: list[Prefix]) -> None:
    found = [block_name(prefix) for prefix in chosen]
    assert len(set(found)) == len(chosen)
    assert all(SUBDOMAIN.fullmatch(name) and len(name) <= 253 for name in found)


@given(blocks, st.integers(0, 43))
def test_the_names_of_blocks_begin_as_their_prefixes_do(prefix: Prefix, length: int) -> None:
    assert block_name(prefix).startswith(block_name_start(str(prefix)[:length]))


@given(st.lists(handles, min_size=2, max_size=6, unique=True))
def test_no_two_handles_share_a_name(chosen: list[str]) -> None:
    found = [handle_name(handle) for handle in chosen]
    assert len(set(found)) == len(chosen)
    assert all(SUBDOMAIN.fullmatch(name) and len(name) <= 253 for name in found)


@given(hosts)
def test_the_host_label_is_a_valid_label_value(host: str) -> None:
    assert re.fullmatch(r"[A-Z2-7]{52}", host_hash_label(host))


@pytest.mark.parametrize("text", ["projectnetplug.org", "projectnetplug.org/v3"])
def test_crd_mode_parses_a_group_with_or_without_version(text: str) -> None:
    assert CrdMode.parse(text) is CrdMode.V3
    assert CrdMode.parse("crd.projectnetplug.org") is CrdMode.V1


def test_crd_mode_refuses_another_group() -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"^netplug_api_group: 'projectnetplug.com' is not accepted; crd\.projectnetplug\.org or ",
    ):
        CrdMode.parse("projectnetplug.com")
