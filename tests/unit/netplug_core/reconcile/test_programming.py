"""What the kernel refuses is closed, and what is programmed may be said."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from attrs import evolve

from netplug_core.addressing import Address
from netplug_core.dataplane.filter import render_state
from netplug_core.policy.model import (
    Action,
    ActiveHostEndpoint,
    ActivePolicy,
    ActiveProfile,
    LocalEndpoint,
    Match,
    PolicyProblem,
    PolicyState,
    Rule,
)
from netplug_core.policy.sets import peer_id, peer_of
from netplug_core.reconcile.programming import (
    KeptEndpoints,
    Part,
    ProblemCounts,
    ProgrammingFacts,
    close_parts,
    count_problems,
    find_changed_parts,
    find_lost_addresses,
    find_network_profiles,
    find_programmed,
    isolate,
    keep_closed,
    name_of,
)
from netplug_core.resources.validation import validate_resource
from netplug_core.resources.workloadendpoint import EndpointPort, WorkloadEndpoint
from tests.harness.policies import allow, make_pod
from tests.harness.policy_states import endpoint, policy_id

ALLOW = Rule(name="NetworkPolicy x/a #0", action=Action.ALLOW, matches=(Match(),))
A, B = policy_id("a"), policy_id("b")
POLICY = ActivePolicy(id=A, ingress=(ALLOW,))
PROFILE = ActiveProfile(name="kns.x", ingress=(ALLOW,), egress=(ALLOW,))
HOST = ActiveHostEndpoint(name="node", interface="*", profiles=("kns.x",))
ONE = endpoint(1, container_id="c1", ingress=(A,), profiles=("kns.x",))
TWO = endpoint(2, container_id="c2", profiles=("kns.x",))
STATE = PolicyState(policies=(POLICY,), profiles=(PROFILE,), endpoints=(ONE, TWO), host_endpoints=(HOST,))
PARTS: tuple[Part, ...] = (POLICY, PROFILE, HOST, ONE, TWO)


def test_each_part_is_called_by_its_object() -> None:
    names = ["NetworkPolicy x/a", "Profile kns.x", "HostEndpoint node", "WorkloadEndpoint x/pod1"]
    assert [name_of(each) for each in PARTS[:4]] == names


def test_problems_are_counted_by_what_they_are_of() -> None:
    subjects = ("10.0.0.1", "fd00::1", "NetworkPolicy x/a", "KubernetesNetworkPolicy x/b", "WorkloadEndpoint x/c")
    problems = [PolicyProblem(each, "is not enforced") for each in subjects]
    assert count_problems(problems) == ProblemCounts(unconvertible=2, shared_addresses=2)
    assert count_problems(()) == ProblemCounts()


def test_the_profile_of_a_network_is_made_where_it_is_missing() -> None:
    missing = [ActiveProfile(name=each, is_missing=True) for each in ("kns.x", "ksa.x.web", "lab", "net1")]
    state = PolicyState(profiles=(*missing, PROFILE))
    lab = make_pod("a", profiles=("lab",), orchestrator="cni")
    pod = make_pod("b", profiles=("net1",))
    found = find_network_profiles(state, [lab, pod])
    for each in found:
        validate_resource(each)
    assert [each.metadata.name for each in found] == ["lab", "net1"]
    assert [each.spec.labels_to_apply for each in found] == [(("lab", ""),), (("net1", ""),)]
    assert [rule.source.selector for each in found for rule in each.spec.ingress] == ["has(lab)", ""]
    assert all(each.spec.egress == (allow(),) for each in found)
    assert find_network_profiles(PolicyState(profiles=(PROFILE,)), [lab]) == ()


def test_of_endpoints_of_other_nodes_only_what_policies_see_is_kept() -> None:
    ports = (EndpointPort(name="http", protocol="TCP", port=80),)
    local = make_pod("a", "10.0.0.1", labels={"app": "a"}, mac="ee:ee:ee:ee:ee:ee", ports=ports)
    remote = evolve(local, spec=evolve(local.spec, node="n2"))
    names: list[str] = []
    kept = KeptEndpoints(lambda: names[0] if names else None)
    assert kept.keep(PROFILE) is PROFILE
    assert kept.keep(remote) == remote, "whose it is, is not known yet"
    names.append("here")
    assert kept.keep(local) == local
    found = kept.keep(remote)
    assert isinstance(found, WorkloadEndpoint)
    assert (found.spec.mac, found.spec.container_id, found.spec.interface_name) == ("", "", "")
    assert peer_of(found, "here") == peer_of(remote, "here")
    assert peer_id(found) == peer_id(remote)
    other = kept.keep(evolve(remote, metadata=evolve(remote.metadata, name="b")))
    assert isinstance(other, WorkloadEndpoint)
    assert other.metadata.labels is found.metadata.labels


def test_equal_texts_are_not_kept_for_ever() -> None:
    kept = KeptEndpoints(lambda: "here")
    for number in range(30_000):
        kept.keep(make_pod(f"p{number}", labels={"pod": str(number)}, node=f"n{number}"))
    assert len(kept._shared) <= 50_010  # noqa: SLF001 - what it holds is what it is about


# --- closed parts -----------------------------------------------------------------------------------------------------


def test_a_closed_part_lets_nothing_pass_and_the_others_stay() -> None:
    assert close_parts(STATE, frozenset()) is STATE
    closed = close_parts(STATE, frozenset({POLICY, ONE}))
    assert closed.policies == (ActivePolicy(id=A),)
    assert closed.endpoints == (evolve(ONE, addresses=(), ingress=(), profiles=()), TWO)
    assert (closed.profiles, closed.host_endpoints) == (STATE.profiles, STATE.host_endpoints)
    closed = close_parts(STATE, frozenset({PROFILE, HOST}))
    assert closed.profiles == (ActiveProfile(name="kns.x"),)
    assert closed.host_endpoints == (ActiveHostEndpoint(name="node", interface="*"),)
    changed = evolve(POLICY, egress=(ALLOW,))
    assert close_parts(STATE, frozenset({changed})) == STATE, "it is another one by now"


def test_a_part_that_has_changed_is_not_closed_any_more() -> None:
    assert keep_closed(STATE, frozenset()) == frozenset()
    assert keep_closed(STATE, frozenset({POLICY, evolve(ONE, container_id="c9")})) == frozenset({POLICY})


def test_a_candidate_is_what_the_kernel_does_not_have_so() -> None:
    assert find_changed_parts(STATE, PolicyState()) == PARTS
    assert find_changed_parts(STATE, STATE) == ()
    changed = evolve(POLICY, egress=(ALLOW,))
    assert find_changed_parts(evolve(STATE, policies=(changed,)), STATE) == (changed,)


class Kernel:
    """Accepts a state unless one of these parts is open. ``tried`` are the parts that were closed each time."""

    def __init__(self, *refused: Part, refuses_all: bool = False) -> None:
        self.refused, self.refuses_all = frozenset(refused), refuses_all
        self.tried: list[frozenset[Part]] = []

    def accept(self, closed: frozenset[Part]) -> bool:
        self.tried.append(closed)
        return self.refused <= closed and not self.refuses_all


@pytest.mark.parametrize("refused", [(POLICY,), (TWO,), (POLICY, ONE), (HOST, PROFILE, TWO), PARTS])
def test_only_the_parts_that_are_refused_are_closed_in_the_end(refused: tuple[Part, ...]) -> None:
    kernel = Kernel(*refused)
    assert isolate(PARTS, frozenset(), kernel.accept) == frozenset(refused)
    assert kernel.tried[-1] == frozenset(refused), "the kernel has the answer"


def test_what_was_closed_before_stays_closed() -> None:
    assert isolate((ONE,), frozenset({TWO}), Kernel(ONE).accept) == frozenset({ONE, TWO})
    assert isolate((ONE,), frozenset({TWO}), Kernel().accept) == frozenset({TWO})
    assert isolate((), frozenset({TWO}), Kernel().accept) == frozenset({TWO})


def test_nothing_helps_where_the_kernel_refuses_everything() -> None:
    kernel = Kernel(refuses_all=True)
    assert isolate(PARTS, frozenset(), kernel.accept) is None
    assert len(kernel.tried) == 1


def test_one_of_many_is_found_in_few_attempts() -> None:
    many = tuple(endpoint(1 + number % 3, container_id=str(number)) for number in range(128))
    kernel = Kernel(many[77])
    assert isolate(many, frozenset(), kernel.accept) == frozenset({many[77]})
    assert len(kernel.tried) <= 2 + 2 * 7 + 1


# --- what is programmed -----------------------------------------------------------------------------------------------

UP = frozenset({"netp1", "netp2"})


def programmed(state: PolicyState, facts: ProgrammingFacts) -> list[LocalEndpoint]:
    return list(find_programmed(state, facts))


def test_policy_is_programmed_for_what_the_kernel_has_with_its_container_and_its_interface() -> None:
    assert programmed(STATE, ProgrammingFacts(up=UP)) == [ONE, TWO]
    assert programmed(STATE, ProgrammingFacts(up=frozenset({"netp2"}))) == [TWO]
    without = evolve(STATE, endpoints=(evolve(ONE, container_id=""), evolve(TWO, addresses=())))
    assert programmed(without, ProgrammingFacts(up=UP)) == []


def test_policy_is_not_programmed_for_the_container_of_before() -> None:
    facts = ProgrammingFacts(up=UP, attached={"netp1": "c9", "netp2": "c2"})
    assert programmed(STATE, facts) == [TWO]


@pytest.mark.parametrize("closed, left", [({ONE}, [TWO]), ({POLICY}, [TWO]), ({PROFILE}, []), ({HOST}, [ONE, TWO])])
def test_policy_is_not_programmed_where_a_part_of_it_is_closed(closed: Iterable[Part], left: list[Part]) -> None:
    assert programmed(STATE, ProgrammingFacts(up=UP, closed=frozenset(closed))) == left


# --- what is lost -----------------------------------------------------------------------------------------------------


def lost(before: PolicyState, after: PolicyState) -> frozenset[Address]:
    return find_lost_addresses(render_state(before).sets, render_state(after).sets, before, after)


def test_an_address_is_lost_by_who_goes_and_by_who_is_another_container() -> None:
    assert lost(STATE, STATE) == frozenset()
    assert lost(STATE, evolve(STATE, endpoints=(TWO,))) == frozenset(ONE.addresses)
    assert lost(STATE, evolve(STATE, endpoints=(ONE, evolve(TWO, container_id="c3")))) == frozenset(TWO.addresses)
    first = evolve(ONE, container_id="")
    assert lost(evolve(STATE, endpoints=(first,)), evolve(STATE, endpoints=(ONE,))) == frozenset(), "it was nobody's"


def test_an_address_that_moves_to_another_interface_is_lost_by_the_first() -> None:
    moved = evolve(STATE, endpoints=(evolve(ONE, addresses=()), evolve(TWO, addresses=ONE.addresses)))
    assert lost(STATE, moved) == frozenset((*ONE.addresses, *TWO.addresses))


def test_what_a_process_before_has_left_is_lost_too() -> None:
    former, wanted = render_state(STATE).sets, render_state(PolicyState()).sets
    assert find_lost_addresses(former, wanted, PolicyState(), PolicyState()) == {*ONE.addresses, *TWO.addresses}
