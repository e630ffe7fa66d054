"""Which API group a cluster has."""

from __future__ import annotations

import pytest

from netplug_core.operator.state import ClusterMode, ModeEvidence, ModeRefused, decide_mode

V1, V3 = ClusterMode.V1, ClusterMode.V3


def evidence(asked: ClusterMode | None, served: set[ClusterMode], recorded: ClusterMode | None) -> ModeEvidence:
    return ModeEvidence(asked=asked, served=frozenset(served), recorded=recorded)


@pytest.mark.parametrize(
    "asked, served, recorded, mode",
    [
        (None, set(), None, V1),
        (V3, set(), None, V3),
        (None, {V1}, None, V1),
        (None, {V3}, None, V3),
        (None, {V1, V3}, None, V1),
        (V3, {V3}, V3, V3),
        (None, set(), V3, V3),
        (None, {V1, V3}, V1, V1),
    ],
)
def test_the_mode(
    asked: ClusterMode | None, served: set[ClusterMode], recorded: ClusterMode | None, mode: ClusterMode
) -> None:
    assert decide_mode(evidence(asked, served, recorded)) is mode


@pytest.mark.parametrize(
    "asked, served, recorded, text",
    [
        (V3, {V1}, None, "NETPLUG_API_GROUP: v3 is not accepted; the cluster has v1, with its data"),
        (V3, set(), V1, "NETPLUG_API_GROUP: v3 is not accepted; the cluster has v1"),
        (V1, {V3}, V3, "NETPLUG_API_GROUP: v1 is not accepted; the cluster has v3"),
        (None, {V3}, V1, "definitions of the cluster: v3 is not accepted; this installation was made with v1"),
        (None, {V1, V3}, V3, "definitions of the cluster: v1 is not accepted; this installation was made with v3"),
    ],
)
def test_it_is_never_switched(
    asked: ClusterMode | None, served: set[ClusterMode], recorded: ClusterMode | None, text: str
) -> None:
    with pytest.raises(ModeRefused) as raised:
        decide_mode(evidence(asked, served, recorded))
    assert str(raised.value).startswith(text)


def test_the_plugin_knows_v1_by_no_group() -> None:
    assert [mode.api_group for mode in ClusterMode] == ["", "projectnetplug.org/v3"]
