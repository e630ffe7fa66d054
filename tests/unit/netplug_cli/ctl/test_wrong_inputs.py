"""Sixty wrong inputs, and what the tool says of each: the files of ``tests/wrong_inputs``.

Each text is for somebody who does not know netplug yet: it says where the mistake is, and what to do.
``NETPLUG_RECORD=1`` writes the files anew; the tests fail then, so that somebody reads the difference.
"""

import io
import os
import shlex
from pathlib import Path

import pytest
from attrs import evolve, frozen

from netplug_cli.ctl.main import run
from netplug_cli.ctl.session import Session
from netplug_cli.wiring.backends import open_datastore
from netplug_cli.wiring.ctl import make_session
from tests.harness.ctl import ToolHarness
from tests.unit.netplug_cli.ctl.test_outputs import POOLS

FOLDER = Path(__file__).parents[3] / "wrong_inputs"
RECORDS = os.environ.get("NETPLUG_RECORD") == "1"

HEAD = "apiVersion: projectnetplug.org/v3\nkind: IPPool\nmetadata:\n  name: red\n"

POLICY = "apiVersion: projectnetplug.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: red}\nspec:\n"


@frozen(kw_only=True)
class Wrong:
    """A command line, and what stands in the file ``{file}`` and on standard input.

    With an environment the tool opens the store that it names, otherwise one in memory with two pools.
    """

    line: str
    file: str = ""
    name: str = "pool.yaml"
    stdin: str = ""
    environ: dict[str, str] | None = None


def applied(text: str, name: str = "pool.yaml") -> Wrong:
    """A file that cannot be applied."""
    return Wrong(line="apply -f {file}", file=text, name=name)


INPUTS = {
    # which datastore
    "no-datastore": Wrong(line="get ippools", environ={}),
    "no-kubeconfig": Wrong(line="get ippools", environ={"DATASTORE_TYPE": "kubernetes", "HOME": "/nowhere"}),
    "missing-kubeconfig": Wrong(line="get ippools", environ={"DATASTORE_TYPE": "kubernetes", "KUBECONFIG": "/nope"}),
    "missing-sqlite-file": Wrong(line="get ippools", environ={"DATASTORE_TYPE": "sqlite", "SQLITE_PATH": "/nope.db"}),
    "unknown-datastore": Wrong(line="get ippools", environ={"DATASTORE_TYPE": "postgres"}),
    "memory-datastore": Wrong(line="get ippools", environ={"DATASTORE_TYPE": "memory"}),
    "missing-configuration": Wrong(line="get ippools --config /nope.cfg", environ={}),
    "configuration-of-another-kind": Wrong(line="get ippools --config {file}", file="kind: IPPool\n", environ={}),
    "context-without-kubernetes": Wrong(line="get ippools --context prod", environ={"DATASTORE_TYPE": "sqlite"}),
    # what is in a file
    "kind-mistyped": applied(HEAD.replace("IPPool", "IPPol") + "spec: {cidr: 10.9.0.0/16}\n"),
    "kind-of-kubernetes": applied("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"),
    "kind-of-calico": applied("apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: a}\n"),
    "kind-missing": applied('{"metadata": {"name": "red"}}', "pool.json"),
    "group-of-calico": applied(HEAD.replace("netplug", "calico") + "spec: {cidr: 10.9.0.0/16}\n"),
    "version-missing": applied("kind: IPPool\nmetadata: {name: red}\nspec: {cidr: 10.9.0.0/16}\n"),
    "field-mistyped": applied(HEAD + "spec:\n  cdir: 10.9.0.0/16\n"),
    "field-in-the-wrong-place": applied(HEAD + "cidr: 10.9.0.0/16\n"),
    "field-missing": applied(HEAD + "spec:\n  blockSize: 26\n"),
    "number-in-quotes": applied(HEAD + 'spec:\n  cidr: 10.9.0.0/16\n  blockSize: "26"\n'),
    "switch-in-quotes": applied(HEAD + 'spec:\n  cidr: 10.9.0.0/16\n  disabled: "true"\n'),
    "text-without-quotes": applied(HEAD + "  labels: {zone: 1}\nspec: {cidr: 10.9.0.0/16}\n"),
    "enum-mistyped": applied(HEAD + "spec:\n  cidr: 10.9.0.0/16\n  vxlanMode: CrosSubnet\n"),
    "cidr-with-host-bits": applied(HEAD + "spec:\n  cidr: 10.9.0.1/16\n"),
    "cidr-that-is-none": applied(HEAD + "spec:\n  cidr: 10.9.0.0/33\n"),
    "block-larger-than-pool": applied(HEAD + "spec:\n  cidr: 10.9.0.0/26\n  blockSize: 24\n"),
    "policy-of-a-tier": applied(POLICY + "  tier: security\n"),
    "policy-of-another-hook": applied(POLICY + "  preDNAT: true\n"),
    "policy-that-passes": applied(POLICY + "  ingress:\n    - action: Pass\n"),
    "policy-for-a-service": applied(
        POLICY + "  egress:\n    - action: Allow\n      destination: {services: {name: web, namespace: shop}}\n"
    ),
    "policy-about-http": applied(POLICY + "  ingress:\n    - action: Allow\n      http: {methods: [GET]}\n"),
    "policy-with-ports-alone": applied(POLICY + "  ingress:\n    - action: Allow\n      destination: {ports: [80]}\n"),
    "policy-with-a-mistyped-selector": applied(POLICY + "  selector: app = 'web'\n"),
    "policy-that-is-staged": applied(POLICY.replace("Global", "StagedGlobal") + "  order: 1\n"),
    "policy-of-kubernetes": applied(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: red}\nspec: {podSelector: {}}\n"
    ),
    "pool-overlaps": applied(HEAD + "spec:\n  cidr: 10.65.0.0/24\n"),
    "selector-mistyped": applied(HEAD + "spec:\n  cidr: 10.9.0.0/16\n  nodeSelector: zone = a\n"),
    "name-with-capitals": applied(HEAD.replace("red", "Red") + "spec: {cidr: 10.9.0.0/16}\n"),
    "third-document": applied(f"{POOLS}---\n{HEAD}spec:\n  cidr: 10.9.0.0/16\n  colour: red\n"),
    "item-of-a-list": applied("kind: List\nitems:\n- kind: IPPool\n  apiVersion: projectnetplug.org/v3\n  spec: {}\n"),
    "two-mistakes": applied(HEAD + f"spec: {{cdir: 1}}\n---\n{HEAD}spec: {{cidr: 10.9.0.0/16, blockSize: x}}\n"),
    "tab-in-yaml": applied(HEAD + "spec:\n\tcidr: 10.9.0.0/16\n"),
    "member-given-twice": applied(HEAD + "spec:\n  cidr: 10.9.0.0/16\n  cidr: 10.8.0.0/16\n"),
    "json-cut-off": applied('{"kind": "IPPool", "metadata": {', "pool.json"),
    "text-that-is-no-object": applied("hello\n"),
    "empty-file": applied(""),
    "empty-standard-input": Wrong(line="apply -f -"),
    "missing-file": Wrong(line="apply -f nope.yaml"),
    "folder-without-files": Wrong(line="apply -f {folder}/none"),
    "url": Wrong(line="apply -f https://example.com/pool.yaml"),
    # words of the command line
    "command-mistyped": Wrong(line="gett ippools"),
    "option-mistyped": Wrong(line="get ippools --ouput yaml"),
    "kind-on-the-command-line": Wrong(line="get ippol"),
    "pods": Wrong(line="get pods"),
    "name-of-a-pool": Wrong(line="get ippool mian"),
    "name-to-delete": Wrong(line="delete ippool mian"),
    "name-to-patch": Wrong(line="patch ippool mian -p '{{}}'"),
    "name-to-drain": Wrong(line="pool drain mian --dry-run"),
    "output-mistyped": Wrong(line="get ippools -o yml"),
    "truth-mistyped": Wrong(line="ipam configure --strictaffinity maybe"),
    "address-mistyped": Wrong(line="ipam show --ip 10.0.0"),
    "patch-that-is-no-json": Wrong(line="patch ippool main -p '{{disabled'"),
    "lab-option": Wrong(line="lab up --pod 2"),
    "lab-that-is-not-up": Wrong(line="lab status --dir {folder}/none"),
}


