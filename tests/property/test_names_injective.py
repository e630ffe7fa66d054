"""Laws of computed names.

1. Parts become a name from which exactly they are read again, so two endpoints never share a name.
2. A name begins with every prefix of its parts, and matches exactly the identities whose known parts are its own.
3. Whatever CNI allows becomes a valid resource name; different texts give different ones.
4. Different attachments have different handles, however their parts are dotted.
5. The value of a label is one that the API accepts, and different texts have different ones.
6. Different workloads have different names and aliases of host ends, and different attachments different aliases.
7. A status file's three parts can be read back, and it is one file name.
"""

import re
from string import ascii_letters, ascii_lowercase, digits
from urllib.parse import unquote_to_bytes

from hypothesis import assume, example, given
from hypothesis import strategies as st

from netplug_core.names import (
    MAX_NAME_LENGTH,
    HostInterfaceAlias,
    WorkloadEndpointIdentifiers,
    container_mac,
    encode_segment,
    endpoint_name,
    endpoint_name_prefix,
    endpoint_status_file_name,
    handle_id,
    host_interface_alias,
    host_interface_name,
    label_value,
    matches_endpoint_name,
    parse_endpoint_name,
    workload_endpoint_name,
)

_EDGE = st.sampled_from(ascii_lowercase + digits)

# Dashes abound: they are what separates parts.
PARTS = st.builds("{}{}{}".format, _EDGE, st.text("a-.0", max_size=6), _EDGE) | _EDGE

# What the CNI specification lets a runtime send.
CNI_NAMES = st.builds("{}{}".format, st.sampled_from(ascii_letters + digits), st.text("aA0_.-", max_size=8))
INTERFACES = st.text(
    st.characters(codec="utf-8", exclude_characters="/:\0") | st.sampled_from("eth0.~-E"), min_size=1, max_size=5
).filter(lambda text: not any(c.isspace() for c in text) and text not in (".", ".."))


@st.composite
def identities(draw: st.DrawFn) -> WorkloadEndpointIdentifiers:
    orchestrator = draw(st.sampled_from(("k8s", "cni", "libnetwork")) | PARTS)
    third = "libnetwork" if orchestrator == "libnetwork" else draw(PARTS)
    return WorkloadEndpointIdentifiers(
        node=draw(PARTS),
        orchestrator=orchestrator,
        pod=third if orchestrator == "k8s" else "",
        container_id=third if orchestrator == "cni" else "",
        workload=third if orchestrator not in ("k8s", "cni") else "",
        endpoint=draw(PARTS),
    )


@given(identities())
def test_a_name_is_read_back(identity: WorkloadEndpointIdentifiers) -> None:
    assert parse_endpoint_name(endpoint_name(identity)) == identity


@given(identities(), st.integers(0, 3))
def test_a_name_begins_with_its_prefixes_and_matches(identity: WorkloadEndpointIdentifiers, known: int) -> None:
    parts = [text for _field, text in identity.segments]
    partial = WorkloadEndpointIdentifiers(
        node=parts[0],
        orchestrator=parts[1] if known > 0 else "",
        pod=identity.pod if known > 1 else "",
        container_id=identity.container_id if known > 1 else "",
        workload=identity.workload if known > 1 else "",
        endpoint=parts[3] if known > 2 else "",
    )
    name = endpoint_name(identity)
    assert name.startswith(endpoint_name_prefix(partial))
    assert matches_endpoint_name(partial, name)


@given(identities(), identities())
def test_a_match_is_equality_of_all_parts(one: WorkloadEndpointIdentifiers, other: WorkloadEndpointIdentifiers) -> None:
    assert matches_endpoint_name(one, endpoint_name(other)) is (one == other)


def _is_resource_name(name: str) -> bool:
    labels = name.split(".")
    letters = set(ascii_lowercase + digits)
    return len(name) <= MAX_NAME_LENGTH and all(
        label and set(label) <= letters | {"-"} and label[0] in letters and label[-1] in letters for label in labels
    )


@given(CNI_NAMES | INTERFACES, CNI_NAMES | INTERFACES)
@example("net_1", "net-1")
@example("Eth0", "eth0")
@example("abc-", "abc")
def test_encoded_parts_are_valid_and_different(one: str, other: str) -> None:
    assume(one != other)
    assert _is_resource_name(encode_segment(one))
    assert encode_segment(one) != encode_segment(other)


