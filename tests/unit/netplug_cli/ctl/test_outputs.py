"""What commands print, to the letter: the files of ``tests/outputs``, each one command line and all that it said.

``NETPLUG_RECORD=1`` writes the files anew; the tests fail then, so that somebody reads the difference.
"""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from netplug_cli.ctl.main import netplugctl
from netplug_core import __version__
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.transaction import read_pages
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE, Allocation, Handle, handle_key
from netplug_core.records import Create, Delete, Kind, Record
from netplug_core.resources.kinds import KINDS, Resource, key_of
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from tests.harness.cni_node import CNINodeHarness, ContainerInterface
from tests.harness.ctl import ToolHarness
from tests.harness.resources import CONFIGURATION, NETWORK_KINDS, NODE, POLICY_KINDS, PROFILE, RESERVATION

TESTS = Path(__file__).parents[3]
OUTPUTS = TESTS / "outputs"
RECORDS = os.environ.get("NETPLUG_RECORD") == "1"

POOLS = """
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {name: main, labels: {tier: web}}
spec: {cidr: 10.65.0.0/26, blockSize: 29}
---
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {name: six}
spec: {cidr: 'fd65::/120', blockSize: 126, disabled: true}
"""
CHANGED = POOLS.replace("tier: web", "tier: shop")
WRONG = """
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {name: wrong}
spec: {cidr: 10.65.0.1/26, colour: red}
"""
NEW = """
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {name: new}
spec: {cidr: 10.66.0.0/24}
"""
CONFLIST = '{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "netplug", "ipam": {"type": "netplug-ipam"}}]}'

