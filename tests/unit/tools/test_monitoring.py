"""The rules and the dashboard ask for metrics that the processes publish, and the pages explain all of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.harness.metrics import series_names
from tests.harness.published_metrics import published_by_controllers, published_by_node, published_by_operator
from tools.monitoring import ALERTS, PANELS, POOL_USAGE, monitoring_files

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "monitoring.md"
QUERIES = {
    **{alert.name: alert.expression for alert in ALERTS},
    **{f"{panel.title} ({at})": query for panel in PANELS for at, (query, _legend) in enumerate(panel.queries)},
}
PUBLISHED = {
    "node.md": published_by_node(),
    "operator.md": published_by_operator(),
    "controllers.md": published_by_controllers(),
}
_OF_ALL_PROCESSES = ("process_", "python_")
_OF_EACH_TARGET = {"instance", "job"}  # labels that Prometheus adds
_MEMBERS_OF_HISTOGRAMS = re.compile(r"_(bucket|count|sum)$")


@cache
def published() -> frozenset[str]:
    return frozenset().union(*(series_names(text) for text in PUBLISHED.values()))


def tables(page: str) -> dict[str, frozenset[str]]:
    """The metrics that the tables of a page list, with their labels."""
    found, labels = dict[str, frozenset[str]](), frozenset[str]()
    for names, with_labels in re.findall(
        r"^\| (`netplug_(?:node|operator|controllers|policy)_[^|]+?) \|([^|]*)\|",
        (DOCS / page).read_text(),
        re.MULTILINE,
    ):
        if with_labels.strip() != "the same":
            labels = frozenset(re.findall(r"`(\w+)`", with_labels))
        found |= dict.fromkeys(re.findall(r"`(netplug_\w+)`", names), labels)
    return found


def all_tables() -> dict[str, frozenset[str]]:
    """The same of all pages."""
    return {name: labels for page in PUBLISHED for name, labels in tables(page).items()}


def metric_of(series: str) -> str:
    """As tables have it: a histogram is one metric."""
    return _MEMBERS_OF_HISTOGRAMS.sub("", series)


@pytest.mark.parametrize("page, text", PUBLISHED.items(), ids=PUBLISHED)
def test_a_page_lists_every_metric_of_its_process_and_no_other(page: str, text: bytes) -> None:
    of_the_process = {name for name in series_names(text) if not name.startswith(_OF_ALL_PROCESSES)}
    assert set(tables(page)) == {metric_of(name) for name in of_the_process}


def test_the_labels_of_a_page_are_those_of_the_series_that_have_a_value() -> None:
    listed = all_tables()
    for line in b"".join(PUBLISHED.values()).decode().splitlines():
        if line.startswith("netplug_"):
            name, _brace, labels = line.partition(" ")[0].partition("{")
            assert set(re.findall(r'(\w+)="', labels)) - {"le"} == listed[metric_of(name)], line


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_asks_for_series_and_labels_that_exist(name: str) -> None:
    query = QUERIES[name].replace(POOL_USAGE, "netplug_node_pool_addresses")
    listed = all_tables()
    asked = set(re.findall(r"\b(?:netplug|process)_\w+", query))
    assert asked
    assert asked <= published()
    labels = set(re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', query))
    for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", query):
        labels |= {label.strip() for label in group.split(",")}
    known = {label for series in asked for label in listed.get(metric_of(series), ())}
    assert labels - _OF_EACH_TARGET - {"le"} <= known


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_message_names_only_labels_that_its_query_leaves(alert: object) -> None:
    assert isinstance(alert, type(ALERTS[0]))
    named = set(re.findall(r"\$labels\.(\w+)", alert.summary))
    listed = all_tables()
    grouped = re.findall(r"\b(?:sum|max|min|count) ?by \(([^)]*)\)", alert.expression)
    if alert.expression.startswith(("sum(", "max(", "count(")):
        left = set[str]()
    elif grouped:
        left = {label.strip() for label in grouped[0].split(",")}
    else:
        series = re.findall(r"\b(?:netplug|process)_\w+", alert.expression)
        left = {label for one in series for label in listed.get(metric_of(one), ())} | _OF_EACH_TARGET
    if POOL_USAGE in alert.expression:
        left = {"datastore", "pool"}
    assert named <= left


def test_every_alert_has_its_section_with_what_it_means_and_what_to_do() -> None:
    text = PAGE.read_text()
    sections = dict(re.findall(r"^### (Netplug\w+)\n(.*?)(?=^##|\Z)", text, re.DOTALL | re.MULTILINE))
    assert list(sections) == [alert.name for alert in ALERTS]
    for alert in ALERTS:
        what, do = sections[alert.name].partition("**Do:**")[::2]
        assert alert.severity.capitalize() in what, alert.name
        assert f"`{alert.lasts}`" in what, alert.name
        assert len(do.split()) >= 10, alert.name


def test_names_are_one_of_a_kind_and_panels_do_not_overlap() -> None:
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)
    files = dict(monitoring_files())
    panels = files["monitoring/grafana-dashboard.json"]["panels"]
    assert isinstance(panels, list)
    cells = [cell for panel in panels for cell in cells_of(panel["gridPos"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _y in cells) < 24


def cells_of(place: Mapping[str, int]) -> list[tuple[int, int]]:
    return [(place["x"] + dx, place["y"] + dy) for dx in range(place["w"]) for dy in range(place["h"])]


def test_the_object_for_the_prometheus_operator_has_the_same_rules() -> None:
    files = dict(monitoring_files())
    assert files["monitoring/prometheusrule.yaml"]["spec"] == files["monitoring/prometheus-rules.yaml"]