@pytest.fixture
def tool(harness: ToolHarness) -> ToolHarness:
    assert harness.run_command("create", "-f", harness.write_file(POOLS, "pools.yaml")) == 0
    (harness.folder / "none").mkdir()
    return harness


def said(tool: ToolHarness, wrong: Wrong, monkeypatch: pytest.MonkeyPatch) -> str:
    """The input as a person writes it, and all that the tool says, without what differs from run to run."""
    file = tool.write_file(wrong.file, wrong.name) if wrong.file or "{file}" in wrong.line else ""
    line = wrong.line.format(file=file, folder=tool.folder)
    monkeypatch.setattr("sys.stdin", io.StringIO(wrong.stdin))
    environ = wrong.environ

    def open_session() -> Session:
        if environ is None:
            return evolve(tool.make_session(), environ={"DATASTORE_TYPE": "sqlite"})
        session = evolve(make_session(), environ=environ, open_backend=open_datastore)
        return evolve(session, default_config_file="")

    status = run(shlex.split(line), open_session)
    printed = tool.capsys.readouterr()
    shown = [f"$ cat {file}\n{wrong.file}" if wrong.file else "", f"$ netplugctl {line}\n", printed.out, printed.err]
    text = "".join([*shown, f"--- exit status {status}\n"])
    return text.replace(f"{tool.folder}/", "").replace(str(tool.folder), "FOLDER")


@pytest.mark.parametrize("name", INPUTS)
def test_what_is_said_is_what_was_recorded(tool: ToolHarness, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, found = FOLDER / f"{name}.txt", said(tool, INPUTS[name], monkeypatch)
    if RECORDS and (not recorded.exists() or recorded.read_text() != found):
        recorded.write_text(found)
        pytest.fail(f"recorded: read {recorded.name}")
    assert found == recorded.read_text()


@pytest.mark.parametrize("name", INPUTS)
def test_it_is_a_failure_with_one_prefix_and_without_a_traceback(name: str) -> None:
    *_, line, status = (FOLDER / f"{name}.txt").read_text().splitlines()
    assert line.startswith("netplugctl: ")
    assert status in ("--- exit status 1", "--- exit status 2")
    assert not any(word in (FOLDER / f"{name}.txt").read_text() for word in ("Traceback", "internal error", "Error:"))


def test_every_recorded_text_has_its_input() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == set(INPUTS)
    assert len(INPUTS) >= 50
