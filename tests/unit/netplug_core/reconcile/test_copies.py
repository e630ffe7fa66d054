"""What is copied from Kubernetes: names, values, what is left alone, and what has to be looked at."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.clock import Deadline
from netplug_core.datastore.feed import follow
from netplug_core.datastore.view import START, View
from netplug_core.names import endpoint_labels
from netplug_core.orchestrator.model import (
    KUBERNETES_NODE,
    NAMESPACE,
    POD,
    SERVICE_ACCOUNT,
    NamespaceFacts,
    NodeFacts,
    PodFacts,
    PodNetwork,
    PodPhase,
    ServiceAccountFacts,
)
from netplug_core.orchestrator.networkpolicy import (
    KUBERNETES_NETWORK_POLICY,
    KubernetesNetworkPolicy,
    KubernetesNetworkPolicySpec,
    LabelOperator,
    LabelRequirement,
    LabelSelector,
)
from netplug_core.reconcile import copies
from netplug_core.reconcile.copies import (
    MOST_A_PASS,
    CopyChange,
    CopyRules,
    CopyWork,
    KeptParts,
    account_copies,
    endpoint_copies,
    namespace_copies,
    node_label_copies,
    policy_copies,
)
from netplug_core.reconcile.nodes import COPIED_LABELS
from netplug_core.records import Create, Delete, Get, Key, List, ReadResult, Record, Revision, Snapshot, Update
from netplug_core.resources.fields import Metadata
from netplug_core.resources.networkpolicy import NETWORK_POLICY, Direction, NetworkPolicy
from netplug_core.resources.node import NODE, Node, NodeSpec, OrchestratorReference
from netplug_core.resources.profile import PROFILE, Profile, ProfileSpec, account_spec, namespace_spec
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from netplug_core.testing.clock import ManualClock

LABELS = (("team", "red"),)
ALL_PODS = LabelSelector()
NOBODY = LabelSelector(requirements=(LabelRequirement(key="a", operator=LabelOperator.IN),))


def record(key: Key[object], value: object, revision: str = "1") -> Record[object]:
    return Record(key, value, Revision(revision))


def namespace(name: str, labels: tuple[tuple[str, str], ...] = LABELS) -> Record[object]:
    return record(NAMESPACE.key(name), NamespaceFacts(name=name, uid="u", labels=labels))


def account(within: str, name: str) -> Record[object]:
    facts = ServiceAccountFacts(namespace=within, name=name, uid="u", labels=LABELS)
    return record(SERVICE_ACCOUNT.key(within, name), facts)


def policy(name: str, pods: LabelSelector = ALL_PODS) -> Record[object]:
    spec = KubernetesNetworkPolicySpec(pods=pods)
    value = KubernetesNetworkPolicy(namespace="x", name=name, spec=spec)
    return record(KUBERNETES_NETWORK_POLICY.key("x", name), value)


def pod(name: str, **changes: object) -> Record[object]:
    facts = PodFacts(namespace="x", name=name, uid="u", node="n", labels=LABELS, service_account="sa")
    return record(POD.key("x", name), evolve(facts, **changes))  # type: ignore[arg-type]  # attributes of many types


def endpoint(name: str, of_pod: str, orchestrator: str = "k8s") -> Record[object]:
    spec = WorkloadEndpointSpec(orchestrator=orchestrator, node="n", endpoint="eth0", pod=of_pod, mac="m")
    value = WorkloadEndpoint(metadata=Metadata(name=name, namespace="x", labels=(("old", "1"),), uid="e"), spec=spec)
    return record(WORKLOAD_ENDPOINT.key("x", name), value, "7")


def edited_by_hand(value: Profile | NetworkPolicy) -> Profile | NetworkPolicy:
    """With another spec."""
    if isinstance(value, Profile):
        return evolve(value, spec=evolve(value.spec, labels_to_apply=(("a", "b"),)))
    return evolve(value, spec=evolve(value.spec, order=1.0, unknown_json='{"a":1}'))


def change_of(rules: CopyRules, source: Record[object] | None, stored: Record[object] | None = None) -> CopyChange:
    """The change of the one copy that follows from an object, or of one that is there."""
    if stored is not None:
        return rules.find_change(stored.key, source, stored)
    assert source is not None
    (target,) = rules.targets_of(source.key)
    return rules.find_change(target, source, stored)


# --- copies by name ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules, source, key, spec",
    [
        (namespace_copies(), namespace("x"), PROFILE.key("kns.x"), namespace_spec("x", LABELS)),
        (account_copies(), account("x", "a.b"), PROFILE.key("ksa.x.a.b"), account_spec("a.b", LABELS)),
        (policy_copies(), policy("web"), NETWORK_POLICY.key("x", "knp.default.web"), None),
    ],
)
def test_a_copy_is_made_restored_and_deleted(
    rules: CopyRules, source: Record[object], key: Key[object], spec: ProfileSpec | None
) -> None:
    made = change_of(rules, source).write
    assert isinstance(made, Create)
    assert isinstance(made.value, Profile | NetworkPolicy)
    assert (made.key, made.value.metadata.name) == (key, key.name)
    assert spec is None or made.value.spec == spec
    assert rules.find_source(key, None) == source.key
    kept = evolve(made.value, metadata=evolve(made.value.metadata, uid="kept", labels=(("own", "1"),)))
    stored = record(key, kept, "5")
    assert change_of(rules, source, stored) == CopyChange()
    edited = record(key, edited_by_hand(kept), "6")
    assert change_of(rules, source, edited).write == Update(key, kept, Revision("6"))
    assert change_of(rules, None, stored) == CopyChange(write=Delete(key, Revision("5")), gone=source.key)
    rules.note(key, stored)
    rules.clear()


def test_a_policy_is_copied_with_its_namespace_and_selects_pods_alone() -> None:
    made = change_of(policy_copies(), policy("web", LabelSelector(labels=LABELS))).write
    assert isinstance(made, Create)
    assert isinstance(made.value, NetworkPolicy)
    assert made.value.metadata.namespace == "x"
    assert made.value.spec.selector == '(projectnetplug.org/orchestrator == "k8s" && team == "red")'
    assert (made.value.spec.order, made.value.spec.types) == (1000.0, (Direction.INGRESS,))


def test_a_policy_whose_pods_cannot_be_known_has_no_copy_and_is_named() -> None:
    rules, source = policy_copies(), policy("web", NOBODY)
    change = change_of(rules, source)
    assert change.write is None
    assert [each.message for each in change.problems] == ["KubernetesNetworkPolicy x/web is copied in part"]
    key = NETWORK_POLICY.key("x", "knp.default.web")
    stored = record(key, NetworkPolicy(metadata=Metadata(name="knp.default.web", namespace="x")))
    # Its source is there, so nothing has to be looked for again.
    assert change_of(rules, source, stored) == CopyChange(write=Delete(key, Revision("1")), problems=change.problems)


@pytest.mark.parametrize(
    "rules, key",
    [
        (namespace_copies(), PROFILE.key("ksa.x.a")),
        (namespace_copies(), PROFILE.key("kns.")),
        (namespace_copies(), PROFILE.key("own")),
        (account_copies(), PROFILE.key("kns.x")),
        (account_copies(), PROFILE.key("ksa.x")),
        (account_copies(), PROFILE.key("ksa..a")),
        (account_copies(), PROFILE.key("x.a")),
        (policy_copies(), NETWORK_POLICY.key("x", "knp.other")),
        (policy_copies(), NETWORK_POLICY.key("x", "knp.default.")),
        (policy_copies(), NETWORK_POLICY.key("x", "default.knp.default.a")),
    ],
)
def test_what_has_another_name_is_no_copy(rules: CopyRules, key: Key[object]) -> None:
    assert rules.find_source(key, None) is None


def test_a_name_that_would_be_too_long_has_no_copy() -> None:
    assert not list(policy_copies().targets_of(policy("a" * 253).key))
    assert not list(account_copies().targets_of(account("x", "a" * 253).key))


# --- endpoints --------------------------------------------------------------------------------------------------------


def test_an_endpoint_gets_the_labels_and_the_account_of_its_pod() -> None:
    stored = endpoint("e1", "web")
    change = endpoint_copies().find_change(stored.key, pod("web"), stored)
    assert isinstance(change.write, Update)
    value = change.write.value
    assert isinstance(value, WorkloadEndpoint)
    labels = endpoint_labels(namespace="x", orchestrator="k8s", service_account="sa", workload=LABELS)
    assert (value.metadata.labels, value.metadata.uid) == (labels, "e")
    assert (value.spec.service_account, value.spec.mac) == ("sa", "m")
    again = evolve(stored, value=value)
    assert endpoint_copies().find_change(stored.key, pod("web"), again) == CopyChange()


@pytest.mark.parametrize(
    "source",
    [
        None,
        pod("web", network=PodNetwork.HOST),
        pod("web", phase=PodPhase.SUCCEEDED),
        pod("web", phase=PodPhase.FAILED),
    ],
)
def test_an_endpoint_without_such_a_pod_stays_as_it_is(source: Record[object] | None) -> None:
    stored = endpoint("e1", "web")
    assert endpoint_copies().find_change(stored.key, source, stored) == CopyChange()
    assert endpoint_copies().find_change(stored.key, pod("web"), None) == CopyChange()


def test_endpoints_are_found_by_their_pod() -> None:
    rules = endpoint_copies()
    one, two, bare = endpoint("e1", "web"), endpoint("e2", "web"), endpoint("e3", "web", "cni")
    for each in (one, two, bare, one):
        rules.note(each.key, each)
    web = POD.key("x", "web")
    assert set(rules.targets_of(web)) == {one.key, two.key}
    assert [rules.find_source(each.key, each) for each in (one, bare)] == [web, None]
    assert rules.find_source(one.key, None) is None
    rules.note(one.key, endpoint("e1", "other"))
    assert list(rules.targets_of(web)) == [two.key]
    rules.note(two.key, None)
    assert not list(rules.targets_of(web))
    assert list(rules.targets_of(POD.key("x", "other"))) == [one.key]
    rules.clear()
    assert not list(rules.targets_of(POD.key("x", "other")))


# --- what has to be looked at -----------------------------------------------------------------------------------------


class Sight:
    """A store of the cluster and one of copies, a view of each, and the work between them."""

    def __init__(self, rules: CopyRules) -> None:
        self.clock, self.work = ManualClock(), CopyWork(rules)
        self.cluster, self.store = MemoryDatastore(clock=self.clock), MemoryDatastore(clock=self.clock)
        self.sources, self.copies = (View(clock=self.clock, uncached_kinds=frozenset()) for _ in range(2))

    def put(self, *records: Record[object]) -> None:
        """Store what is new, where it belongs; see it."""
        for each in records:
            store = self.cluster if each.key.kind == self.work.rules.source else self.store
            store.commit([Create(each.key, each.value)], deadline=self.deadline())
        self.see()

    def delete(self, store: MemoryDatastore, key: Key[object]) -> None:
        found = store.read([Get(key)], deadline=self.deadline()).find(key)
        assert found is not None
        store.commit([Delete(key, found.revision)], deadline=self.deadline())
        self.see()

    def see(self) -> None:
        rules = self.work.rules
        for store, view, kind in ((self.cluster, self.sources, rules.source), (self.store, self.copies, rules.target)):
            follow(store, view, (kind,), deadline=Deadline.after(self.clock, 0.1))

    def look(self) -> tuple[CopyChange, ...]:
        return self.work.look(self.sources, self.copies)

    def make(self, changes: tuple[CopyChange, ...]) -> list[str]:
        """Make changes, and say which."""
        made = [change.write for change in changes if change.write is not None]
        for write in made:
            self.store.commit([write], deadline=self.deadline())
            self.work.done(write.key)
        self.see()
        return [f"{type(write).__name__} {write.key}" for write in made]

    def settle(self) -> list[str]:
        return self.make(self.look())

    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 5.0)


def test_every_change_of_either_side_is_looked_at_once() -> None:
    sight = Sight(namespace_copies())
    sight.put(namespace("a"), namespace("b"), record(PROFILE.key("own"), Profile(metadata=Metadata(name="own"))))
    assert sight.settle() == ["Create Profile(kns.a)", "Create Profile(kns.b)"]
    assert sight.settle() == []
    sight.delete(sight.store, PROFILE.key("kns.a"))
    assert sight.settle() == ["Create Profile(kns.a)"]
    sight.delete(sight.cluster, NAMESPACE.key("b"))
    assert sight.settle() == ["Delete Profile(kns.b)"]
    assert (sight.settle(), sight.work.is_behind) == ([], False)


def test_a_change_that_is_not_done_waits_behind_the_others() -> None:
    sight = Sight(namespace_copies())
    sight.put(namespace("a"))
    (first,) = sight.look()
    assert sight.look() == (first,)
    sight.put(namespace("b"))
    assert [each.write.key.name for each in sight.look() if each.write is not None] == ["kns.a", "kns.b"]
    assert sight.settle() == ["Create Profile(kns.a)", "Create Profile(kns.b)"]


def test_a_pass_looks_at_a_limited_number() -> None:
    sight = Sight(namespace_copies())
    sight.put(*(namespace(f"n{number:04}") for number in range(MOST_A_PASS + 1)))
    assert len(sight.settle()) == MOST_A_PASS
    assert sight.work.is_behind
    assert sight.settle() == [f"Create Profile(kns.n{MOST_A_PASS:04})"]
    assert (sight.settle(), sight.settle(), sight.work.is_behind) == ([], [], False)


def test_what_cannot_be_copied_is_named_until_it_can() -> None:
    sight = Sight(policy_copies())
    sight.put(policy("bad", NOBODY), policy("good"))
    assert sight.settle() == ["Create NetworkPolicy(x/knp.default.good)"]
    assert len(list(sight.work.problems)) == 1
    assert sight.settle() == []
    assert len(list(sight.work.problems)) == 1
    sight.delete(sight.cluster, KUBERNETES_NETWORK_POLICY.key("x", "bad"))
    assert sight.settle() == []
    assert not sight.work.problems


def test_the_copy_of_what_cannot_be_read_stays_until_it_can() -> None:
    sight, kind = Sight(policy_copies()), KUBERNETES_NETWORK_POLICY
    web = policy("web")
    sight.put(web)
    assert sight.settle() == ["Create NetworkPolicy(x/knp.default.web)"]
    sight.sources, sight.work = View(clock=sight.clock, uncached_kinds=frozenset()), CopyWork(policy_copies())
    sight.sources.follow_lists(
        Snapshot({List(kind): ReadResult(())}, {kind: Revision("1")}), now_s=0.0, unreadable=[web.key]
    )
    assert sight.make(sight.look()) == []
    (problem,) = sight.work.problems
    assert problem.message == "KubernetesNetworkPolicy(x/web) is not copied"
    sight.delete(sight.cluster, web.key)
    assert sight.settle() == ["Delete NetworkPolicy(x/knp.default.web)"]
    assert not sight.work.problems


def test_endpoints_follow_their_pods_and_those_that_go_are_forgotten() -> None:
    sight = Sight(endpoint_copies())
    sight.put(endpoint("e1", "web"), endpoint("e2", "other"))
    assert sight.settle() == []
    sight.put(pod("web"))
    assert sight.settle() == ["Update WorkloadEndpoint(x/e1)"]
    sight.put(pod("other"))
    changes = sight.look()
    sight.delete(sight.store, WORKLOAD_ENDPOINT.key("x", "e2"))
    assert len(changes) == 1
    assert sight.settle() == []


def test_everything_is_looked_at_anew() -> None:
    sight = Sight(endpoint_copies())
    sight.put(endpoint("e1", "web"), pod("web"))
    assert sight.settle() == ["Update WorkloadEndpoint(x/e1)"]
    sight.work.look_at_everything()
    assert sight.settle() == []


def test_what_cannot_be_copied_is_named_as_long_as_it_is_there() -> None:
    sight, long = Sight(policy_copies()), policy("a" * 253)
    sight.put(long, policy("b"))
    sight.make(sight.look())
    problem = sight.work.problems[0]
    assert problem.message == f"{long.key} is not copied, so nodes do not know it"
    assert "more than 253 characters" in problem.cause
    sight.work.look_at_everything()
    sight.look()
    assert list(sight.work.problems) == [problem]
    sight.delete(sight.cluster, long.key)
    sight.look()
    assert not list(sight.work.problems)


def test_what_is_gone_when_all_is_listed_again_is_named_no_more() -> None:
    sight, long = Sight(policy_copies()), policy("a" * 253)
    sight.put(long)
    sight.look()
    assert len(list(sight.work.problems)) == 1
    sight.delete(sight.cluster, long.key)
    follow(sight.cluster, sight.sources, (NAMESPACE,), deadline=Deadline.after(sight.clock, 0.1))
    assert sight.sources.changes_since(START)[1] is None, "everything is looked at"
    sight.look()
    assert not list(sight.work.problems)


# --- labels of nodes --------------------------------------------------------------------------------------------------


def machine(name: str, **labels: str) -> Record[object]:
    facts = NodeFacts(name=name, uid="u", labels=tuple(sorted(labels.items())), annotations=(("a", "b"),))
    return record(KUBERNETES_NODE.key(name), facts)


def node(name: str, of_machine: str, **annotations: str) -> Record[object]:
    reference = OrchestratorReference(orchestrator="k8s", node_name=of_machine)
    spec = NodeSpec(orchestrator_references=(reference,) if of_machine else ())
    metadata = Metadata(name=name, labels=(("rack", "7"),), annotations=tuple(sorted(annotations.items())))
    return record(NODE.key(name), Node(metadata=metadata, spec=spec), "7")


def test_a_node_follows_the_machine_that_it_names() -> None:
    rules, first, second = node_label_copies(), node("n1", "m1"), node("n2", "m1")
    for each in (first, second, node("bare", "")):
        rules.note(each.key, each)
    assert set(rules.targets_of(machine("m1").key)) == {first.key, second.key}
    rules.note(second.key, None)
    rules.note(first.key, node("n1", "m2"))
    assert rules.targets_of(machine("m1").key) == ()
    assert rules.targets_of(machine("m2").key) == (first.key,)
    rules.clear()
    assert rules.targets_of(machine("m2").key) == ()
    assert rules.find_problem(machine("m1").key) is None


def test_labels_of_a_machine_are_copied_and_a_node_without_one_is_left() -> None:
    rules, stored = node_label_copies(), node("n1", "m1")
    change = rules.find_change(stored.key, machine("m1", zone="a"), stored)
    assert isinstance(change.write, Update)
    assert isinstance(change.write.value, Node)
    assert (change.write.revision, change.write.value.metadata.labels) == ("7", (("rack", "7"), ("zone", "a")))
    again = rules.find_change(stored.key, machine("m1", zone="a"), record(stored.key, change.write.value))
    assert again == CopyChange()
    assert rules.find_change(stored.key, None, stored) == CopyChange()
    assert rules.find_change(stored.key, machine("m1"), None) == CopyChange()


def test_a_node_whose_bookkeeping_cannot_be_read_is_named() -> None:
    stored = node("n1", "m1", **{COPIED_LABELS: "{"})
    change = node_label_copies().find_change(stored.key, machine("m1", zone="a"), stored)
    assert change.write is None
    (problem,) = change.problems
    assert problem.message == "the labels of m1 are not copied to Node(n1)"


def test_of_a_node_of_kubernetes_the_labels_are_kept() -> None:
    kept = KeptParts(lambda pod: pod.addresses).keep(machine("m1", zone="a").value)
    assert kept == NodeFacts(name="m1", uid="", labels=(("zone", "a"),))


# --- what is kept -----------------------------------------------------------------------------------------------------


def some_pod(name: str) -> PodFacts:
    """A pod whose parts are objects of its own."""
    text = f"x{len(name)}"
    labels, annotations = (("team", f"red{text}"),), (("note", name),)
    return PodFacts(
        namespace=f"shop-{text}", name=name, uid=f"u-{name}", node="n", labels=labels, annotations=annotations,
        service_account=f"web-{text}", phase=PodPhase.RUNNING,
    )  # fmt: skip


def some_endpoint(name: str) -> WorkloadEndpoint:
    text = f"x{len(name)}"
    spec = WorkloadEndpointSpec(
        orchestrator="k8s", node=f"n{text}", endpoint="eth0", container_id=name, profiles=(f"kns.{text}",)
    )
    return WorkloadEndpoint(
        metadata=Metadata(name=name, namespace=f"shop-{text}", uid=name, labels=(("team", f"red{text}"),)), spec=spec
    )


def test_an_endpoint_is_kept_whole_and_what_many_have_alike_once() -> None:
    kept = KeptParts(lambda pod: pod.addresses)
    first, second = (kept.keep(some_endpoint(name)) for name in ("a", "b"))
    assert (first, second) == (some_endpoint("a"), some_endpoint("b"))
    assert isinstance(first, WorkloadEndpoint)
    assert isinstance(second, WorkloadEndpoint)
    assert first.metadata.labels is second.metadata.labels
    assert first.spec.profiles is second.spec.profiles
    assert first.spec.node is second.spec.node


def test_of_a_pod_what_is_copied_is_kept() -> None:
    kept = KeptParts(lambda pod: pod.addresses)
    first, second = (kept.keep(some_pod(name)) for name in ("a", "b"))
    assert isinstance(first, PodFacts)
    assert isinstance(second, PodFacts)
    assert first == evolve(some_pod("a"), uid="", node="", annotations=())
    assert first.labels is second.labels
    rules = endpoint_copies()
    target, stored = (
        WORKLOAD_ENDPOINT.key("shop-x1", "e"),
        record(WORKLOAD_ENDPOINT.key("shop-x1", "e"), some_endpoint("a")),
    )
    whole, part = (record(POD.key("shop-x1", "a"), each) for each in (some_pod("a"), first))
    assert rules.find_change(target, part, stored) == rules.find_change(target, whole, stored) != CopyChange()


def test_other_values_are_kept_as_they_are() -> None:
    facts = NamespaceFacts(name="shop", uid="u")
    assert KeptParts(lambda pod: pod.addresses).keep(facts) is facts


def test_parts_that_are_alike_do_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_MOST_SHARED", 3)
    kept = KeptParts(lambda pod: pod.addresses)
    assert [kept.keep(evolve(some_pod("a"), namespace=f"n{number}")) for number in range(9)] == [
        evolve(some_pod("a"), namespace=f"n{number}", uid="", node="", annotations=()) for number in range(9)
    ]
