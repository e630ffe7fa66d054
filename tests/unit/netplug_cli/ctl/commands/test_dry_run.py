"""``--dry-run``: each verb decides as in the real run, says what would happen, and commits nothing."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Ordinal, Prefix
from netplug_core.clock import Deadline
from netplug_core.ipam.model import Affinity, AffinityState, Attribute, Block, affinity_key
from netplug_core.records import Create, List, Record
from netplug_core.resources.kinds import KINDS, key_of
from netplug_core.testing.clock import ManualClock
from tests.harness.ctl import ToolHarness
from tests.harness.resources import NODE, make_pool

HEAD = "apiVersion: projectnetplug.org/v3\nkind: {kind}\nmetadata: {metadata}\nspec: {spec}\n"
REAL_WORDS = {
    "would create": "created",
    "would change": "updated",
    "would not change": "unchanged",
    "would delete": "deleted",
    "would repair": "repaired",
}


@pytest.fixture(params=(MemoryMode.ATOMIC, MemoryMode.KUBE_LIKE), ids=lambda mode: mode.value)
def tool(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> ToolHarness:
    """A tool on a store with the pools a and b, a node, and a block of it in a."""
    clock = ManualClock()
    harness = ToolHarness(tmp_path, capsys, clock, MemoryDatastore(request.param, clock=clock))
    assert harness.run_command("create", "-f", harness.write_pools(("a", "10.0.0.0/16"), ("b", "10.1.0.0/16"))) == 0
    prefix = Prefix.parse("10.0.0.0/26")
    block = Block.new(prefix, owner="host:node-a", now_ns=1)
    affinity = Affinity(state=AffinityState.CONFIRMED)
    harness.store_records(
        Create(key_of(NODE), NODE), Create(block.key, block), Create(affinity_key("host:node-a", prefix), affinity)
    )
    return harness


def document(kind: str, name: str, spec: str = "{}", metadata: str = "") -> str:
    """One document; ``metadata`` is more of it."""
    return HEAD.format(kind=kind, metadata=f"{{name: {name}{metadata and ', '}{metadata}}}", spec=spec)


def records(harness: ToolHarness) -> Iterator[Record[object]]:
    deadline = Deadline.after(harness.clock, 5)
    for row in KINDS:
        query = List(row.kind)
        yield from harness.store.read([query], deadline=deadline).list(query)


FILES = {
    "new": document("IPPool", "c", "{cidr: 10.2.0.0/16}"),
    "changed": document("IPPool", "a", "{cidr: 10.0.0.0/16, natOutgoing: true}"),
    "same": document("IPPool", "a", "{cidr: 10.0.0.0/16}"),
    "overlapping": document("IPPool", "c", "{cidr: 10.1.128.0/17}"),
    "invalid": document("IPPool", "c", "{cidr: 10.2.0.0/30}"),
    "immutable": document("IPPool", "a", "{cidr: 10.9.0.0/16}"),
    "outdated": document("IPPool", "a", "{cidr: 10.0.0.0/16}", "resourceVersion: '7'"),
    "not ours": document("ClusterInformation", "default"),
    "two": document("IPPool", "c", "{cidr: 10.2.0.0/16}") + "---\n" + document("IPPool", "d", "{cidr: 10.2.0.0/24}"),
    "twice": document("IPPool", "c", "{cidr: 10.2.0.0/16}") + "---\n" + document("IPPool", "c", "{cidr: 10.2.0.0/16}"),
    "mixed": document("IPPool", "b", "{cidr: 10.1.0.0/16}") + "---\n" + document("Node", "node-a"),
    "profile": document("Profile", "web"),
}
NAMED = [
    ["delete", "pool", "a"],
    ["delete", "pool", "a", "b"],
    ["delete", "pool", "a", "nope"],
    ["delete", "node", "node-a"],
    ["delete", "clusterinfo", "default"],
    ["patch", "pool", "a", "-p", '{"spec": {"disabled": true}}'],
    ["patch", "pool", "a", "-p", '{"spec": {"blockSize": 28}}'],
    ["patch", "pool", "nope", "-p", "{}"],
    ["patch", "pool", "a", "-p", "{}"],
    ["label", "node", "node-a", "zone=z"],
    ["label", "node", "node-a", "rack=b"],
    ["label", "node", "node-a", "rack=b", "--overwrite"],
    ["label", "node", "node-a", "rack", "--remove"],
    ["label", "node", "node-a", "zone", "--remove"],
]
RUNS = [*([verb, "-f", name] for verb in ("create", "apply", "replace", "delete") for name in FILES), *NAMED]


def as_real(text: str) -> str:
    """What a dry run printed, in the words of the real run."""
    for would, did in REAL_WORDS.items():
        text = re.sub(rf"^{would} (\S+)$", rf"\1 {did}", text, flags=re.MULTILINE)
    text = text.replace("; nothing was written", "").replace("would fail to", "failed to")
    text = re.sub(r"^Dry run: would", "Successfully would", text, flags=re.MULTILINE)
    text = re.sub(r"^would (set|update|remove) label", r"Successfully would \1 label", text, flags=re.MULTILINE)
    words = {"create": "created", "apply": "applied", "replace": "replaced", "delete": "deleted", "patch": "patched",
             "set": "set", "update": "updated", "remove": "removed"}  # fmt: skip
    return re.sub(r"would (\w+)", lambda found: words[found[1]], text)


@pytest.mark.parametrize("argv", RUNS, ids=" ".join)
def test_a_dry_run_says_what_the_real_run_then_does(tool: ToolHarness, argv: list[str]) -> None:
    words = [tool.write_file(FILES[word], "given.yaml") if word in FILES else word for word in argv]
    before, commits, waited = list(records(tool)), tool.store.calls.commits, tool.clock.monotonic()
    status = tool.run_command(*words, "--dry-run")
    assert (list(records(tool)), tool.store.calls.commits) == (before, commits)
    assert tool.clock.monotonic() == waited, "a dry run waits for no assignment"
    out, err = tool.out, tool.err
    assert (status, as_real(out), as_real(err)) == (tool.run_command(*words), tool.out, tool.err)
    assert "would" in out + err or (tool.out, status) == ("", 1)


def test_each_object_and_the_end_say_that_nothing_was_written(tool: ToolHarness) -> None:
    file = tool.write_file(
        "---\n".join((FILES["new"], FILES["changed"], document("IPPool", "b", "{cidr: 10.1.0.0/16}")))
    )
    assert tool.run_command("apply", "-f", file, "--dry-run") == 0
    assert tool.out == (
        "would create IPPool(c)\nwould change IPPool(a)\nwould not change IPPool(b)\n"
        "Dry run: would apply 3 'IPPool' resource(s); nothing was written\n"
    )
    assert tool.run_command("create", "-f", tool.write_file(FILES["two"]), "--dry-run") == 1
    assert tool.out.splitlines() == [
        "would create IPPool(c)",
        "Partial success: would create 1 out of 2 'IPPool' resources; nothing was written",
    ]
    assert "overlaps" in tool.err
    assert tool.run_command("create", "-f", tool.write_file(FILES["overlapping"]), "--dry-run") == 1
    assert tool.err.startswith("netplugctl: would fail to create 'IPPool' resource: ")
    assert tool.run_command("label", "node", "node-a", "zone=z", "--dry-run") == 0
    assert tool.out == "would set label zone on Node node-a; nothing was written\n"


def test_a_dry_run_initialises_no_datastore(harness: ToolHarness) -> None:
    assert harness.run_command("create", "-f", harness.write_pools(("a", "10.0.0.0/16")), "--dry-run") == 0
    assert harness.out.startswith("would create IPPool(a)\n")
    assert (list(records(harness)), harness.store.calls.commits) == ([], 0)


def test_the_deletion_of_a_pool_in_use_warns(tool: ToolHarness) -> None:
    """The block of the node has an address in use."""
    prefix = Prefix.parse("10.0.1.0/26")
    block = Block.new(prefix, owner="host:node-a", now_ns=1).assign((Ordinal(0),), Attribute(handle="h"))
    tool.store_records(Create(block.key, block))
    assert tool.run_command("delete", "pool", "a", "--dry-run") == 0
    assert "addresses of it that are still held: 1" in tool.err


def test_a_damaged_pool_would_be_repaired(tool: ToolHarness) -> None:
    key = make_pool("10.0.0.0/16", "a").key
    tool.damage[key] = b"{}"
    for argv in (["replace", "-f", tool.write_file(FILES["same"])], ["delete", "pool", "a"]):
        assert tool.run_command(*argv, "--dry-run") == 0, tool.err
        assert tool.out.startswith(("would repair IPPool(a)\n", "would delete IPPool(a)\n"))
        assert key in tool.damage


def test_what_others_change_meanwhile_is_read_by_the_next_run(tool: ToolHarness) -> None:
    file = tool.write_file(FILES["new"])
    assert tool.run_command("create", "-f", file, "--dry-run") == 0
    assert tool.run_command("create", "-f", file) == 0
    assert tool.run_command("create", "-f", file, "--dry-run") == 1
    assert "resource already exists: IPPool(c)" in tool.err


def test_a_locked_datastore_is_judged_as_it_is(tool: ToolHarness) -> None:
    tool.set_locked()
    commits = tool.store.calls.commits
    assert tool.run_command("apply", "-f", tool.write_file(FILES["new"]), "--dry-run") == 0
    assert tool.store.calls.commits == commits


def test_an_unavailable_datastore_fails(tool: ToolHarness) -> None:
    tool.is_unavailable = True
    assert tool.run_command("apply", "-f", tool.write_file(FILES["new"]), "--dry-run") == 1
    assert tool.err == "netplugctl: /nowhere: unable to open the file\n"
