"""Laws of annotations.

1. Whatever the annotations of a pod and its namespace are, an ADD attaches the pod or ends with an error of ours.
2. An ADD that ends with an error leaves nothing; if an annotation is not accepted, it has not written anything.
3. A pod that is attached has at most one address of a family, those that its annotations name if they name any, and
   others only from the pools that they name. CHECK finds it as it was made, and DEL leaves nothing.
4. Annotations of other programs change nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from netplug_backends.memory.orchestrator import MemoryOrchestrator
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.cni.dispatch import Plugin
from netplug_core.errors import AllocationError, ConfigurationError, DecodeError
from netplug_core.netconf.precedence import ANNOTATIONS
from netplug_core.orchestrator.model import NamespaceFacts, PodFacts
from tests.harness.annotations import ANNOTATION_PREFIX, prefixed
from tests.harness.cni_node import NODE, POD, CNINodeHarness, ContainerInterface

WEB = ContainerInterface(args=POD)
WITH_ADDRESS = ContainerInterface(args=f"{POD};IP=10.65.0.9")
POOLS = {"four": "10.65.0.0/24", "blue": "10.77.0.0/28", "six": "fd00:65::/120"}
FEATURES = {"ip_addrs_no_ipam": True, "floating_ips": True, "allowed_source_prefixes": True}

ITEMS = st.sampled_from(
    (*POOLS, *POOLS.values(), "10.65.0.0/25", "10.65.0.9", "10.77.0.3", "fd00:65::9", "192.0.2.9", "::ffff:10.65.0.9",
     "2001:db8::9", "IPv4", "IPv6", "127.0.0.1", "fe80::1%eth0", "192.0.2.0/24", "missing", "", "\ud800", "a\0")
)  # fmt: skip
ARRAYS = st.lists(ITEMS, max_size=3).map(json.dumps)
MACS = st.sampled_from(("02:00:00:00:00:09", "02-00-00-00-00-09", "0200.0000.0009", "ee:ee:ee:ee:ee:ee", "1"))
NO_ARRAYS = st.text(max_size=8) | st.sampled_from(("[", "null", "[[]]", "[1]", "{}"))
TEXTS = st.one_of(ARRAYS, ARRAYS, ARRAYS, MACS, NO_ARRAYS)
NAMES = st.sampled_from((*ANNOTATIONS, *ANNOTATIONS, *ANNOTATIONS, "podIP", "nonsense", ""))
ANNOTATED = st.dictionaries(NAMES, TEXTS, max_size=3)
POOL_NAMES = st.sampled_from(("four", "blue", "10.77.0.0/28"))
SENSIBLE = st.fixed_dictionaries(
    {},
    optional={
        "ipv4pools": st.lists(POOL_NAMES, min_size=1, max_size=2).map(json.dumps),
        "ipv6pools": st.just('["six"]'),
        "ipFamilies": st.sampled_from(('["IPv4"]', '["IPv6"]', '["IPv4", "IPv6"]')),
        "ipAddrs": st.sampled_from(('["10.65.0.9"]', '["fd00:65::9", "10.77.0.3"]')),
        "ipAddrsNoIpam": st.sampled_from(('["192.0.2.9"]', '["10.65.0.9", "2001:db8::9"]')),
        "floatingIPs": st.just('["198.51.100.1"]'),
        "hwAddr": MACS,
    },
)
FOREIGN_NAMES = st.sampled_from(("example.org/ipAddrs", "ipAddrs", f"{ANNOTATION_PREFIX}.org/hwAddr"))
FOREIGN = st.dictionaries(FOREIGN_NAMES, TEXTS, max_size=2)


def node_with(own: Mapping[str, str], of_namespace: Mapping[str, str]) -> CNINodeHarness:
    """A node with some pools, and a pod with these annotations."""
    harness = CNINodeHarness()
    for name, cidr in POOLS.items():
        harness.add_pool(name, cidr)
    orchestrator = MemoryOrchestrator(clock=harness.clock)
    namespace = NamespaceFacts(name="test", uid="", annotations=tuple(sorted(of_namespace.items())))
    orchestrator.put_namespace(namespace)
    pod = PodFacts(namespace="test", name="test-pod-1", uid="", node=NODE, annotations=tuple(sorted(own.items())))
    orchestrator.put_pod(pod)
    harness.orchestrator = orchestrator
    return harness


def addresses(
    harness: CNINodeHarness, container: ContainerInterface = WEB, **changes: object
) -> tuple[Address, ...] | None:
    """The addresses that an ADD answers, after a CHECK; None if the ADD is refused."""
    before = harness.memory.calls.commits
    try:
        result = harness.add(container, **changes)
    except (ConfigurationError, DecodeError):  # a configuration with a text that no annotation can be is not decoded
        assert harness.memory.calls.commits == before
        return None
    except AllocationError:
        return None
    harness.check(container, result, Plugin.MAIN, **changes)
    return tuple(ip.address for ip in result.ips)


@given(
    own=ANNOTATED | SENSIBLE, of_namespace=ANNOTATED | SENSIBLE, features=st.sampled_from((FEATURES, {})),
    ipam=st.sampled_from(({}, {"assign_ipv6": "true"}, {"ipv4_pools": ["blue"]})),
    container=st.sampled_from((WEB, WITH_ADDRESS)),
)  # fmt: skip
def test_whatever_is_annotated_the_pod_is_attached_so_or_nothing_is_left(
    own: dict[str, str],
    of_namespace: dict[str, str],
    features: object,
    ipam: Mapping[str, object],
    container: ContainerInterface,
) -> None:
    harness = node_with(prefixed(own), prefixed(of_namespace))
    found = addresses(harness, container, feature_control=features, ipam={"type": "netplug-ipam", **ipam})
    if found is None:
        harness.assert_nothing_left()
        return
    assert len({one.family for one in found}) == len(found)
    named = own.get("ipAddrs") or own.get("ipAddrsNoIpam")
    pools = own.get("ipv4pools") or of_namespace.get("ipv4pools")
    if named:
        assert found == tuple(map(Address.parse, json.loads(named)))
    elif pools:
        prefixes = [Prefix.parse(POOLS.get(str(pool), str(pool))) for pool in json.loads(pools)]
        of_pools = [one for one in found if one.family is Family.IPV4]
        assert all(any(prefix.contains(one) for prefix in prefixes) for one in of_pools)
    harness.run("DEL", container)
    harness.assert_nothing_left()


@given(own=SENSIBLE, foreign=FOREIGN)
def test_annotations_of_other_programs_change_nothing(own: dict[str, str], foreign: dict[str, str]) -> None:
    with_foreign, without = node_with(prefixed(own) | foreign, foreign), node_with(prefixed(own), {})
    assert addresses(with_foreign, feature_control=FEATURES) == addresses(without, feature_control=FEATURES)
    assert with_foreign.allocations() == without.allocations()


@given(own=ANNOTATED)
def test_the_runtimes_annotations_mean_the_same_as_the_pods(own: dict[str, str]) -> None:
    asked, sent = node_with(prefixed(own), {}), node_with({}, {})
    sent.orchestrator = None
    runtime_config = {"io.kubernetes.cri.pod-annotations": prefixed(own)}
    assert addresses(sent, feature_control=FEATURES, runtimeConfig=runtime_config) == addresses(
        asked, feature_control=FEATURES
    )
