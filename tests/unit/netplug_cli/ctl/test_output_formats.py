"""``-o`` of every command: what it takes, and that each word of it gives what it says."""

import csv
import io
import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest
import yaml

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_cli.ctl.main import netplugctl
from netplug_core.addressing import Ordinal, Prefix
from netplug_core.ipam.model import Attribute, Block, Handle, block_key, handle_key
from netplug_core.records import Create
from tests.harness.ctl import ToolHarness

TESTS = Path(__file__).parents[3]

DOCUMENTS = frozenset({"json", "yaml", "csv"})
NAMES = frozenset({"name"})

WITHOUT = {
    "completion": "it prints a script for a shell",
    "datastore migrate export": "it prints the records in the one form that datastore migrate import reads",
    "install render": "it prints the text of files: manifests, and configurations as runtimes read them",
}
"""Commands without ``-o``, and why."""

OWN = {
    "get": "its formats are those of kubectl, with columns and templates",
    "ipam check": "it takes a FILE, as the tools that people know; json, yaml and csv are formats",
    "ipam map": "it draws: text, svg and html; ipam show --show-blocks has the numbers",
    "pool drain": "it goes on for hours and prints an event a line in JSON; YAML and CSV are for the plan",
    "pool resize": "as pool drain",
}
"""Commands whose ``-o`` takes other words, and why."""

NAMES_ONLY = frozenset({"annotate", "apply", "create", "delete", "edit", "label", "patch", "replace", "validate"})
"""Commands that take objects and say what became of them: ``get`` prints these in every format."""

POOLS = """
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {name: main, labels: {tier: web}}
spec: {cidr: 10.65.0.0/26, blockSize: 29}
---
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {name: six}
spec: {cidr: 'fd65::/120', blockSize: 126}
"""
NEW = """
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {name: new}
spec: {cidr: 10.66.0.0/24}
"""
INSTALLATION = """
apiVersion: operator.projectnetplug.org/v1
kind: Installation
metadata: {name: default}
"""
CONFLIST = '{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "netplug", "ipam": {"type": "netplug-ipam"}}]}'

IMPORTED = "ippool/main ippool/six ipamhandle/net.a ipamblock/10.65.0.0/29 ipamblock/10.65.0.56/29"
LINES = {
    "annotate": ("annotate ippool main note=x", "ippool/main"),
    "api-resources": ("api-resources", ""),
    "apply": ("apply -f {changed}", "ippool/main ippool/six"),
    "cluster status": ("cluster status", ""),
    "config view": ("config view", ""),
    "controllers status": ("controllers status", ""),
    "create": ("create -f {new}", "ippool/new"),
    "datastore migrate import": ("datastore migrate import -f {export} --dry-run", IMPORTED),
    "datastore migrate lock": ("datastore migrate lock", "clusterinformation/default"),
    "datastore migrate unlock": ("datastore migrate unlock", "clusterinformation/default"),
    "delete": ("delete ippool six", "ippool/six"),
    "describe": ("describe ippools", ""),
    "diff": ("diff -f {changed}", ""),
    "edit": ("edit ippool main", "ippool/main"),
    "explain": ("explain ippool.spec", ""),
    "install host": ("install host --bin-dir {folder}", ""),
    "install validate": ("install validate -f {installation}", ""),
    "ipam collect": ("ipam collect", ""),
    "ipam configure": (
        "ipam configure --strict-affinity=true --max-blocks-per-host 3",
        "ipamconfiguration/default",
    ),
    "ipam delete-block": ("ipam delete-block 10.65.0.56/29 --force", "10.65.0.56/29"),
    "ipam explain": ("ipam explain 10.65.0.1 --node a", ""),
    "ipam import-host-local": ("ipam import-host-local --node a --data-dir {folder}", ""),
    "ipam release": ("ipam release --ip 10.65.0.1", "10.65.0.1"),
    "ipam show": ("ipam show", ""),
    "ipam split": ("ipam split 2 --name main", "ippool/main ippool/split-main-0 ippool/split-main-1 ippool/main"),
    "label": ("label ippool main tier=shop --overwrite", "ippool/main"),
    "lint": ("lint -f {conflist}", ""),
    "patch": ("""patch ippool main -p '{{"spec": {{"disabled": true}}}}'""", "ippool/main"),
    "replace": ("replace -f {changed}", "ippool/main ippool/six"),
    "simulate": ("simulate --nodes 2 --pods-per-node 4 --pool 10.0.0.0/24 --steps 2", ""),
    "support bundle": ("support bundle -f {folder}/bundle.tar.gz --cni-conf-dir {folder}/net.d", ""),
    "uninstall host": ("uninstall host --bin-dir {folder}", ""),
    "validate": ("validate -f {changed}", "ippool/main ippool/six"),
    "version": ("version", ""),
    "wait": ("wait ippool main --for create", "ippool/main"),
}
"""A line of each command that this harness can run, and what ``-o name`` prints."""

ELSEWHERE = {
    "connectivity test": "tests/integration/test_lab_nodes.py",
    "install apply": "tests/integration/test_install_cluster.py",
    "install status": "tests/integration/test_install_cluster.py",
    "lab down": "tests/integration/test_lab.py",
    "lab status": "tests/integration/test_lab.py",
    "lab up": "tests/integration/test_lab.py",
    "migrate auto-host-endpoints": "tests/unit/netplug_cli/ctl/commands/test_migrate.py",
    "node address": "tests/unit/netplug_cli/ctl/commands/test_node.py",
    "node policy check": "tests/unit/netplug_cli/ctl/commands/test_node.py",
    "node routes": "tests/unit/netplug_cli/ctl/commands/test_node.py",
    "node status": "tests/unit/netplug_cli/ctl/commands/test_node.py",
    "policy explain": "tests/unit/netplug_cli/ctl/test_outputs.py",
    "policy show": "tests/unit/netplug_cli/ctl/test_outputs.py",
    "uninstall cluster": "tests/integration/test_install_cluster.py",
}
"""Commands that need a cluster, a lab, a node process or pods, and the tests that run them with ``-o``."""


