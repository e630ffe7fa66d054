"""The transactions that change a table in place: which there are, and what is made under another name."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_backends.memory.ruleset import MemoryRuleset
from netplug_core.addressing import Address
from netplug_core.dataplane.filter import render_state
from netplug_core.dataplane.phases import TableTracker, find_differences, find_phases
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.ruleset import (
    ChangeTable,
    ElementType,
    NamedSet,
    ObservedTable,
    PacketTable,
    Phase,
    ReplaceTable,
    UnreadableObject,
)
from netplug_core.policy.model import (
    TCP,
    Action,
    ActiveHostEndpoint,
    ActivePolicy,
    DenyAction,
    Match,
    MemberSet,
    PeerMatch,
    PolicySettings,
    PolicyState,
    Rule,
    SetType,
    set_id,
)
from netplug_core.resources.fields import PortRange
from netplug_core.resources.nodeconfiguration import EndpointToHostAction
from tests.harness.policy_states import endpoint, policy_id

A, B = policy_id("a"), policy_id("b")
PEERS = set_id("peers")
TABLE = "netplug"


def rule(port: int, action: Action = Action.ALLOW, *, peers: bool = False) -> Rule:
    """A rule for a port, and perhaps for the set of peers."""
    source = PeerMatch(sets=(PEERS,)) if peers else PeerMatch()
    match = Match(protocol=TCP, source=source, destination=PeerMatch(ports=(PortRange(port, port),)))
    return Rule(name=f"rule {port}", action=action, matches=(match,))


def policy(which: str, *rules: Rule) -> ActivePolicy:
    return ActivePolicy(id=policy_id(which), ingress=rules)


def state(*policies: ActivePolicy, users: tuple[tuple[int, str], ...] = ((1, "ab"),), members: str = "") -> PolicyState:
    """Endpoints, each with the policies that its text names; and the set of peers, if a rule looks into it."""
    used = any(PEERS in each.set_ids for each in policies)
    addresses = frozenset(Address.parse(each) for each in members.split())
    sets = (MemberSet(id=PEERS, type=SetType.ADDRESSES, members=addresses),) if used else ()
    endpoints = tuple(endpoint(number, ingress=tuple(map(policy_id, names))) for number, names in users)
    return PolicyState(policies=policies, sets=sets, endpoints=endpoints)


class Node:
    """A packet filter, and who changes its table."""

    def __init__(self) -> None:
        self.kernel = MemoryRuleset()
        self.tracker = TableTracker(TABLE)

    def bring(self, wanted: PolicyState | PacketTable) -> list[ChangeTable]:
        table = wanted if isinstance(wanted, PacketTable) else render_state(wanted)
        done: list[ChangeTable] = []
        for change in self.tracker.plan(table):
            assert isinstance(change, ChangeTable)
            self.kernel.apply(change)
            self.tracker.note(change)
            done.append(change)
        assert find_phases(table, self.kernel.read(TABLE)) == ()
        return done

    def restart(self) -> None:
        self.tracker = TableTracker(TABLE)
        self.tracker.observe(self.kernel.read(TABLE))

    def chains(self, start: str) -> list[str]:
        observed = self.kernel.read(TABLE)
        assert observed is not None
        return sorted(chain.name for chain in observed.chains if chain.name.startswith(start))


@pytest.fixture
def node() -> Node:
    return Node()


def filled(changes: list[ChangeTable]) -> list[str]:
    return [chain.name for change in changes for chain in change.filled_chains]


def test_an_endpoint_is_created_and_switched_on_and_then_switched_off_and_deleted(node: Node) -> None:
    one = policy("a", rule(80))
    node.bring(state(one, users=((1, "a"),)))
    create, switch = node.bring(state(one, users=((1, "a"), (2, "a"))))
    assert ([each.name for each in create.new_chains], create.phase) == (["fw-netp2", "tw-netp2"], Phase.CREATE)
    assert {each.name for each in switch.added} == {"from-wl", "to-wl", "src-v4", "src-v6"}
    assert (switch.filled_chains, switch.deleted) == ((), ())
    switch, delete = node.bring(state(one, users=((1, "a"),)))
    assert {each.name for each in switch.deleted} == {"from-wl", "to-wl", "src-v4", "src-v6"}
    assert (sorted(delete.deleted_chains), delete.phase) == (["fw-netp2", "tw-netp2"], Phase.DELETE)


def test_a_policy_that_only_allows_changes_in_place_for_all_its_endpoints(node: Node) -> None:
    users = ((1, "a"), (2, "a"), (3, "ab"))
    node.bring(state(policy("a", rule(80)), policy("b"), users=users))
    (switch,) = node.bring(state(policy("a", rule(81)), policy("b"), users=users))
    assert filled([switch]) == node.chains("pi-")[:1] or filled([switch]) == node.chains("pi-")[1:]
    both = node.bring(state(policy("a", rule(82)), policy("b", rule(9)), users=users))
    assert sorted(filled(both)) == node.chains("pi-")
    assert len(both) == 1


def test_a_single_policy_that_denies_changes_in_place(node: Node) -> None:
    node.bring(state(policy("a", rule(80, Action.DENY)), users=((1, "a"),)))
    (switch,) = node.bring(state(policy("a", rule(81, Action.DENY)), users=((1, "a"),)))
    assert filled([switch]) == node.chains("pi-")


@pytest.mark.parametrize("settings", [PolicySettings(), PolicySettings(deny_action=DenyAction.REJECT)])
def test_two_policies_that_change_together_are_made_under_other_names_if_one_denies(
    node: Node, settings: PolicySettings
) -> None:
    deny = rule(80, Action.DENY)
    before = evolve(state(policy("a", deny), policy("b", rule(80))), settings=settings)
    after = evolve(state(policy("a"), policy("b", deny)), settings=settings)
    node.bring(before)
    first = node.chains("pi-")
    create, switch, delete = node.bring(after)
    assert sorted(each.name for each in create.new_chains) == [f"{name}-1" for name in first]
    assert (filled([switch]), sorted(delete.deleted_chains)) == (["tw-netp1"], first)
    node.bring(before)
    assert node.chains("pi-") == first


def test_a_policy_is_made_under_another_name_if_an_endpoint_begins_to_use_it(node: Node) -> None:
    users = ((1, "a"), (2, "b"))
    node.bring(state(policy("a", rule(80)), policy("b", rule(81)), users=users))
    create, switch, delete = node.bring(state(policy("b", rule(82)), users=((1, "b"), (2, "b"))))
    assert len(create.new_chains) == 1
    assert sorted(filled([switch])) == ["tw-netp1", "tw-netp2"]
    assert len([name for name in delete.deleted_chains if name.startswith("pi-")]) == 2


def test_after_a_restart_nothing_is_written_and_a_change_is_made_under_another_name(node: Node) -> None:
    node.bring(state(policy("a", rule(80)), users=((1, "a"),)))
    node.restart()
    assert node.bring(state(policy("a", rule(80)), users=((1, "a"),))) == []
    node.restart()
    create, switch, delete = node.bring(state(policy("a", rule(81)), users=((1, "a"),)))
    assert [each.name[-2:] for each in create.new_chains] == ["-1"]
    assert (filled([switch]), len(delete.deleted_chains)) == (["tw-netp1"], 1)
    node.restart()
    assert node.bring(state(policy("a", rule(81)), users=((1, "a"),))) == []


def test_a_chain_that_a_killed_process_has_made_is_used(node: Node) -> None:
    node.bring(state(policy("a", rule(80)), users=((1, "a"),)))
    node.restart()
    wanted = state(policy("a", rule(81)), users=((1, "a"),))
    node.kernel.apply(node.tracker.plan(render_state(wanted))[0])
    assert len(node.chains("pi-")) == 2
    node.restart()
    changes = node.bring(wanted)
    assert [each.phase for each in changes] == [Phase.SWITCH, Phase.DELETE]


def test_a_refused_change_is_planned_again_and_trusts_nothing(node: Node) -> None:
    node.bring(state(policy("a", rule(80)), users=((1, "a"),)))
    wanted = render_state(state(policy("a", rule(81)), users=((1, "a"), (2, "a"))))
    first, *_ = node.tracker.plan(wanted)
    node.kernel.apply(first)
    node.tracker.note(first)
    changes = node.bring(state(policy("a", rule(82)), users=((1, "a"), (2, "a"))))
    assert [each.name[-2:] for each in changes[0].new_chains] == ["-1"]


def test_a_reading_that_says_the_same_keeps_what_is_known(node: Node) -> None:
    node.bring(state(policy("a", rule(80)), users=((1, "a"),)))
    node.tracker.observe(node.kernel.read(TABLE))
    (switch,) = node.bring(state(policy("a", rule(81)), users=((1, "a"),)))
    assert filled([switch]) == node.chains("pi-")


def test_members_alone_change_in_one_transaction(node: Node) -> None:
    one = policy("a", rule(80, peers=True))
    node.bring(state(one, users=((1, "a"),), members="10.0.0.1 fd00::1"))
    (switch,) = node.bring(state(one, users=((1, "a"),), members="10.0.0.2 fd00::1"))
    assert ([each.name[:2] for each in switch.deleted], [each.name[:2] for each in switch.added]) == (["s4"], ["s4"])


def parts(change: ChangeTable) -> tuple[list[str], list[str], list[str]]:
    return (
        [chain.name[:2] for chain in change.filled_chains],
        [each.name[:2] for each in change.deleted],
        [each.name[:2] for each in change.added],
    )


def test_members_that_allow_go_before_rules_change_and_come_after_it(node: Node) -> None:
    users = ((1, "a"),)
    node.bring(state(policy("a", rule(80, peers=True)), users=users, members="10.0.0.1"))
    first, second, third = node.bring(state(policy("a", rule(81, peers=True)), users=users, members="10.0.0.2"))
    assert parts(first) == ([], ["s4"], [])
    assert parts(second) == (["pi"], [], [])
    assert parts(third) == ([], [], ["s4"])


def test_members_that_deny_come_before_rules_change_and_go_after_it(node: Node) -> None:
    users = ((1, "a"),)
    deny, other = rule(80, Action.DENY, peers=True), rule(81, Action.DENY, peers=True)
    node.bring(state(policy("a", deny), users=users, members="10.0.0.1"))
    first, second, third = node.bring(state(policy("a", other), users=users, members="10.0.0.2"))
    assert parts(first) == ([], [], ["s4"])
    assert parts(second) == (["pi"], [], [])
    assert parts(third) == ([], ["s4"], [])


def test_where_members_allow_and_deny_rules_that_change_are_closed_first(node: Node) -> None:
    users = ((1, "a"),)
    deny, allow = rule(80, Action.DENY, peers=True), rule(80, peers=True)
    node.bring(state(policy("a", deny), users=users, members="10.0.0.1"))
    first, second = node.bring(state(policy("a", allow), users=users, members="10.0.0.2"))
    assert parts(first) == (["pi"], ["s4"], ["s4"])
    assert [each.comment for each in first.filled_chains[0].rules] == ["until the elements of sets have changed"]
    assert parts(second) == (["pi"], [], [])


def test_what_becomes_closed_comes_first_and_what_becomes_open_last(node: Node) -> None:
    settings = PolicySettings(endpoint_to_host=EndpointToHostAction.ACCEPT)
    opened = evolve(state(policy("a", rule(80)), users=((1, "a"),)), settings=settings)
    closed = state(policy("a", rule(81)), users=((1, "a"),))
    node.bring(opened)
    assert [filled([each])[0][:3] for each in node.bring(closed)] == ["to-", "pi-"]
    assert [filled([each])[0][:3] for each in node.bring(opened)] == ["pi-", "to-"]


def test_a_host_endpoint_that_goes_leaves_its_interface_to_another(node: Node) -> None:
    uplink = ActiveHostEndpoint(name="uplink", interface="eth0")
    node.bring(PolicyState(host_endpoints=(ActiveHostEndpoint(name="any", interface="*"), uplink)))
    any_other = ActiveHostEndpoint(name="any", interface="*", ingress=(A,))
    changes = node.bring(PolicyState(policies=(policy("a", rule(80)),), host_endpoints=(any_other,)))
    assert [each.phase for each in changes] == [Phase.CREATE, Phase.SWITCH, Phase.SWITCH, Phase.DELETE]
    assert parts(changes[1]) == (["he"], ["fr", "to"], [])
    assert [each.comment for each in changes[1].filled_chains[0].rules] == ["until the elements of sets have changed"]


def test_a_host_endpoint_that_comes_or_goes_with_other_settings_closes_nothing_between_workloads(node: Node) -> None:
    uplink = ActiveHostEndpoint(name="uplink", interface="eth0")
    first = state(policy("a", rule(80)), users=((1, "a"), (2, "a")))
    rejecting = PolicySettings(deny_action=DenyAction.REJECT)
    node.bring(evolve(first, host_endpoints=(evolve(uplink, interface="*"),)))
    other = evolve(first, settings=rejecting, host_endpoints=(evolve(uplink, interface="*"), uplink))
    for wanted in (other, evolve(first, host_endpoints=(evolve(uplink, interface="*"),))):
        changes = node.bring(wanted)
        waiting = {
            chain.name
            for change in changes
            for chain in change.filled_chains
            if [each.comment for each in chain.rules] == ["until the elements of sets have changed"]
        }
        assert waiting == {"hep-any-in"}
        assert {"fw", "tw"} <= {name[:2] for name in filled(changes)}


def test_an_object_that_is_not_ours_is_deleted_and_one_in_the_way_replaces_the_table(node: Node) -> None:
    table = render_state(state(users=()))
    node.bring(table)
    observed = node.kernel.read(TABLE)
    assert observed is not None
    (change,) = find_phases(table, evolve(observed, unreadable=(UnreadableObject("chain", "foreign"),)))
    assert isinstance(change, ChangeTable)
    assert change.deleted_objects == (UnreadableObject("chain", "foreign"),)
    sets = tuple(each for each in observed.sets if each.name != "src-v4")
    damaged = evolve(observed, sets=sets, unreadable=(UnreadableObject("set", "src-v4"),))
    node.tracker.observe(damaged)
    (replacement,) = node.tracker.plan(table)
    assert isinstance(replacement, ReplaceTable)
    node.kernel.apply(replacement)
    node.tracker.note(replacement)
    assert node.tracker.plan(table) == ()


def test_a_set_that_goes_is_deleted_when_no_rule_names_it(node: Node) -> None:
    node.bring(state(policy("a", rule(80, peers=True)), users=((1, "a"),)))
    *_, delete = node.bring(state(policy("a", rule(80)), users=((1, "a"),)))
    assert sorted(delete.deleted_sets) == sorted((f"s4-{PEERS}", f"s6-{PEERS}"))
    assert node.tracker.exists
    assert f"s4-{PEERS}" not in node.tracker.sets


def test_nine_names_of_a_chain_are_enough(node: Node) -> None:
    """Each restart may leave one, if it is killed before anything is deleted."""
    for port in range(80, 85):
        node.restart()
        create, *_ = node.tracker.plan(render_state(state(policy("a", rule(port)), users=((1, "a"),))))
        node.kernel.apply(create)
    assert len(node.chains("pi-")) == 5


def test_a_jump_to_nowhere_is_left_to_the_kernel(node: Node) -> None:
    with pytest.raises(KernelError, match="No such file"):
        node.bring(state())


def test_a_forbidden_change_is_an_error_of_the_kernel(node: Node) -> None:
    missing = NamedSet(name="none", types=())
    with pytest.raises(KernelError, match="No such file"):
        node.kernel.apply(ChangeTable(phase=Phase.SWITCH, table=TABLE, added=(missing,)))


# --- differences for people -------------------------------------------------------------------------------------------


def differences(wanted: PolicyState, had: PolicyState, change: ObservedTable | None = None) -> list[str]:
    """In what a kernel that has one state differs from another one."""
    table = render_state(had)
    observed = ObservedTable(name=TABLE, sets=table.sets, chains=tuple(each.outline for each in table.chains))
    found = find_differences(render_state(wanted), change or observed)
    return [f"{each.part} {each.difference}" for each in found]


def test_a_table_that_is_as_wanted_has_no_differences() -> None:
    one = state(policy("a", rule(80, peers=True)), users=((1, "a"),), members="10.0.0.3")
    assert differences(one, one) == []
    assert [str(each.part) for each in find_differences(render_state(one), None)] == ["table netplug"]


def test_differences_name_chains_sets_and_elements() -> None:
    wanted = state(policy("a", rule(80, peers=True)), users=((1, "a"),), members="10.0.0.3 10.0.0.4")
    fewer = state(policy("a", rule(80, peers=True)), users=((1, "a"),), members="10.0.0.3 10.0.0.5")
    assert differences(wanted, fewer) == [
        f"set s4-{PEERS} has elements too many: 10.0.0.5",
        f"set s4-{PEERS} lacks elements: 10.0.0.4",
    ]
    changed = state(policy("a", rule(81, peers=True)), users=((1, "a"),), members="10.0.0.3 10.0.0.4")
    found = differences(wanted, changed)
    assert [each for each in found if each.startswith("chain pi-")] == [found[0]]
    assert all(each.endswith("has other rules") for each in found)
    nothing = differences(wanted, PolicyState())
    assert "chain fw-netp1 is missing" in nothing
    assert f"set s6-{PEERS} is missing" in nothing
    left = differences(PolicyState(), wanted)
    assert "chain fw-netp1 is left over" in left
    assert f"set s6-{PEERS} is left over" in left


def test_differences_name_what_no_table_of_ours_has() -> None:
    table = render_state(PolicyState())
    outlines = tuple(each.outline for each in table.chains)
    counter = UnreadableObject("counter", "mine")
    observed = ObservedTable(name=TABLE, sets=table.sets, chains=outlines, unreadable=(counter,))
    assert differences(PolicyState(), PolicyState(), observed) == ["counter mine is left over"]
    other = evolve(table.sets[0], types=(ElementType.PORT,), value_type=None)
    changed = ObservedTable(name=TABLE, sets=(other, *table.sets[1:]), chains=outlines)
    expected = ["table netplug has parts that cannot be changed in place"]
    assert differences(PolicyState(), PolicyState(), changed) == expected


def test_a_chain_that_only_waits_for_elements_is_no_difference() -> None:
    wanted = state(policy("a", rule(80, peers=True)), users=((1, "a"), (2, "a")), members="10.0.0.3")
    had = state(policy("a", rule(81, Action.DENY, peers=True)), users=((1, "a"),), members="10.0.0.4")
    assert len(differences(wanted, had)) == len(set(differences(wanted, had)))