READ = {
    "get-ippools": "get ippools",
    "get-ippools-wide": "get ippools -o wide",
    "get-ippools-yaml": "get ippools -o yaml",
    "get-ippools-json": "get ippool main -o json",
    "get-ippools-name": "get ippools -o name",
    "get-ippools-columns": "get ippools -o custom-columns=NAME,CIDR,BLOCKS:.spec.blockSize",
    "get-ippools-jsonpath": "get ippools -o jsonpath={{.items[*].spec.cidr}}",
    "get-ippools-selected": "get ippools -l tier=web",
    "get-ippools-export": "get ippool main -o yaml --export",
    "get-nodes": "get nodes",
    "get-nodes-wide": "get nodes -o wide",
    "get-workloadendpoints": "get workloadendpoints -A",
    "get-workloadendpoints-wide": "get workloadendpoints -A -o wide",
    "get-workloadendpoints-none": "get workloadendpoints -n nowhere",
    "get-ipreservations": "get ipreservations -o wide",
    "get-ipamconfigurations": "get ipamconfigurations -o wide",
    "get-profiles": "get profiles -o wide",
    "get-hostendpoints": "get hostendpoints -o wide",
    "get-networkpolicies": "get networkpolicies -A -o wide",
    "get-globalnetworkpolicies": "get gnp -o wide",
    "get-networksets": "get networksets -o wide",
    "get-globalnetworksets": "get globalnetworksets",
    "get-bgppeers": "get bgppeers -o wide",
    "get-bgpfilters": "get bgpfilters -o wide",
    "get-bgpconfigurations": "get bgpconfigurations -o wide",
    "get-nodeconfigurations": "get nodeconfigurations -o wide",
    "get-clusterinformations": "get clusterinformations -o wide",
    "get-missing": "get ippool nope",
    "get-several-kinds": "get ippools,nodes",
    "get-all": "get all",
    "get-labels": "get ippools --show-labels -L tier",
    "get-without-headers": "get nodes --no-headers",
    "get-sorted": "get ippools --sort-by .spec.blockSize",
    "describe-ippool": "describe ippool main",
    "describe-node": "describe node node-a",
    "describe-workloadendpoint": "describe weps -n shop",
    "describe-profile": "describe profiles",
    "describe-reservation": "describe ipreservations",
    "describe-missing": "describe ippool mian",
    "explain-kind": "explain ippool",
    "explain-field": "explain ippool.spec.blockSize",
    "explain-object": "explain ippools.spec",
    "explain-unknown": "explain ippool.spec.blocksiz",
    "api-resources": "api-resources",
    "config-view": "config view -o csv",
    "wait-met": "wait ippool main --for jsonpath={{.spec.blockSize}}=29",
    "wait-not-met": "wait ippools --all --for condition=Allocatable --timeout 3s",
    "get-unknown-kind": "get ipool",
    "ipam-show": "ipam show",
    "ipam-show-blocks": "ipam show --show-blocks",
    "ipam-show-borrowed": "ipam show --show-borrowed",
    "ipam-show-configuration": "ipam show --show-configuration",
    "ipam-show-used": "ipam show --ip {used}",
    "ipam-show-free": "ipam show --ip 10.65.0.63",
    "ipam-show-elsewhere": "ipam show --ip 10.99.0.1",
    "ipam-show-blocks-json": "ipam show main --show-blocks -o json",
    "ipam-show-blocks-csv": "ipam show --show-blocks -o csv",
    "ipam-show-used-yaml": "ipam show --ip {used} -o yaml",
    "ipam-show-cooling-json": "ipam show --ip {cooling} -o json",
    "ipam-show-free-csv": "ipam show --ip 10.65.0.63 -o csv",
    "ipam-check": "ipam check",
    "ipam-check-addresses": "ipam check --show-all-ips",
    "ipam-check-problems": "ipam check --show-problem-ips -o json",
    "ipam-collect": "ipam collect",
    "ipam-collect-yaml": "ipam collect -o yaml",
    "ipam-collect-csv": "ipam collect -o csv",
    "ipam-explain-address": "ipam explain {used}",
    "ipam-explain-pod": "ipam explain shop/web-0",
    "ipam-explain-request": "ipam explain shop/none --node node-a --family 6",
    "ipam-map": "ipam map --no-color",
    "policy-explain": "policy explain shop/web-0 shop/web-3",
    "policy-explain-denied": "policy explain shop/web-3 shop/web-9 --port 53 --protocol UDP",
    "policy-explain-csv": "policy explain shop/web-0 shop/web-3 -o csv",
    "policy-explain-json": "policy explain shop/web-0 shop/web-3 -o json",
    "policy-explain-unknown": "policy explain shop/web-0 shop/none",
    "policy-show": "policy show shop/web-0",
    "policy-show-yaml": "policy show shop/web-0 -o yaml",
    "lint": "lint -f {conflist}",
    "lint-csv": "lint -f {wrong} -o csv",
    "lint-yaml": "lint -f {wrong} -o yaml",
    "validate": "validate -f {pools}",
    "validate-wrong": "validate -f {wrong}",
    "diff": "diff -f {changed}",
    "version": "version",
    "version-json": "version -o json",
    "version-client-csv": "version --client -o csv",
    "help": "--help",
    "help-ipam": "ipam --help",
    "completion": "completion bash",
    "unknown-command": "gett ippools",
    "node-status-none": "node status --socket {folder}/node.sock",
}
"""Commands that change nothing."""