def find_commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command below a group, as it is typed."""
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        if isinstance(found, click.Group):
            yield from find_commands(found, (*words, name))
        elif found is not None and not found.hidden:
            yield " ".join((*words, name)), found


COMMANDS: Mapping[str, click.Command] = dict(find_commands(netplugctl))


def formats_of(command: click.Command) -> frozenset[str] | None:
    """The words that ``-o`` of a command takes; empty if it takes any text, None if there is no such option."""
    for parameter in command.params:
        if "-o" in parameter.opts:
            return frozenset(parameter.type.choices) if isinstance(parameter.type, click.Choice) else frozenset()
    return None


@pytest.fixture
def tool(harness: ToolHarness) -> ToolHarness:
    """Two pools, a block with one address in use, and one without; an editor that changes a label."""
    assert harness.run_command("create", "-f", harness.write_file(POOLS)) == 0
    block = Block.new(Prefix.parse("10.65.0.0/29"), owner="host:a", now_ns=1)
    held = block.assign((Ordinal(1),), Attribute(handle="net.a"))
    empty = Block.new(Prefix.parse("10.65.0.56/29"), owner="host:a", now_ns=1)
    handle = Handle(blocks=((block.prefix, 1),))
    harness.store_records(Create(held.key, held), Create(empty.key, empty), Create(handle_key("net.a"), handle))
    script = Path(harness.write_file("#!/bin/sh\nsed -i 's/tier: web/tier: shop/' \"$1\"\n", "editor"))
    script.chmod(0o755)
    harness.environ |= {"EDITOR": str(script), "NETPLUG_NODE_SOCKET": str(harness.folder / "node.sock")}
    return harness


def run_line(tool: ToolHarness, name: str, output: str) -> str:
    """What the line of a command prints in a format. What only works so has a damaged block, or the store locked."""
    if name == "ipam delete-block":
        tool.damage = {block_key(Prefix.parse("10.65.0.56/29")): b"no JSON"}
    if name in ("ipam split", "datastore migrate import"):
        tool.set_locked()
    if name == "datastore migrate import":
        assert tool.run_command("datastore", "migrate", "export") == 0
        tool.write_file(tool.out, "export")
        tool.store = MemoryDatastore(clock=tool.clock)
    names = {
        "changed": tool.write_file(POOLS.replace("tier: web", "tier: shop"), "changed.yaml"),
        "new": tool.write_file(NEW, "new.yaml"),
        "conflist": tool.write_file(CONFLIST, "10-netplug.conflist"),
        "installation": tool.write_file(INSTALLATION, "installation.yaml"),
        "export": str(tool.folder / "export"),
        "folder": str(tool.folder),
    }
    status = tool.run_command(*shlex.split(LINES[name][0].format(**names)), "-o", output)
    assert status in (0, 1), tool.err
    return tool.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_it_or_a_reason(name: str) -> None:
    formats = formats_of(COMMANDS[name])
    if name in WITHOUT:
        assert formats is None
    elif name in OWN:
        assert formats is not None
    elif name in NAMES_ONLY:
        assert formats == NAMES
    else:
        assert formats is not None
        assert formats >= DOCUMENTS


def test_every_command_is_run_with_it() -> None:
    assert set(COMMANDS) == {*LINES, *ELSEWHERE, *WITHOUT, *OWN}
    assert {*WITHOUT, *OWN, *NAMES_ONLY} <= set(COMMANDS)


@pytest.mark.parametrize("name", [name for name in LINES if name not in NAMES_ONLY])
def test_documents_are_what_they_are_called(tool: ToolHarness, name: str) -> None:
    text = run_line(tool, name, "json")
    document = json.loads(text)
    assert isinstance(document, dict)
    assert document


@pytest.mark.parametrize("name", [name for name in LINES if name not in NAMES_ONLY])
def test_yaml_has_the_same_members(tool: ToolHarness, name: str) -> None:
    document = yaml.safe_load(run_line(tool, name, "yaml"))
    assert isinstance(document, dict)
    assert document


@pytest.mark.parametrize("name", [name for name in LINES if name not in NAMES_ONLY])
def test_a_table_has_a_header_and_as_many_cells_in_each_row(tool: ToolHarness, name: str) -> None:
    header, *rows = csv.reader(io.StringIO(run_line(tool, name, "csv")))
    assert len(header) > 1
    assert {len(row) for row in rows} <= {len(header)}


@pytest.mark.parametrize("name", [name for name in LINES if "name" in (formats_of(COMMANDS[name]) or ())])
def test_names_are_those_of_what_was_changed_and_nothing_else(tool: ToolHarness, name: str) -> None:
    assert run_line(tool, name, "name").split() == LINES[name][1].split()


@pytest.mark.parametrize("name, file", ELSEWHERE.items())
def test_those_that_need_more_are_tested_elsewhere(name: str, file: str) -> None:
    text = (TESTS.parent / file).read_text()
    assert '"-o"' in text or " -o " in text
    assert name.rpartition(" ")[2] in text
