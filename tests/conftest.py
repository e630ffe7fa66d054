"""What every test run shares: the Hypothesis profiles, the meaning of a skip in CI, the workers, and what is measured.

`make test` runs the workers of pytest-xdist with ``--dist loadgroup``. Tests of one group run in one worker, one after
the other; any other test runs in whichever worker is free.
"""

import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Generator
from functools import _lru_cache_wrapper, cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

import netplug_core

LONGEST = {
    "test_allocator_machine": 3,
    "test_images": 3,
    "test_collector_machine": 3,
    "test_cni_killed": 2,
    "test_cni_race": 2,
    "test_containerd": 2,
    "test_podman": 2,
    "test_quickstart_kubernetes": 2,
    "test_lab": 2,
    "test_outage_drill": 2,
    "test_cni_gates": 1,
    "test_contention": 1,
    "test_log_rotation": 1,
    "test_your_own_backend": 1,
}
"""Modules with tests that take tens of seconds each, the longest first; the groups of the API servers take minutes."""

SECOND_API_SERVER = {
    "test_cni_attachment",
    "test_cni_killed",
    "test_every_datastore",
    "test_kubernetes_conformance",
    "test_kubernetes_lab",
    "test_netplugctl_failures",
    "test_netplugctl_servers",
    "test_node_process_kubernetes",
    "test_operator_rights",
    "test_outage_drill",
    "test_secrets",
}
"""Modules whose tests share a second API server: about half of the time that tests on an API server take."""

CROWDS = {"test_cni_race", "test_outage_drill"}
"""Modules whose tests run a hundred processes at once in a deep run: one after another then, beside those of the second
API server, which some of them need."""

SHARED_SETUP = {
    "test_bundle",
    "test_install",
    "test_manifests",
    "test_method_cache",
    "test_node_service",
    "test_site",
    "test_tooling",
    "test_your_own_backend",
}
"""Modules whose tests share what takes seconds to make: each worker that runs one of them would make it again."""

OWN_SERVERS = {"test_lab"}
"""Modules each of whose tests starts servers of its own, within its own namespaces: any worker may run it."""

NOT_MEASURED = {
    "test_etcd_allocator",
    "test_kubernetes_allocator",
    "test_strategies",
    "test_your_own_backend",
}
"""Modules that run for long in code that other tests cover: measuring their coverage doubles their time. So do all
property tests: what a law reaches by chance, a test of a case has to show.
"""

PROPERTY_TESTS = Path(__file__).parent / "property"

DEPTHS = re.compile(r"\b(IS_DEEP|FAULT_MODES|example_counts|tool_stores|plugin_datastores)\b")
"""What the night has more of. A module that names one of these has tests that try more then."""

IS_DEEP = os.environ.get("NETPLUG_HYPOTHESIS_PROFILE") == "nightly"
IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}

# The duration of an example says nothing about the property: the machine may be busy.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

settings.register_profile("dev", PATIENT, max_examples=30, stateful_step_count=20)
# The same examples each time: a commit passes or it does not. A night draws others.
settings.register_profile("ci", PATIENT, max_examples=40, stateful_step_count=30, derandomize=True)
settings.register_profile("nightly", PATIENT, max_examples=300, stateful_step_count=50)
settings.load_profile(os.environ.get("NETPLUG_HYPOTHESIS_PROFILE") or ("ci" if IN_CI else "dev"))


def fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure that keeps the reason: CI has to provide what the tests need."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"skipped, which CI=true does not allow: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail skipped tests in CI."""
    report = yield
    if IN_CI:
        fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail skipped modules in CI."""
    report = yield
    if IN_CI:
        fail_if_skipped(report)
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Let the marker ``no_cover`` work in the workers of pytest-xdist.

    pytest-cov begins to measure in a worker before it knows that it is one, and then begins again. Whenever the second
    measurement pauses the first one would go on, at the same cost.
    """
    if not session.config.pluginmanager.hasplugin("_cov") or not hasattr(session.config, "workerinput"):
        return
    from coverage import Coverage

    measuring = Coverage.current()
    assert measuring is not None
    while (running := Coverage.current()) is not None:
        running.stop()
    measuring.start()


def find_group(item: pytest.Item) -> str:
    """The group of a test: one for each server or other costly thing that tests share; empty for all others."""
    module = item.path.stem
    if module in OWN_SERVERS:
        return ""
    is_crowd = IS_DEEP and module in CROWDS
    if is_crowd or item.get_closest_marker("apiserver"):
        return "apiserver-2" if is_crowd or module in SECOND_API_SERVER else "apiserver-1"
    if item.get_closest_marker("runtimes"):
        return f"runtimes:{item.location[0]}"
    if item.get_closest_marker("etcd"):
        return f"etcd:{item.location[0]}"
    if module in SHARED_SETUP:
        return item.location[0]
    return ""


def is_deeper(item: pytest.Item) -> bool:
    """Whether a deep run has the test alone, or tries more in it; all else it would repeat as the day has it."""
    if any(item.get_closest_marker(name) for name in ("night", "stress", "cluster")):
        return True
    return isinstance(item, pytest.Function) and (is_hypothesis_test(item.obj) or names_a_depth(item.path))


@cache
def names_a_depth(path: Path) -> bool:
    """Whether a module of tests asks how deep the run is."""
    return DEPTHS.search(path.read_text(encoding="utf-8")) is not None


def import_core() -> None:
    """Import every module of the core, so that the lines of its definitions are measured.

    Some are imported within functions only, and the first test that calls one may be one that is not measured.
    """
    for module in pkgutil.walk_packages(netplug_core.__path__, "netplug_core."):
        importlib.import_module(module.name)


def forget_results() -> None:
    """Clear the caches of the core's functions, so that a test that is measured computes their results again."""
    for name, module in tuple(sys.modules.items()):
        if name.startswith("netplug_core."):
            for value in vars(module).values():
                if isinstance(value, _lru_cache_wrapper):
                    value.cache_clear()


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Let no test that is not measured hide lines from the next ones."""
    if item.config.getoption("cov_source", None) and item.get_closest_marker("no_cover"):
        forget_results()


def find_length(item: pytest.Item) -> int:
    """How early a test starts: what takes longest is never left for the end."""
    return 4 if find_group(item).startswith("apiserver") else LONGEST.get(item.path.stem, 0)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--deeper``: what a night adds to a day."""
    parser.addoption("--deeper", action="store_true", help="only tests in which a deep run tries more")


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put tests into groups, and begin with those that take longest, so that all workers end at one time."""
    if config.getoption("cov_source", None):
        import_core()
    if config.getoption("deeper"):
        config.hook.pytest_deselected(items=[item for item in items if not is_deeper(item)])
        items[:] = filter(is_deeper, items)
    for item in items:
        if item.path.stem in NOT_MEASURED or item.path.parent == PROPERTY_TESTS:
            item.add_marker("no_cover")
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            if group := find_group(item):
                item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=find_length, reverse=True)
