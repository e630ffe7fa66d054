"""What is said of pods and nodes, and what is not."""

from netplug_core.ipam.gc.lookup import KnownPod, LookupResult, PodName

WEB = PodName("default", "web")


def test_a_pod_is_known_by_both_names() -> None:
    facts = KnownPod(namespace="default", name="web", node="node-a")
    assert facts.pod == WEB
    assert str(WEB) == "default/web"
    assert sorted([PodName("b", "a"), WEB, PodName("b", "A")]) == [PodName("b", "A"), PodName("b", "a"), WEB]


def test_silence_names_what_was_not_answered_and_why() -> None:
    statement = LookupResult(pods={}, gone=frozenset(), unanswered={WEB: "forbidden", "node-a": "timed out"})
    assert statement.unanswered_text(["node-b"]) == ""
    assert statement.unanswered_text([WEB, "node-a", "node-b"]) == (
        "pod default/web could not be looked up: forbidden; node node-a could not be looked up: timed out"
    )
