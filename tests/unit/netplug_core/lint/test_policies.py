"""Policies beside pods and services: what is found, and what is not judged because it is not known."""

from collections.abc import Mapping

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.lint.check import STORED, LintResult, check
from netplug_core.lint.clusters import Surroundings
from netplug_core.lint.documents import Document
from netplug_core.lint.rules import Rule
from netplug_core.orchestrator.networkpolicy import KubernetesNetworkPolicy
from netplug_core.resources.hostendpoint import NamedPort, PortProtocol
from netplug_core.resources.kinds import Resource
from netplug_core.resources.policyrule import EntityRule, PortName, Protocol
from netplug_core.resources.workloadendpoint import EndpointPort
from tests.harness.policies import allow, make_global_policy, make_host, make_pod, make_policy, make_profile

Mappings = Mapping[str, object]
SERVICES = Surroundings(services=(Prefix.parse("10.96.0.0/12"),))
OPEN = make_profile("kns.x", allow(), pcns__team="blue")


def pod(labels: Mappings | None = None, spec: Mappings | None = None, namespace: str = "x") -> Mappings:
    metadata = {"name": "web", "namespace": namespace, "labels": {"app": "web"} if labels is None else labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec or {}}


def policy(spec: Mappings, **metadata: object) -> Mappings:
    named = {"name": "p", "namespace": "x", **metadata}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": named, "spec": spec}


def selecting(app: str = "web", **spec: object) -> Mappings:
    return policy({"podSelector": {"matchLabels": {"app": app}}, **spec})


def lint(
    *mappings: Mappings,
    stored: tuple[Resource, ...] = (),
    policies: tuple[KubernetesNetworkPolicy, ...] = (),
    around: Surroundings = SERVICES,
) -> LintResult:
    documents = [Document(source=f"a#{number}", mapping=one) for number, one in enumerate(mappings, start=1)]
    return check(documents, around, stored, policies)


def rules(*mappings: Mappings, stored: tuple[Resource, ...] = ()) -> list[Rule]:
    return [one.rule for one in lint(*mappings, stored=stored).found]


# --- policies that select nothing -------------------------------------------------------------------------------------


def test_a_policy_is_named_by_what_it_selects() -> None:
    (found,) = lint(pod(), selecting("wbe")).found
    assert (found.rule, found.subject, found.field) == (
        Rule.POLICY_SELECTS_NOTHING,
        "KubernetesNetworkPolicy x/p",
        "spec.podSelector",
    )
    assert 'app == "wbe"' in str(found.value)
    assert found.accepted == "what selects a pod of the namespace x is expected"


def test_a_policy_without_a_pod_of_its_namespace_is_not_judged() -> None:
    assert rules(selecting("wbe")) == []
    assert rules(pod(namespace="y"), selecting("wbe")) == []


def test_in_a_datastore_with_pods_every_pod_is_known() -> None:
    elsewhere = make_pod("a", "10.0.0.1", namespace="y")
    nothing = make_policy("p", selector="app == 'wbe'")
    assert rules(stored=(nothing,)) == []
    (found,) = lint(stored=(elsewhere, nothing)).found
    assert (found.rule, found.source, found.subject) == (Rule.POLICY_SELECTS_NOTHING, STORED, "NetworkPolicy x/p")
    assert rules(stored=(elsewhere, make_pod("b", "10.0.0.2", labels={"app": "wbe"}), nothing)) == []


def test_a_pod_with_the_network_of_its_node_is_selected_by_no_policy() -> None:
    assert rules(pod(spec={"hostNetwork": True}), pod(), selecting()) == []
    on_host = pod(spec={"hostNetwork": True})
    assert rules(on_host, pod(labels={"app": "db"}), selecting()) == [Rule.POLICY_SELECTS_NOTHING]


def test_a_global_policy_may_select_host_endpoints() -> None:
    host, one = make_host("uplink"), make_global_policy("g", allow(), selector="host == 'uplink'")
    assert rules(stored=(host, one)) == []
    other = make_global_policy("g", allow(), selector="host == 'other'")
    (found,) = lint(stored=(host, other)).found
    assert (found.rule, found.accepted) == (
        Rule.POLICY_SELECTS_NOTHING,
        "what selects a pod or a host endpoint is expected",
    )
    assert rules(stored=(other,)) == []


def test_labels_that_are_inherited_count_where_they_are_known() -> None:
    web = make_pod("web", "10.0.0.1", labels={"app": "web"})
    of_blue = make_global_policy("g", allow(), namespace_selector="team == 'blue'")
    of_red = make_global_policy("g", allow(), namespace_selector="team == 'red'")
    assert rules(stored=(web, of_red)) == []  # the namespace is not known
    assert rules(stored=(web, OPEN, of_blue)) == []
    assert rules(stored=(web, OPEN, of_red)) == [Rule.POLICY_SELECTS_NOTHING]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x", "labels": {"team": "blue"}}}
    assert rules(namespace, pod(), stored=(of_red,)) == [Rule.POLICY_SELECTS_NOTHING]
    assert rules(namespace, pod(), stored=(of_blue,)) == []


def test_a_profile_of_a_user_may_give_any_label() -> None:
    host = make_host("uplink", profiles=("own",))
    policy_of_own = make_global_policy("g", allow(), selector="zone == 'a'")
    assert rules(stored=(host, policy_of_own)) == []
    assert rules(stored=(host, make_profile("own", zone="a"), policy_of_own)) == []
    assert Rule.POLICY_SELECTS_NOTHING in rules(stored=(host, make_profile("own", zone="b"), policy_of_own))


