"""Conditions, marks, kubeadm's prefixes, and the words of the log."""

from __future__ import annotations

import pytest

from netplug_core.decoding.tables import find_text
from netplug_core.installation.pools import PoolAction, PoolStep
from netplug_core.operator.report import Reason, Report, conditions_of
from netplug_core.operator.state import (
    APPLIED_HASH,
    Action,
    ApplyObject,
    ChangePool,
    DeleteObject,
    ObjectRef,
    SetFinalizer,
    describe,
    marked,
    needs_apply,
    platform_prefixes,
    service_prefixes,
)
from netplug_core.resources.installation import INSTALLATION_API_VERSION
from tests.harness.installations import make_pool
from tests.harness.operator_cluster import SHIPPED

POOL = make_pool("10.0.0.0/16")


def test_the_time_of_a_condition_changes_with_its_status_only() -> None:
    first = conditions_of(Report(), {"metadata": {"generation": 1}}, "t1")
    second = conditions_of(Report(notes=("x",)), {"metadata": {"generation": 2}, "status": {"conditions": first}}, "t2")
    assert [one["lastTransitionTime"] for one in second] == ["t1", "t1", "t1"]
    assert [one["observedGeneration"] for one in second] == [2, 2, 2]
    report = Report(degraded=(Reason.INVALID, "no"))
    third = conditions_of(report, {"status": {"conditions": second}}, "t3")
    assert [(one["type"], one["status"], one["lastTransitionTime"]) for one in third] == [
        ("Ready", "False", "t3"),
        ("Progressing", "False", "t1"),
        ("Degraded", "True", "t3"),
    ]


def test_what_is_left_out_changes_the_hash() -> None:
    one = marked({"kind": "A", "metadata": {"name": "a"}, "x": 1, "y": 2})
    other = marked({"kind": "A", "metadata": {"name": "a"}, "x": 1})
    assert find_text(one, "metadata", "annotations", APPLIED_HASH) != find_text(
        other, "metadata", "annotations", APPLIED_HASH
    )
    assert needs_apply(one, other)
    assert not needs_apply({**one, "z": 3}, one)
    assert needs_apply(None, one)


def test_the_plurals_are_those_of_the_api() -> None:
    kinds = ("ClusterRoleBinding", "DaemonSet", "CustomResourceDefinition")
    plurals = [ObjectRef("v1", kind, "a").plural for kind in kinds]
    assert plurals == ["clusterrolebindings", "daemonsets", "customresourcedefinitions"]


def test_the_plurals_of_own_kinds_are_those_of_their_definitions() -> None:
    found = [definition["spec"]["names"] for definition in SHIPPED.operator_definitions]  # type: ignore[index]
    kinds = ["Installation", "NetplugStatus", "APIServer", "FlowLogAPI", "FlowLogViewer"]
    assert [names["kind"] for names in found] == kinds
    for names in found:
        assert ObjectRef(INSTALLATION_API_VERSION, names["kind"], "default").plural == names["plural"]


@pytest.mark.parametrize(
    "config, prefixes",
    [
        (None, []),
        ({"data": {"a": "x: 1"}}, []),
        ({"data": {"a": "b:\n  podSubnet: 10.0.0.0/16"}}, ["10.0.0.0/16"]),
        ({"data": {"a": 'podSubnet: "10.0.0.0/16, fd00::/56"'}}, ["10.0.0.0/16", "fd00::/56"]),
        ({"data": {"a": "podSubnet: none"}}, []),
        ({"data": {"a": 1}}, []),
    ],
)
def test_the_prefixes_of_kubeadm(config: dict[str, object] | None, prefixes: list[str]) -> None:
    assert [str(prefix) for prefix in platform_prefixes(config)] == prefixes


def test_the_addresses_of_services_of_kubeadm() -> None:
    config = {"data": {"a": "networking:\n  podSubnet: 10.0.0.0/16\n  serviceSubnet: 10.96.0.0/12\n"}}
    assert [str(prefix) for prefix in service_prefixes(config)] == ["10.96.0.0/12"]


@pytest.mark.parametrize(
    "action, text",
    [
        (ApplyObject({"kind": "A", "metadata": {"name": "a", "namespace": "n"}}), "apply A n/a"),
        (DeleteObject(ObjectRef("v1", "A", "a"), "u"), "delete A a"),
        (
            ChangePool(PoolStep(action=PoolAction.CREATE, pool=POOL, reason="why")),
            "create IPPool existing: why",
        ),
        (SetFinalizer("default", "u", is_held=True), "hold Installation default"),
        (SetFinalizer("default", "u", is_held=False), "release Installation default"),
    ],
)
def test_an_action_in_words(action: Action, text: str) -> None:
    assert describe(action) == text