@given(st.tuples(PARTS, CNI_NAMES, INTERFACES), st.tuples(PARTS, CNI_NAMES, INTERFACES))
def test_whatever_cni_allows_has_a_name_of_its_own(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    names = [
        workload_endpoint_name(
            WorkloadEndpointIdentifiers(node=node, orchestrator="cni", container_id=container, endpoint=interface)
        )
        for node, container, interface in (one, other)
    ]
    assert all(map(_is_resource_name, names))
    assert (names[0] == names[1]) is (one == other)


@given(st.text("ab-.", min_size=1, max_size=300).map(lambda text: f"p{text}p"))
def test_long_names_stay_valid(pod: str) -> None:
    assert _is_resource_name(
        workload_endpoint_name(WorkloadEndpointIdentifiers(node="n", orchestrator="k8s", pod=pod, endpoint="eth0"))
    )


TRIPLES = st.tuples(CNI_NAMES, CNI_NAMES, st.just("eth0") | INTERFACES)


@given(TRIPLES, TRIPLES)
@example(("net", "a.b", "eth0"), ("net.a", "b", "eth0"))
@example(("net", "a", "b"), ("net", "a.b", "eth0"))
@example(("net", "a.b", "c"), ("net", "a", "b.c"))
def test_attachments_have_handles_of_their_own(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert (handle_id(*one) == handle_id(*other)) is (one == other)


# The parts of a host end's name: pods and namespaces as a runtime may name them, with what could separate parts.
HOST_ENDS = st.tuples(
    st.text("a/%2F.-", max_size=4), st.text("a/%2F.-", max_size=4), st.text("a.", min_size=1, max_size=3), INTERFACES
)


@given(HOST_ENDS, HOST_ENDS)
@example(("a/b", "c", "x", "eth0"), ("a", "b/c", "x", "eth0"))
@example(("a", "b", "x", "eth0"), ("a", "b", "y", "eth0"))
@example(("", "b", "x", "eth0"), ("a", "", "x", "eth0"))
@example(("/", "x", "x", "eth0"), ("", "", "x", "eth0"))
@example(("a", "b.c", "x", "eth0"), ("a.b", "c", "x", "eth0"))
@example(("a%2Fb", "c", "x", "eth0"), ("a/b", "c", "x", "eth0"))
def test_workloads_have_host_ends_of_their_own(
    one: tuple[str, str, str, str], other: tuple[str, str, str, str]
) -> None:
    names, aliases = set[str](), set[str]()
    for namespace, pod, container, interface in (one, other):
        names.add(host_interface_name(pod_namespace=namespace, pod=pod, container_id=container, ifname=interface))
        alias = host_interface_alias(
            network="n", container_id=container, ifname=interface, pod_namespace=namespace, pod=pod
        )
        assert HostInterfaceAlias.parse(str(alias)) == alias
        aliases.add(alias.workload)
    workloads = {(*(p[:2] if p[0] and p[1] else ("", p[2])), p[3]) for p in (one, other)}
    assert len(names) == len(aliases) == len(workloads)
    assert all(len(name.encode()) == 15 for name in names)


@given(TRIPLES, TRIPLES)
def test_attachments_have_aliases_of_their_own(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    found = [
        host_interface_alias(network=network, container_id=container, ifname=interface, pod_namespace="", pod="")
        for network, container, interface in (one, other)
    ]
    assert (found[0].attachment == found[1].attachment) is (one == other)
    assert (found[0].workload == found[1].workload) is (one[1:] == other[1:])
    assert all(len(str(alias).encode()) <= 255 for alias in found)


@given(TRIPLES)
def test_a_mac_is_unicast_and_locally_administered(triple: tuple[str, str, str]) -> None:
    octets = bytes.fromhex(container_mac(handle_id(*triple)).replace(":", ""))
    assert len(octets) == 6
    assert octets[0] & 0b11 == 0b10


LABEL_TEXTS = st.text("aB0._-/", max_size=80) | st.text(max_size=80)


@given(LABEL_TEXTS, LABEL_TEXTS)
@example(label_value("a" * 64), "a" * 64)
@example("a" * 64, "a" * 65)
def test_label_values_are_valid_and_different(one: str, other: str) -> None:
    for text in (one, other):
        assert re.fullmatch(r"|[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", label_value(text))
    assert (label_value(one) == label_value(other)) is (one == other)


@given(st.tuples(*[st.text(st.characters(codec="utf-8"), max_size=8)] * 3))
def test_a_status_file_is_read_back(parts: tuple[str, str, str]) -> None:
    name = endpoint_status_file_name(*parts)
    assert "/" not in name
    assert "\0" not in name
    assert tuple(unquote_to_bytes(part).decode() for part in name.split(" ")) == parts
