"""What stored objects mean to packets on a real kernel, in both families; by night.

The objects are those that users store; what a node enforces of them is calculated and programmed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netplug_backends.memory.ruleset import Fate, MemoryRuleset
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.dataplane.filter import POLICY_TABLE, render_state
from netplug_core.dataplane.phases import find_phases
from netplug_core.policy.evaluate import evaluate
from netplug_core.policy.model import UDP, Decision, Packet, PolicyState
from netplug_core.policy.resolve import PolicyObject
from netplug_core.resources.fields import PortRange
from netplug_core.resources.networkpolicy import Direction
from netplug_core.resources.nodeconfiguration import SourceSpoofing
from netplug_core.resources.policyrule import EntityRule, PolicyRule, Protocol, RuleAction
from netplug_core.resources.profile import DEFAULT_ALLOW_PROFILE
from netplug_core.resources.workloadendpoint import EndpointPort, WorkloadEndpoint
from tests.harness.example_counts import KERNEL_EXAMPLES
from tests.harness.nat_scene import ADDRESSES, open_scene
from tests.harness.node import PEER_NAMESPACE, NetnsNode
from tests.harness.policies import allow, make_global_policy, make_host, make_policy
from tests.harness.policy_node import GENERATED, enforce, kubernetes, namespace_profile, stored_pod
from tests.harness.policy_scene import PORT, PolicyScene

# By night only: each closed way is asked for on a real kernel.
pytestmark = [pytest.mark.netns, pytest.mark.stress]

WEB = "app == 'web'"
OUTSIDE = PEER_NAMESPACE
ALLOWING = (DEFAULT_ALLOW_PROFILE.key.name,)


@pytest.fixture(params=Family, ids=str)
def scene(node: NetnsNode, request: pytest.FixtureRequest) -> Iterator[PolicyScene]:
    with open_scene(node, request.param) as nat:
        yield PolicyScene(nat)


def length(scene: PolicyScene) -> int:
    """Of the prefix of one address."""
    return 32 if scene.nat.family is Family.IPV4 else 128


# --- workloads --------------------------------------------------------------------------------------------------------


def test_selectors_in_one_entry_are_met_together_and_in_two_one_is_enough(scene: PolicyScene) -> None:
    """P-10."""
    team = {"namespaceSelector": {"matchLabels": {"team": "y"}}}
    labelled = {"podSelector": {"matchLabels": {"app": "client"}}}
    both, either = kubernetes({"from": [{**team, **labelled}]}), kubernetes({"from": [team, labelled]})
    far, near = namespace_profile("y", team="y"), namespace_profile("z")

    def is_open(policy: PolicyObject, client: WorkloadEndpoint) -> bool:
        enforce(scene, policy, far, near, client=client)
        at = scene.nat.addresses
        assert not scene.passes(OUTSIDE, at.web, scene.nat.web.name)
        return scene.passes(scene.nat.client.name, at.web, scene.nat.web.name)

    other = {"app": "other"}
    clients = [
        stored_pod("client", namespace=name, labels=labels) for name in ("y", "x", "z") for labels in (None, other)
    ]
    assert [is_open(both, client) for client in clients] == [True, False, False, False, False, False]
    assert [is_open(either, client) for client in clients] == [True, True, True, False, False, False]


def test_a_named_port_is_each_workloads_own(scene: PolicyScene) -> None:
    """P-16."""
    at, web, client = scene.nat.addresses, scene.nat.web.name, scene.nat.client.name
    everyone = kubernetes({"ports": [{"protocol": "UDP", "port": "http"}]}, podSelector={})

    def ways(name: str) -> list[bool]:
        ports = EndpointPort(protocol="UDP", port=8080, name=name), EndpointPort(protocol="UDP", port=9090, name="http")
        own = stored_pod("web", ports=ports[:1]), stored_pod("client", ports=ports[1:])
        enforce(scene, everyone, web=own[0], client=own[1])
        return [
            scene.passes(client, at.web, web, port=8080),
            scene.passes(web, at.client, client, port=9090),
            scene.passes(client, at.web, web, port=9090),
        ]

    assert ways("http") == [True, True, False]
    assert ways("renamed") == [False, True, False]


def test_prefixes_to_send_from_count_where_the_node_allows_them(scene: PolicyScene) -> None:
    """P-45."""
    at, web, client = scene.nat.addresses, scene.nat.web.name, scene.nat.client.name
    lent = f"{at.floating}/{length(scene)}"
    quick = ("nodad",) if scene.nat.family is Family.IPV6 else ()
    scene.node.run("ip", "-n", client, "address", "add", lent, "dev", "eth0", *quick)
    scene.node.run("ip", "route", "add", lent, "dev", "netp6")
    lender = stored_pod("client", allowed_source_prefixes=(lent,))
    state = enforce(scene, client=lender, node=evolve(GENERATED, source_spoofing=SourceSpoofing.ANY))
    assert state.problems == ()
    assert scene.passes(client, at.web, web, source=at.floating)
    (problem,) = enforce(scene, client=lender).problems
    assert str(problem).startswith("WorkloadEndpoint x/here-k8s-client-eth0: has allowed source prefixes")
    assert not scene.passes(client, at.web, web, source=at.floating)


def test_a_rule_that_logs_writes_one_line_for_each_connection(scene: PolicyScene) -> None:
    """P-28: with the kind and the name of its policy, and the packet goes on to the next rule."""
    setting = Path("/proc/sys/net/netfilter/nf_log_all_netns")
    if not os.access(setting, os.W_OK):
        pytest.skip("the kernel does not let packets of network namespaces be logged")
    before = setting.read_text()
    at, prefix = scene.nat.addresses, f"test-{os.getpid()}-{scene.nat.family.value}"
    logs = PolicyRule(action=RuleAction.LOG)
    with open("/dev/kmsg", "rb", buffering=0) as kernel_log:
        os.set_blocking(kernel_log.fileno(), False)
        os.lseek(kernel_log.fileno(), 0, os.SEEK_END)
        setting.write_text("1")
        try:
            enforce(scene, make_policy("p", logs, allow(), selector=WEB), node=evolve(GENERATED, log_prefix=prefix))
            with scene.connection(scene.nat.client.name, at.client, scene.nat.web.name, at.web) as answers:
                assert [answers() for _ in range(3)] == [True] * 3
            lines = [line for line in read_lines(kernel_log.fileno()) if prefix in line]
        finally:
            setting.write_text(before)
    assert len(lines) == 1, lines
    assert f"{prefix} NetworkPolicy x/p: " in lines[0]


def read_lines(descriptor: int) -> Iterator[str]:
    """What the kernel has logged since the last look."""
    while True:
        try:
            yield os.read(descriptor, 8192).decode(errors="replace")
        except BlockingIOError:
            return
        except BrokenPipeError:  # it has overwritten what was not read
            continue


# --- the node itself --------------------------------------------------------------------------------------------------


def ways_of_host(scene: PolicyScene) -> dict[str, bool]:
    """Which ways from and to the node are open, and past it."""
    at, web = scene.nat.addresses, scene.nat.web.name
    loopback = "127.0.0.1" if scene.nat.family is Family.IPV4 else "::1"
    return {
        "in": scene.passes(OUTSIDE, at.node, ""),
        "in failsafe": scene.passes(OUTSIDE, at.node, "", port=68),
        "out": scene.passes("", at.outside, OUTSIDE),
        "out failsafe": scene.passes("", at.outside, OUTSIDE, port=53),
        "to web": scene.passes("", at.web, web),
        "from web": scene.passes(web, at.node, ""),
        "through": scene.passes(OUTSIDE, at.web, web),
        "itself": scene.passes("", loopback, ""),
    }


def closed(*names: str) -> dict[str, bool]:
    every = ("in", "in failsafe", "out", "out failsafe", "to web", "from web", "through", "itself")
    return {name: name not in names for name in every}


def test_a_host_endpoint_is_open_by_its_profile_until_a_policy_selects_it(scene: PolicyScene) -> None:
    """P-34, P-35, P-37, P-38, P-40."""
    automatic = make_host("auto", profiles=ALLOWING)
    of_host = "host == 'auto'"
    enforce(scene, automatic)
    assert ways_of_host(scene) == closed()
    enforce(scene, automatic, make_global_policy("p", selector=of_host))
    assert ways_of_host(scene) == closed("in")
    enforce(scene, automatic, make_global_policy("p", selector=of_host, types=(Direction.EGRESS,)))
    assert ways_of_host(scene) == closed("out")
    enforce(scene, make_host("auto"))
    assert ways_of_host(scene) == closed("in", "out")
    enforce(scene, make_host("auto"), node=evolve(GENERATED, failsafe_inbound=(), failsafe_outbound=()))
    assert ways_of_host(scene) == closed("in", "in failsafe", "out", "out failsafe")


def test_what_a_host_sends_to_a_service_is_judged_where_it_leaves(scene: PolicyScene) -> None:
    """P-37: a machine outside behind the service is as closed as by its own address, and a workload is not."""
    at, web = scene.nat.addresses, scene.nat.web.name
    family = "ip" if scene.nat.family is Family.IPV4 else "ip6"
    scene.node.run("ip", "route", "add", f"{at.floating}/{length(scene)}", "dev", "up0")
    enforce(scene, make_host("auto"))

    def is_open(backend: str, receiver: str) -> bool:
        rule = f"{family} daddr {at.floating} dnat {family} to {backend}"
        chain = f"{{ type nat hook output priority -100; {rule}; }}"
        scene.node.run("nft", "-f", "-", stdin=f"table inet service {{ chain output {chain}; }}")
        found = scene.passes("", at.floating, receiver, at=backend)
        scene.node.run("nft", "delete", "table", "inet", "service")
        return found

    assert not is_open(at.outside, OUTSIDE)
    assert is_open(at.web, web)


def test_which_host_endpoint_governs_an_interface(scene: PolicyScene) -> None:
    """P-39."""
    anywhere, uplink = make_host("any"), make_host("up", "up0", profiles=ALLOWING)
    enforce(scene, anywhere, uplink)
    assert ways_of_host(scene) == closed()
    enforce(scene, make_host("any", profiles=ALLOWING), make_host("up", "up0"))
    assert ways_of_host(scene) == closed("in", "out")
    first, second = make_host("a", profiles=ALLOWING), make_host("b")
    enforce(scene, first, second)
    assert ways_of_host(scene) == closed()
    enforce(scene, second)
    assert ways_of_host(scene) == closed("in", "out")


# --- random objects ---------------------------------------------------------------------------------------------------

OTHER_PORT = 8081
SELECTORS = ("", "", WEB, "app == 'client'", "has(app)", "!has(app)", "all()")


def ends(*, has_ports: bool) -> st.SearchStrategy[EntityRule]:
    """One end of the packets of a rule, for both families or for one."""
    places = [Prefix.parse(text) for each in ADDRESSES.values() for text in (each.pods, each.outsides)]
    places += [Address.parse(text).host_prefix for each in ADDRESSES.values() for text in (each.web, each.client)]
    nets = st.one_of(
        st.just(()),
        *(st.lists(st.sampled_from([one for one in places if one.family is family]), max_size=2) for family in Family),
    ).map(tuple)
    ports = st.sampled_from(((), (PortRange(PORT, PORT),), (PortRange(OTHER_PORT, 9000),)))
    return st.builds(
        EntityRule,
        selector=st.sampled_from(SELECTORS),
        not_selector=st.sampled_from(("", "", "", WEB)),
        namespace_selector=st.sampled_from(("", "", "", "team == 'y'", "global()", "all()")),
        nets=nets,
        ports=ports if has_ports else st.just(()),
    )


@st.composite
def rules(draw: st.DrawFn) -> PolicyRule:
    has_ports = draw(st.booleans())
    return PolicyRule(
        action=draw(st.sampled_from([RuleAction.ALLOW, RuleAction.ALLOW, RuleAction.DENY])),
        protocol=Protocol(UDP) if has_ports else draw(st.sampled_from([None, None, Protocol(6)])),
        source=draw(ends(has_ports=False)),
        destination=draw(ends(has_ports=has_ports)),
    )


@st.composite
def objects(draw: st.DrawFn) -> list[PolicyObject]:
    """Policies of both kinds, a policy of Kubernetes, and host endpoints."""
    some = st.lists(rules(), max_size=3).map(tuple)
    found: list[PolicyObject] = []
    for name in draw(st.lists(st.sampled_from("abc"), unique=True, max_size=3)):
        make = draw(st.sampled_from((make_policy, make_global_policy)))
        found.append(
            make(
                name,
                selector=draw(st.sampled_from((WEB, "app == 'client'", "all()", "has(host)"))),
                order=draw(st.sampled_from((None, 10.0, 2000.0))),
                types=draw(st.sampled_from(((Direction.INGRESS,), (Direction.EGRESS,), tuple(Direction)))),
                ingress=draw(some),
                egress=draw(some),
            )
        )
    peers: tuple[dict[str, object], ...] = (
        {},
        {"from": [{"podSelector": {}}]},
        {"ports": [{"protocol": "UDP", "port": PORT}]},
    )
    if draw(st.booleans()):
        found.append(kubernetes(*draw(st.lists(st.sampled_from(peers), max_size=1))))
    if draw(st.booleans()):
        found.append(make_host("auto", profiles=draw(st.sampled_from(((), ALLOWING)))))
    return found


@settings(KERNEL_EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_the_evaluation_the_walk_and_the_kernel_agree(scene: PolicyScene, data: st.DataObject) -> None:
    """P-69: about packets of whatever objects, on each way between workloads, a machine outside and the node."""
    state = enforce(scene, *data.draw(objects()))
    for way in data.draw(st.lists(st.sampled_from(WAYS), unique=True, min_size=2, max_size=4)):
        port = data.draw(st.sampled_from((PORT, OTHER_PORT)))
        assert passes(scene, way, port) is is_allowed(scene, way, port, state), (way, port)


PLACES = {"web": "netp5", "client": "netp6", "outside": "up0", "node": ""}
WAYS = [(one, other) for one in PLACES for other in PLACES if one != other]


def passes(scene: PolicyScene, way: tuple[str, str], port: int) -> bool:
    at, nat = scene.nat.addresses, scene.nat
    names = {"web": nat.web.name, "client": nat.client.name, "outside": OUTSIDE, "node": ""}
    sender, receiver = way
    return scene.passes(names[sender], getattr(at, receiver), names[receiver], port=port, source=getattr(at, sender))


def is_allowed(scene: PolicyScene, way: tuple[str, str], port: int, state: PolicyState) -> bool:
    """What the evaluation says, and the table that is rendered of the same state in memory."""
    sender, receiver = way
    packet = Packet(
        source=Address.parse(getattr(scene.nat.addresses, sender)),
        destination=Address.parse(getattr(scene.nat.addresses, receiver)),
        protocol=UDP,
        destination_port=port,
        input_interface=PLACES[sender],
        output_interface=PLACES[receiver],
    )
    decision = evaluate(packet, state).decision is Decision.ALLOW
    in_memory = MemoryRuleset()
    for change in find_phases(render_state(state), None):
        in_memory.apply(change)
    assert (in_memory.pass_packet(POLICY_TABLE, packet) is Fate.PASSED) is decision
    return decision
