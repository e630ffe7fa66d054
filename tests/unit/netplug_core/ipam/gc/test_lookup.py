"""The answers to live lookups, and the lookups that failed."""

from netplug_core.ipam.gc.candidates import LookupResult
from netplug_core.orchestrator.model import PodName

WEB = PodName("default", "web")


def test_the_text_names_each_failed_lookup_and_its_error() -> None:
    result = LookupResult(pods={}, gone=frozenset(), unanswered={WEB: "forbidden", "node-a": "timed out"})
    assert result.unanswered_text(["node-b"]) == ""
    assert result.unanswered_text([WEB, "node-a", "node-b"]) == (
        "pod default/web could not be looked up: forbidden; node node-a could not be looked up: timed out"
    )
