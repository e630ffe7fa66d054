"""``netplugctl get`` with a label selector on every store: labels come back as they were stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.tool_stores import SERVERS, make_tool_user
from tests.harness.tool_user import ToolUser, document

POOLS = document("IPPool", "gold", "cidr: 10.68.0.0/16", "labels: {x.io/tier: gold, rack: r1}") + document(
    "IPPool", "plain", "cidr: 10.69.0.0/16", "labels: {rack: r2}"
)


@pytest.fixture(params=("sqlite", *SERVERS))
def user(request: pytest.FixtureRequest, tmp_path: Path) -> ToolUser:
    """A person whose configuration leads to an empty store."""
    return make_tool_user(request, tmp_path, request.param)


@pytest.mark.parametrize(
    "selector, names",
    [
        ("x.io/tier=gold", ["gold"]),
        ("rack in (r1,r2),!x.io/tier", ["plain"]),
        ("rack == 'r2' || has(x.io/tier)", ["gold", "plain"]),
        ("rack notin (r1,r2)", []),
    ],
)
def test_pools_are_selected_by_their_labels(user: ToolUser, selector: str, names: list[str]) -> None:
    assert user.run_command("create", "-f", "-", stdin=POOLS).status == 0
    result = user.run_command("get", "pools", "-l", selector)
    assert result.status == 0
    assert [line.split()[0] for line in result.out.splitlines()] == ["NAME", *names]
    message = f"netplugctl: no IPPool with labels that match '{selector}' found\n"
    assert result.err == ("" if names else message)
    assert [item["metadata"]["name"] for item in _items(user, selector)] == names


def _items(user: ToolUser, selector: str) -> list[dict[str, dict[str, str]]]:
    found = user.get_object("pools", "--selector", selector)["items"]
    assert isinstance(found, list)
    return found
