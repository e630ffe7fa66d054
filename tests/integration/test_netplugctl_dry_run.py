"""``netplugctl --dry-run`` on every store: the answer of the real run, and not one record changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Prefix
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE, Block
from netplug_core.records import Create, Kind, List, Record
from netplug_core.resources.kinds import KINDS
from tests.harness.tool_stores import CRD_MODES, SERVERS, make_tool_user
from tests.harness.tool_user import ToolUser, document

POOLS = document("IPPool", "main", "cidr: 10.68.0.0/16") + document("IPPool", "spare", "cidr: 10.69.0.0/16")
CHANGED = document("IPPool", "main", "cidr: 10.68.0.0/16, natOutgoing: true") + document(
    "IPPool", "new", "cidr: 10.70.0.0/16"
)
OVERLAPPING = document("IPPool", "new", "cidr: 10.69.128.0/17")
STORED: tuple[Kind[object], ...] = (*(row.kind for row in KINDS), BLOCK, AFFINITY, HANDLE)


@pytest.fixture(params=("sqlite", *SERVERS))
def user(request: pytest.FixtureRequest, tmp_path: Path) -> ToolUser:
    made = make_tool_user(request, tmp_path, request.param)
    assert made.run_command("apply", "-f", "-", stdin=POOLS).status == 0
    block = Block.new(Prefix.parse("10.68.0.0/26"), owner="host:node-a", now_ns=1)
    with made.store() as store:
        store.commit([Create(block.key, block)], deadline=made.deadline)
    return made


def records(user: ToolUser) -> list[Record[object]]:
    """Every record, with its revision."""
    queries = [List(kind) for kind in STORED]
    with user.store() as store:
        snapshot = store.read(queries, deadline=user.deadline)
    return [record for query in queries for record in snapshot.list(query)]


@pytest.mark.parametrize(
    "argv, text, effects",
    [
        (
            ["apply", "-f", "-"],
            CHANGED,
            {"would change IPPool(main)": "updated", "would create IPPool(new)": "created"},
        ),
        (["create", "-f", "-"], OVERLAPPING, {}),
        (["replace", "-f", "-"], POOLS, {"would not change IPPool(main)": "unchanged"}),
        (["delete", "pool", "main", "nope"], "", {"would delete IPPool(main)": "deleted"}),
        (["patch", "pool", "main", "-p", '{"spec": {"disabled": true}}'], "", {"would change IPPool(main)": "updated"}),
    ],
    ids=["apply", "create", "replace", "delete", "patch"],
)
def test_a_dry_run_changes_nothing_and_the_real_run_does_what_it_said(
    user: ToolUser, argv: list[str], text: str, effects: dict[str, str]
) -> None:
    before = records(user)
    dry = user.run_command(*argv, "--dry-run", stdin=text)
    assert records(user) == before
    real = user.run_command(*argv, stdin=text)
    assert dry.status == real.status
    assert dry.err.replace("would fail to", "failed to") == real.err
    for would, did in effects.items():
        assert would in dry.out.splitlines()
        assert f"{would.split()[-1]} {did}" in real.out.splitlines()


def test_a_label_would_be_set(user: ToolUser) -> None:
    before = records(user)
    result = user.run_command("label", "pool", "main", "rack=r1", "--dry-run")
    assert (result.status, result.out) == (0, "would set label rack on IPPool main; nothing was written\n")
    assert records(user) == before


@pytest.mark.apiserver
@pytest.mark.parametrize("mode", CRD_MODES)
def test_what_the_cluster_keeps_by_itself_is_refused_as_in_the_real_run(
    mode: CrdMode, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    user = make_tool_user(request, tmp_path, mode)
    profile = document("Profile", "web", "labelsToApply: {a: b}")
    node = document("Node", "node-that-is-not-there", "")
    for text in (profile, node):
        dry = user.run_command("create", "-f", "-", "--dry-run", stdin=text)
        real = user.run_command("create", "-f", "-", stdin=text)
        assert (dry.status, dry.out) == (real.status, real.out) == (1, "")
        assert dry.err.replace("would fail to", "failed to") == real.err
        assert "is not supported" in dry.err


def test_a_missing_sqlite_file_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "lib" / "netplug.db"
    user = ToolUser(tmp_path, {"datastoreType": "sqlite", "sqlitePath": str(path)})
    result = user.run_command("create", "-f", "-", "--dry-run", stdin=POOLS)
    assert result.status == 0
    assert result.out.splitlines()[:2] == ["would create IPPool(main)", "would create IPPool(spare)"]
    assert not path.parent.exists()
    refused = user.run_command("replace", "-f", "-", "--dry-run", stdin=POOLS)
    assert refused.status == 1
    assert "no such file" in refused.err