WRITING = {
    "create": "create -f {new}",
    "create-existing": "create -f {pools}",
    "create-wrong": "create -f {wrong}",
    "apply": "apply -f {changed}",
    "apply-dry-run": "apply -f {changed} --dry-run",
    "replace": "replace -f {changed}",
    "patch": """patch ippool main -p '{{"spec": {{"disabled": true}}}}'""",
    "label": "label ippool main tier=shop --overwrite",
    "label-several": "label ippools --all tier- zone=x",
    "annotate": "annotate ippool/main note='some text'",
    "apply-name": "apply -f {changed} -o name",
    "delete-selected": "delete ippools -l tier=web --dry-run=server",
    "label-refused": "label ippool main tier=shop",
    "delete": "delete ipreservation {reservation}",
    "delete-missing": "delete ippool nope",
    "ipam-configure": "ipam configure --strictaffinity=true",
    "ipam-release-used": "ipam release --ip {used}",
    "ipam-release-leaked": "ipam release --ip {leaked}",
    "ipam-release-handle": "ipam release --handle nothing",
    "ipam-check-fix": "ipam check --fix",
    "ipam-delete-block": "ipam delete-block 10.65.0.56/29",
    "ipam-split": "ipam split 2 --name main",
    "ipam-split-dry-run": "ipam split 2 --name main --dry-run",
    "ipam-import-none": "ipam import-host-local --node node-a --data-dir {folder}",
    "pool-drain": "pool drain main --dry-run",
    "pool-drain-yaml": "pool drain main --dry-run -o yaml",
    "pool-drain-csv": "pool drain main --dry-run -o csv",
    "pool-resize": "pool resize main --successor green --cidr 10.67.0.0/24 --block-size 28 --dry-run",
    "datastore-migrate-lock": "datastore migrate lock",
    "datastore-migrate-unlock": "datastore migrate unlock",
    "datastore-migrate-export": "datastore migrate export",
}

ELSEWHERE = {
    "datastore migrate import": "tests/integration/test_netplugctl_migrate.py",
    "edit": "tests/unit/netplug_cli/ctl/commands/test_edit.py",
    "install apply": "tests/integration/test_install_cluster.py",
    "install host": "tests/integration/test_install_host.py",
    "install render": "tests/unit/netplug_cli/ctl/commands/test_installation.py",
    "install status": "tests/integration/test_install_cluster.py",
    "install validate": "tests/unit/netplug_cli/ctl/commands/test_installation.py",
    "cluster status": "tests/unit/netplug_cli/ctl/commands/test_cluster.py",
    "controllers status": "tests/unit/netplug_cli/ctl/commands/test_cluster.py",
    "migrate auto-host-endpoints": "tests/unit/netplug_cli/ctl/commands/test_migrate.py",
    "connectivity test": "tests/integration/test_lab_nodes.py",
    "lab down": "tests/integration/test_lab.py",
    "lab status": "tests/integration/test_lab.py",
    "lab up": "tests/integration/test_lab.py",
    "node policy check": "tests/unit/netplug_cli/ctl/commands/test_node.py",
    "node routes": "tests/unit/netplug_cli/ctl/commands/test_node.py",
    "node address": "tests/unit/netplug_cli/ctl/commands/test_node.py",
    "simulate": "tests/unit/netplug_cli/ctl/commands/test_simulate.py",
    "support bundle": "tests/unit/netplug_cli/ctl/commands/test_support.py",
    "uninstall cluster": "tests/integration/test_install_cluster.py",
    "uninstall host": "tests/integration/test_install_host.py",
}
"""Commands that act on a host or on a cluster, or print what was measured, and the tests of what they print."""


@pytest.fixture
def tool(harness: ToolHarness) -> ToolHarness:
    """Two pools, and two nodes with pods; one address cools down, and one has no endpoint any more."""
    cni = CNINodeHarness(clock=harness.clock, memory=harness.store)
    cni.set_ready(is_ready=True)
    assert harness.run_command("create", "-f", harness.write_file(POOLS, "pools.yaml")) == 0
    resources: tuple[Resource, ...] = (CONFIGURATION, NODE, PROFILE, RESERVATION, *NETWORK_KINDS, *POLICY_KINDS)
    harness.store_records(*(Create(key_of(one), one) for one in resources))
    cni.config["name"] = "pods"
    for number in range(10):
        cni.config["nodename"] = "node-a" if number < 9 else "node-b"
        cni.add(_pod(number))
        harness.clock.sleep(1)
    cni.config["nodename"] = "node-a"
    cni.run("DEL", _pod(1))
    deadline = Deadline.after(harness.clock, 5)
    endpoints = list(read_pages(harness.store, WORKLOAD_ENDPOINT, deadline=deadline))
    (lost,) = (record for record in endpoints if record.value.spec.pod == "web-2")
    harness.store.commit([Delete(lost.key, lost.revision)], deadline=deadline)
    harness.store_records(Create(handle_key("nothing"), Handle(blocks=((Prefix.parse("10.65.0.0/29"), 1),))))
    return harness


