"""What every test run shares: the Hypothesis profiles, and what a skip means in CI."""

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}

# Machines are shared and slow at times: how long an example took says nothing about the law it tries.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

settings.register_profile("dev", PATIENT, max_examples=30, stateful_step_count=20)
settings.register_profile("ci", PATIENT, max_examples=200, stateful_step_count=40)
settings.register_profile("nightly", PATIENT, max_examples=5000, stateful_step_count=80)
settings.load_profile(os.environ.get("NETPLUG_HYPOTHESIS_PROFILE") or ("ci" if IN_CI else "dev"))


def fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure that keeps the reason: in CI, missing means are a fault of CI."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"skipped, which CI=true does not allow: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Judge the skips of tests."""
    report = yield
    if IN_CI:
        fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Judge the skips of whole modules."""
    report = yield
    if IN_CI:
        fail_if_skipped(report)
    return report
