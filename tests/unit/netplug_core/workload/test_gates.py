"""Which answers make a readiness gate ready, and how gates and answers are shown."""

import pytest

from netplug_core.workload import ProbeResult, gates_of, redact_url


@pytest.mark.parametrize(
    "status, is_ready",
    [
        (0, False),
        (100, False),
        (199, False),
        (200, True),
        (204, True),
        (302, True),
        (399, True),
        (400, False),
        (500, False),
    ],
)
def test_a_gate_is_ready_with_a_status_from_200_to_399(status: int, *, is_ready: bool) -> None:
    assert ProbeResult(status=status).is_ready is is_ready


def test_a_result_is_shown_as_its_status_or_its_problem() -> None:
    assert [str(ProbeResult(status=503)), str(ProbeResult(problem="Connection refused"))] == [
        "status 503",
        "Connection refused",
    ]


def test_a_gate_is_shown_with_its_place_and_without_secrets() -> None:
    assert [str(gate) for gate in gates_of(("http://a/b", "https://c/d?token=t"))] == [
        "readiness_gates[0] http://a/b",
        "readiness_gates[1] https://c/d?…",
    ]
    assert redact_url("http://user:pass/word@host/") == "…"
