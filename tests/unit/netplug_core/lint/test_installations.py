"""Installations: their problems, their warnings, their pools, and overlays."""

from netplug_core.lint.check import LintResult, check
from netplug_core.lint.clusters import Surroundings
from netplug_core.lint.documents import Document
from netplug_core.lint.rules import Rule
from netplug_core.resources.installation import OPERATOR_GROUP


def installation(name: str = "default", **network: object) -> dict[str, object]:
    spec = {"cni": {"type": "Netplug", "ipam": {"type": "HostLocal"}}, "netplugNetwork": {"bgp": "Disabled", **network}}
    header = {"apiVersion": "operator.projectnetplug.org/v1", "kind": "Installation", "metadata": {"name": name}}
    return {**header, "spec": spec if name == "default" else {"netplugNetwork": network}}


def lint(*mappings: dict[str, object]) -> LintResult:
    documents = [Document(source=f"a#{number}", mapping=one) for number, one in enumerate(mappings, start=1)]
    return check(documents, Surroundings())


def pools(*cidrs: str) -> list[dict[str, object]]:
    return [{"cidr": cidr, "encapsulation": "None", "natOutgoing": "Disabled"} for cidr in cidrs]


def pool(cidr: str, name: str = "main") -> dict[str, object]:
    return {"apiVersion": "projectnetplug.org/v3", "kind": "IPPool", "metadata": {"name": name}, "spec": {"cidr": cidr}}


def test_a_warning_has_its_field() -> None:
    found = lint(installation(ipPools=pools("10.64.0.7/16"), linuxPolicySetupTimeoutSeconds=300)).found
    assert [(one.rule, one.field) for one in found] == [
        (Rule.INSTALLATION_WARNING, "spec.netplugNetwork.ipPools[0].cidr"),
        (Rule.INSTALLATION_WARNING, "spec.netplugNetwork.linuxPolicySetupTimeoutSeconds"),
    ]
    assert found[0].accepted == "10.64.0.7/16 is taken as 10.64.0.0/16"


def test_an_overlay_is_judged_with_the_default_one() -> None:
    default = installation(ipPools=pools("10.64.0.0/16"))
    assert [one.rule for one in lint(default, installation("overlay", mtu=-1)).found] == [Rule.INSTALLATION_RANGE]
    assert lint(installation("overlay", mtu=-1)).found == ()


def test_its_pools_are_compared_with_others() -> None:
    found = lint(installation(ipPools=pools("10.64.0.0/16")), pool("10.64.7.0/24")).found
    assert [(one.rule, one.source) for one in found] == [(Rule.POOL_OVERLAP, "a#1")]


def test_pools_of_an_overlay_are_found_where_they_are_written() -> None:
    taken, bad = pool("10.65.7.0/24"), pool("10.66.0.1/24", "z")
    default, overlay = (
        installation(ipPools=pools("10.64.0.0/16")),
        installation("overlay", ipPools=pools("10.65.0.0/16")),
    )
    for mappings, source in (((default, overlay), "a#2"), ((overlay, default), "a#1")):
        found = lint(*mappings, taken, bad).found
        assert [(one.rule, one.source) for one in found] == [
            (Rule.POOL_OVERLAP, source),
            (Rule.POOL_HOST_BITS, "a#4"),
        ]


def test_pools_that_an_overlay_leaves_as_they_are_are_found_in_the_default_one() -> None:
    default, overlay = installation(ipPools=pools("10.64.0.0/16")), installation("overlay", mtu=1450)
    found = lint(default, overlay, pool("10.64.7.0/24")).found
    assert [(one.rule, one.source) for one in found] == [(Rule.POOL_OVERLAP, "a#1")]


def test_an_unknown_plugin_has_no_pools() -> None:
    mapping = installation()
    mapping["spec"] = {"cni": {"type": "Nothing"}}
    assert [one.rule for one in lint(mapping).found] == [Rule.INSTALLATION_UNSUPPORTED]


def test_components_are_judged_and_no_error_by_themselves() -> None:
    metadata = {"name": "default"}
    header: dict[str, object] = {"apiVersion": f"{OPERATOR_GROUP}/v1", "kind": "FlowLogAPI", "metadata": metadata}
    assert lint(header).found == ()
    found = lint({**header, "spec": {"metricsPort": 0}}).found
    assert [(one.rule, one.field, one.value) for one in found] == [(Rule.INSTALLATION_RANGE, "spec.metricsPort", 0)]


def test_an_installation_with_another_name_is_none() -> None:
    (found,) = lint(installation("prod")).found
    assert (found.rule, found.field, found.value) == (Rule.INSTALLATION_UNSUPPORTED, "metadata.name", "prod")
