"""The status of the components: nothing serves them, and a viewer needs an API."""

from __future__ import annotations

import pytest

from netplug_core.installation.components import ComponentKind
from netplug_core.operator.report import COMPONENT_REFS, pending_statuses
from netplug_core.operator.state import Json

API, VIEWER = ComponentKind.FLOW_LOG_API, ComponentKind.FLOW_LOG_VIEWER


def component(kind: ComponentKind, **members: object) -> Json:
    return {"kind": kind.value, "metadata": {"name": "default", "uid": "u1", "generation": 3}, **members}


def conditions(*kinds: ComponentKind) -> dict[str, dict[str, tuple[str, str, str]]]:
    """The status, reason and message of each condition, of each component."""
    found = {}
    for one, status in pending_statuses({kind: component(kind) for kind in kinds}, "t1"):
        listed = status["conditions"]
        assert isinstance(listed, list)
        found[str(one["kind"])] = {each["type"]: (each["status"], each["reason"], each["message"]) for each in listed}
    return found


@pytest.mark.parametrize("kind", list(ComponentKind))
def test_nothing_serves_it(kind: ComponentKind) -> None:
    found = conditions(*{API, kind})[kind.value]
    status, reason, message = found.pop("Ready")
    assert (status, reason) == ("False", "NotImplemented")
    assert str(message).startswith("nothing in this release ")
    assert found == {"Progressing": ("False", "Unknown", ""), "Degraded": ("False", "Unknown", "")}


def test_check_96_a_viewer_without_an_api_is_degraded() -> None:
    (found,) = conditions(VIEWER).values()
    assert found["Degraded"] == (
        "True",
        "ResourceNotFound",
        "there is no FlowLogAPI default, whose flow logs the viewer would show; create it, or delete the viewer",
    )
    assert found["Ready"][:2] == ("False", "NotImplemented")


def test_a_status_that_is_right_is_not_written_again() -> None:
    ((_, status),) = pending_statuses({API: component(API)}, "t1")
    assert not list(pending_statuses({API: component(API, status=status)}, "t2"))
    later = {**component(API, status=status), "metadata": {"name": "default", "generation": 4}}
    ((_, again),) = pending_statuses({API: later}, "t2")
    assert again["conditions"][0]["lastTransitionTime"] == "t1"  # type: ignore[index]
    assert again["conditions"][0]["observedGeneration"] == 4  # type: ignore[index]


def test_the_names_of_the_objects() -> None:
    assert {(str(ref), ref.plural) for ref in COMPONENT_REFS.values()} == {
        ("APIServer default", "apiservers"),
        ("FlowLogAPI default", "flowlogapis"),
        ("FlowLogViewer default", "flowlogviewers"),
    }