def _pod(number: int) -> ContainerInterface:
    args = f"K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-{number}"
    return ContainerInterface(id=f"c{number}", netns=f"/run/netns/c{number}", args=args)


def names_of(tool: ToolHarness) -> dict[str, str]:
    """What stands for the names in braces of a command line."""
    return {
        "pools": tool.write_file(POOLS, "pools.yaml"),
        "changed": tool.write_file(CHANGED, "changed.yaml"),
        "wrong": tool.write_file(WRONG, "wrong.yaml"),
        "new": tool.write_file(NEW, "new.yaml"),
        "conflist": tool.write_file(CONFLIST, "10-netplug.conflist"),
        "folder": str(tool.folder),
        "reservation": RESERVATION.metadata.name,
        "used": address_of(tool, "web-0"),
        "leaked": address_of(tool, "web-2"),
        "cooling": next(str(one.address) for one in held_addresses(tool) if one.attribute.released_ns is not None),
    }


def address_of(tool: ToolHarness, pod: str) -> str:
    """The address that a block holds for a pod."""
    return next(str(one.address) for one in held_addresses(tool) if one.attribute.owner_value("pod") == pod)


def held_addresses(tool: ToolHarness) -> Iterator[Allocation]:
    """What blocks hold."""
    blocks = read_pages(tool.store, BLOCK, deadline=Deadline.after(tool.clock, 5))
    return (one for record in blocks for one in record.value.held())


def printed(tool: ToolHarness, line: str) -> str:
    """The command line as a person writes it, and all that it says, without what differs from run to run."""
    line = line.format(**names_of(tool))
    status = tool.run_command(*shlex.split(line))
    shown = [f"$ netplugctl {line}\n", tool.out]
    if tool.err:
        shown += ["--- standard error\n", tool.err]
    if status:
        shown += [f"--- exit status {status}\n"]
    folder = str(tool.folder)
    return "".join(shown).replace(f"{folder}/", "").replace(folder, "FOLDER").replace(__version__, "VERSION")


def everything(tool: ToolHarness) -> list[Record[object]]:
    """Every record of the store."""
    kinds: tuple[Kind[object], ...] = (BLOCK, AFFINITY, HANDLE, *(kind.kind for kind in KINDS))
    deadline = Deadline.after(tool.clock, 5)
    return [record for kind in kinds for record in read_pages(tool.store, kind, deadline=deadline)]


@pytest.mark.parametrize("name", [*READ, *WRITING])
def test_the_output_is_the_recorded_one(tool: ToolHarness, name: str) -> None:
    file, found = OUTPUTS / f"{name}.txt", printed(tool, (READ | WRITING)[name])
    if RECORDS and (not file.exists() or file.read_text() != found):
        file.write_text(found)
        pytest.fail(f"recorded: read {file.name}")
    assert found == file.read_text()


def test_a_command_that_only_reads_writes_nothing(tool: ToolHarness) -> None:
    before, names = everything(tool), names_of(tool)
    for line in READ.values():
        tool.run_command(*shlex.split(line.format(**names)))
    assert everything(tool) == before


def test_every_output_has_its_command() -> None:
    assert {file.stem for file in OUTPUTS.iterdir()} == {*READ, *WRITING}


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command below a group, as it is typed."""
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        if isinstance(found, click.Group):
            yield from commands(found, (*words, name))
        elif found is not None and not found.hidden:
            yield " ".join((*words, name))


def test_every_command_is_among_them_or_has_its_test() -> None:
    lines = [*READ.values(), *WRITING.values()]
    missing = {one for one in commands(netplugctl) if not any(f"{line} ".startswith(f"{one} ") for line in lines)}
    assert missing == set(ELSEWHERE)
    for file in ELSEWHERE.values():
        assert (TESTS.parent / file).exists()