def test_a_policy_that_is_not_enforced_or_not_accepted_is_found_once() -> None:
    not_enforced = policy({"podSelector": {"matchLabels": 7}})
    assert rules(pod(), not_enforced) == []
    broken = make_global_policy("g", allow(), selector="app ==")
    assert rules(pod(), stored=(broken,)) == [Rule.RESOURCE_VALUE]


def test_a_policy_that_cannot_be_read_is_found() -> None:
    assert rules(pod(), policy({}, name="")) == [Rule.MALFORMED_FIELD]
    assert rules(pod(), policy({}, name=7)) == [Rule.MALFORMED_FIELD]


def test_two_policies_of_one_name_and_a_stored_one() -> None:
    (found,) = lint(pod(), selecting(), selecting()).found
    assert (found.rule, found.subject) == (Rule.DUPLICATE_OBJECT, "NetworkPolicy(x/p)")
    stored = KubernetesNetworkPolicy(namespace="x", name="p")
    (found,) = lint(pod(), selecting("wbe"), policies=(stored,)).found
    assert found.source == "a#2"
    other = evolve(stored, name="q")
    assert lint(pod(), selecting("wbe"), policies=(other,)).count == 3


# --- addresses of services --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cidr, count", [("10.96.0.10/32", 1), ("10.0.0.0/8", 0), ("fd00::/64", 0)])
def test_a_rule_about_services_is_never_met(cidr: str, count: int) -> None:
    block = [{"ipBlock": {"cidr": cidr}}]
    specs: tuple[dict[str, object], ...] = (
        {"egress": [{}, {"to": block}], "policyTypes": ["Egress"]},
        {"ingress": [{}, {"from": block}]},
    )
    for spec in specs:
        found = lint(policy({"podSelector": {}, **spec})).found
        assert [(one.rule, one.value) for one in found] == [(Rule.POLICY_OF_SERVICES, cidr)][:count]
        assert all(one.field in {"spec.egress[1]", "spec.ingress[1]"} for one in found)


def test_without_the_range_of_services_no_rule_is_about_them() -> None:
    one = make_policy("p", allow(source=EntityRule(nets=(Prefix.parse("10.96.0.1/32"),))))
    assert [each.rule for each in lint(stored=(one,), around=Surroundings()).found] == []
    assert rules(stored=(one,)) == [Rule.POLICY_OF_SERVICES]


# --- named ports ------------------------------------------------------------------------------------------------------


def port(name: str, **more: object) -> Mappings:
    return {"name": name, "containerPort": 8080, **more}


def with_ports(*ports: object) -> Mappings:
    return pod(spec={"containers": [{"ports": list(ports)}, 7, {"ports": 7}]})


def test_a_port_that_no_selected_pod_names_is_found_with_those_that_it_names() -> None:
    rule = {"ports": [{"port": "htp"}, {"port": "htp", "protocol": "UDP"}]}
    (found,) = lint(with_ports(port("http"), port("dns", protocol="UDP"), {}), selecting(ingress=[rule])).found
    assert (found.rule, found.field, found.value) == (Rule.POLICY_PORT_UNKNOWN, "spec.ingress[0]", "htp")
    assert found.accepted == "a port of the pods it is for is expected: dns, http"
    (found,) = lint(pod(), selecting(ingress=[rule])).found
    assert found.accepted.endswith("they name none")


def test_the_protocol_of_a_named_port_counts() -> None:
    rule = {"ports": [{"port": "dns"}]}
    assert rules(with_ports(port("dns", protocol="UDP")), selecting(ingress=[rule])) == [Rule.POLICY_PORT_UNKNOWN]
    assert rules(with_ports(port("dns", protocol="TCP")), selecting(ingress=[rule])) == []
    assert rules(with_ports(port("dns", protocol="ICMP")), selecting(ingress=[rule])) == [Rule.POLICY_PORT_UNKNOWN]


def test_ports_of_peers_are_those_of_the_pods_that_the_rule_selects() -> None:
    db = make_pod("db", "10.0.0.2", labels={"app": "db"}, ports=(EndpointPort(protocol="TCP", port=1, name="sql"),))
    web = make_pod("web", "10.0.0.1", labels={"app": "web"})

    def to(name: str, app: str = "db") -> Resource:
        end = EntityRule(selector=f"app == '{app}'", ports=(PortName(name),))
        return make_policy("p", egress=(allow(protocol=Protocol(6), destination=end),), types=())

    assert rules(stored=(web, db, to("sql"))) == []
    assert rules(stored=(web, db, to("sqk"))) == [Rule.POLICY_PORT_UNKNOWN]
    assert rules(stored=(web, db, to("sqk", app="cache"))) == []  # no such pod is known


def test_a_port_that_is_excepted_has_to_exist_too() -> None:
    end = EntityRule(not_ports=(PortName("sqk"),))
    one = make_policy("p", allow(protocol=Protocol(6), destination=end))
    assert rules(stored=(make_pod("web", "10.0.0.1"), one)) == [Rule.POLICY_PORT_UNKNOWN]


def test_host_endpoints_have_named_ports() -> None:
    ssh = NamedPort(name="ssh", protocol=PortProtocol.TCP, port=22)
    host = make_host("uplink", "eth0", "192.0.2.1", ports=(ssh,))
    for name, found in (("ssh", []), ("shs", [Rule.POLICY_PORT_UNKNOWN])):
        end = EntityRule(ports=(PortName(name),))
        one = make_global_policy("g", allow(protocol=Protocol(6), destination=end))
        assert rules(stored=(host, one)) == found
