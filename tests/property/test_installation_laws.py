"""Laws of Installations.

1. Whatever the JSON object is, it is judged or refused with an error of ours that names a class and a field.
2. Every spelling of the CNI plugin and its IPAM becomes the same settings.
3. A document with the defaults of a cluster spelled out becomes the same settings.
4. An overlay that sets nothing changes nothing.
5. What is rendered depends on the settings only. On the cluster that it leads to, nothing has to be done.
"""

import json
from collections.abc import Mapping
from typing import cast

from hypothesis import event, given
from hypothesis import strategies as st

from netplug_core.decoding.tables import Schema
from netplug_core.installation.components import installation_schema
from netplug_core.installation.daemonset import render
from netplug_core.installation.document import InvalidInstallation, overlaid, read_installation
from netplug_core.installation.pools import PoolAction
from netplug_core.installation.rules import CheckedInstallation, check
from netplug_core.installation.settings import ClusterFacts
from tests.harness.installations import judge, manifest, network, read

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.just(""), st.floats(allow_nan=False),
    st.sampled_from(["10.0.0.0/16", "fd00::/48", "10.0.0.7/16", "all()", "Enabled", "Netplug", "HostLocal", "100Mi"]),
)  # fmt: skip
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
CNI = st.sampled_from(["Netplug", "gke", "AMAZONVPC", "AzureVNET"])
IPAM = st.sampled_from(["netplug", "HostLocal", "hostlocal", "AmazonVPC"])


def values_of(schema: Schema) -> st.SearchStrategy[object]:
    """Values of a schema, now and then something else in their place."""
    if schema.get("type") == "object" and "properties" in schema:
        members = {name: values_of(one) for name, one in cast("dict[str, Schema]", schema["properties"]).items()}
        fitting: st.SearchStrategy[object] = st.fixed_dictionaries({}, optional=members)
    elif schema.get("type") == "array":
        fitting = st.lists(values_of(cast("Schema", schema["items"])), max_size=3)
    elif "enum" in schema:
        fitting = st.sampled_from(cast("list[str]", schema["enum"]))
    elif schema.get("type") == "integer":
        fitting = st.integers(-5, 70_000)
    else:
        fitting = SCALARS
    return st.integers(0, 24).flatmap(lambda chance: ANYTHING if chance == 0 else fitting)


SPEC = values_of(cast("dict[str, Schema]", installation_schema()["properties"])["spec"])


def judged(document: Mapping[str, object]) -> CheckedInstallation | InvalidInstallation:
    try:
        return check(read_installation(document))
    except InvalidInstallation as error:
        return error


@given(SPEC)
def test_whatever_it_is_it_is_judged_or_refused(spec: object) -> None:
    found = judged(manifest(spec))
    problems = (found,) if isinstance(found, InvalidInstallation) else found.problems
    event("refused" if isinstance(found, InvalidInstallation) else f"judged, {bool(problems)}")
    for problem in problems:
        assert all(problem.paths)
        assert problem.problem_class.value in str(problem)
        assert len(str(problem)) < 1300


@given(st.dictionaries(st.sampled_from(["kind", "apiVersion", "metadata", "spec", "Spec", "x"]), ANYTHING))
def test_any_object_is_judged_or_refused(document: dict[str, object]) -> None:
    found = judged(manifest() | document)
    assert isinstance(found, CheckedInstallation | InvalidInstallation)


@given(CNI, IPAM)
def test_every_spelling_becomes_the_same(cni: str, ipam: str) -> None:
    spellings: list[dict[str, object]] = [
        manifest({"cni": {"type": cni, "ipam": {"type": ipam}}}),
        manifest(network(cni={"type": cni, "ipam": {"type": ipam.upper()}})),
        manifest({"cni": {"type": cni.lower(), "ipam": {"plugin": ipam}}}),
        manifest({"cni": {"type": cni}, **network(cni={"ipam": {"plugin": ipam}})}),
        manifest(Spec={"CNI": {"Type": cni, "IPAM": {"Plugin": ipam}}}),
    ]
    checked = [check(read_installation(document)) for document in spellings]
    assert all(one.resolved == checked[0].resolved for one in checked)
    assert len({tuple(problem.problem_class for problem in one.problems) for one in checked}) == 1


@given(SPEC)
def test_an_overlay_that_sets_nothing_changes_nothing(spec: object) -> None:
    found = judged(manifest(spec))
    if isinstance(found, CheckedInstallation) and found.resolved is not None:
        again = check(overlaid(found.document, read({}, name="overlay")))
        assert again.resolved == found.resolved
        assert len(again.problems) == len(found.problems)


def test_defaults_spelled_out_change_nothing() -> None:
    pool = {"cidr": "192.168.0.0/16", "name": "default-ipv4-ippool", "encapsulation": "VXLAN", "natOutgoing": "Enabled",
            "nodeSelector": "all()", "blockSize": 26, "allowedUses": ["Workload", "Tunnel"]}  # fmt: skip
    spelled = network(
        ipPools=[pool],
        bgp="Enabled",
        mtu=0,
        hostPorts="Enabled",
        linuxDataplane="Iptables",
        linuxPodInterfaceType="Veth",
    )
    implied, explicit = judge().resolved, judge(spelled).resolved
    assert implied is not None
    assert explicit is not None
    assert explicit.pools[0].pool == implied.pools[0].pool
    assert (explicit.bgp, explicit.host_ports, explicit.mtu) == (implied.bgp, implied.host_ports, implied.mtu)


@given(SPEC)
def test_what_is_rendered_is_a_function_of_the_settings(spec: object) -> None:
    found = judged(manifest(spec))
    if isinstance(found, InvalidInstallation) or found.problems:
        return
    rendered = render(found.document, ClusterFacts(), version="1.2.3")
    assert rendered == render(found.document, ClusterFacts(), version="1.2.3")
    if rendered.conflist is not None:
        conflist = json.loads(rendered.conflist)
        assert rendered.conflist == json.dumps(conflist, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    again = render(found.document, ClusterFacts(pools=rendered.pools), version="1.2.3")
    assert [step.action for step in again.steps if step.action is not PoolAction.LEAVE] == []
    assert (again.pools, again.conflist) == (rendered.pools, rendered.conflist)
