"""Whether one pod may reach another, in a sentence; what applies to a pod, in order."""

from __future__ import annotations

from netplug_core.policy.evaluate import ConnectionExplanation, explain_connection, find_applied_rules
from netplug_core.policy.model import TCP, Decision
from netplug_core.policy.resolve import PolicyObject
from netplug_core.resources.networkpolicy import Direction
from netplug_core.resources.policyrule import EntityRule
from netplug_core.resources.workloadendpoint import WorkloadEndpoint
from tests.harness.policies import allow, deny, make_pod, make_policy, make_profile

KNS = make_profile("kns.x", allow())
A = make_pod("a", "10.0.0.1", "fd00::1", labels={"app": "a"}, pod="a")
B = make_pod("b", "10.0.0.2", "fd00::2", labels={"app": "b"}, pod="b")
FAR = make_pod("b", "10.0.0.2", labels={"app": "b"}, pod="b", node="there")
ON_B = "app == 'b'"


def explain(
    *objects: PolicyObject, source: WorkloadEndpoint = A, destination: WorkloadEndpoint = B
) -> list[ConnectionExplanation]:
    everything = (KNS, source, destination, *objects)
    return list(explain_connection(everything, (source, destination), protocol=TCP, port=80))


def sentence(*objects: PolicyObject, source: WorkloadEndpoint = A, destination: WorkloadEndpoint = B) -> str:
    return explain(*objects, source=source, destination=destination)[0].sentence("TCP port 80")


def test_there_is_an_answer_for_each_family_of_both() -> None:
    assert [str(each.source_address) for each in explain()] == ["10.0.0.1", "fd00::1"]
    assert [str(each.destination_address) for each in explain(destination=FAR)] == ["10.0.0.2"]
    assert explain(destination=make_pod("b")) == []


def test_what_is_allowed_is_so_by_a_rule_at_each_end() -> None:
    policy = make_policy("web", allow(source=EntityRule(selector="app == 'a'")), selector=ON_B)
    assert sentence(policy) == (
        "x/a may connect to x/b (TCP port 80, IPv4): egress is allowed by Profile kns.x #0, "
        "ingress is allowed by NetworkPolicy x/web #0"
    )
    assert sentence(destination=A) == "x/a may connect to x/a (TCP port 80, IPv4): an endpoint always reaches itself"


def test_what_is_denied_is_so_by_one_rule_or_for_lack_of_one() -> None:
    assert sentence(make_policy("web", deny(), selector=ON_B)) == (
        "x/a may not connect to x/b (TCP port 80, IPv4): ingress is denied by NetworkPolicy x/web #0"
    )
    assert sentence(make_policy("web", selector=ON_B)) == (
        "x/a may not connect to x/b (TCP port 80, IPv4): ingress: policies apply, and none of their rules matches"
    )


def test_a_profile_that_does_not_exist_is_named() -> None:
    closed = make_pod("b", "10.0.0.2", profiles=("gone",))
    assert sentence(destination=closed).endswith("ingress: no policy applies, and Profile gone does not exist")


def test_each_node_judges_its_own_end() -> None:
    (answer,) = explain(destination=FAR)
    assert answer.is_allowed
    assert [(each.node, each.step.direction) for each in answer.steps] == [
        ("here", Direction.EGRESS),
        ("there", Direction.INGRESS),
    ]
    closed = make_policy("out", types=(Direction.EGRESS,), selector="app == 'a'")
    (answer,) = explain(closed, destination=FAR)
    assert answer.decision is Decision.DENY
    assert [each.node for each in answer.steps] == ["here"]


def test_a_pod_without_an_interface_is_reached_by_nobody() -> None:
    assert sentence(destination=make_pod("b", "10.0.0.2", interface_name="")) == (
        "x/a may not connect to x/b (TCP port 80, IPv4): no endpoint is known on the interface"
    )


def test_what_applies_to_a_pod_is_in_the_order_in_which_it_is_tried() -> None:
    policies = (make_policy("z", deny(), allow(), order=1.0), make_policy("a"))
    found = find_applied_rules((KNS, B, *policies), B)
    assert found is not None
    ingress, egress = found
    assert list(ingress.rows()) == [
        ("NetworkPolicy x/z", ("#0 Deny", "#1 Allow")),
        ("NetworkPolicy x/a", ()),
    ]
    assert list(egress.rows()) == [("Profile kns.x", ("#0 Allow",))]
    both = find_applied_rules((KNS, B, make_policy("e", types=(Direction.EGRESS,))), B)
    assert both is not None
    assert [list(each.rows()) for each in both] == [
        [("Profile kns.x", ("#0 Allow",))],
        [("NetworkPolicy x/e", ())],
    ]


def test_nothing_applies_to_what_is_not_programmed() -> None:
    pod = make_pod("b", "10.0.0.2", interface_name="")
    assert find_applied_rules((KNS, pod), pod) is None
