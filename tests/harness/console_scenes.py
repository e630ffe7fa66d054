"""What each console block of a page finds: the datastore and the files that its commands are about.

A scene acts on the sqlite file and the folder of its test. Its key in :data:`SCENES` is the name of the block.
"""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

import netplug_core
from netplug_cli.ctl.main import run
from netplug_cli.wiring.ctl import make_session
from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.ipam.model import Affinity, AffinityState, Attribute, Block, Handle, affinity_key, handle_key
from netplug_core.library import Network
from netplug_core.records import Create, Key
from netplug_core.resources.fields import Metadata
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from tests.harness.console_pages import ROOT

__all__ = ["SCENES", "Scene"]

_QUOTED = """
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {name: red}
spec:
  cidr: 10.66.0.0/16
  blockSize: "26"
"""
_HEAD = "apiVersion: projectnetplug.org/v3\nkind: {kind}\nmetadata: {metadata}\nspec: {spec}\n"


@frozen
class Scene:
    """The folder of a test, in which everything happens; the commands of a page name files without it."""

    folder: Path

    @property
    def path(self) -> str:
        """The datastore, which the variables of the test name too."""
        return str(self.folder / "netplug.db")

    @property
    def socket(self) -> str:
        """Where a node process would answer; there is none."""
        return str(self.folder / "node.sock")

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables of the commands."""
        return {
            "COLUMNS": "80",
            "DATASTORE_TYPE": "sqlite",
            "EDITOR": str(self.folder / "editor"),
            "NETPLUG_NODE_SOCKET": self.socket,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SQLITE_PATH": self.path,
        }

    def shown(self, printed: str) -> str:
        """What was printed, with the usual paths in place of those of the test."""
        for path, usual in (
            (self.path, "/var/lib/netplug/netplug.db"),
            (self.socket, "/run/netplug/node.sock"),
        ):
            printed = printed.replace(path, usual)
        return printed

    def write(self, name: str, text: str) -> Path:
        """A file in the folder."""
        file = self.folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return file

    def create(self, *documents: str) -> None:
        """Create resources as a person does."""
        file = self.write("scene.yaml", "---\n".join(documents))
        assert run(["create", "-f", str(file)], make_session) == 0
        file.unlink()

    def store(self, blocks: Iterable[Block]) -> None:
        """Store blocks that no node would have made so."""
        self.commit(*(Create(block.key, block) for block in blocks))

    def commit(self, *writes: Create[object]) -> None:
        """Store what the tool does not create."""
        session = make_session().for_creation()
        with session.open_datastore() as store:
            store.commit(writes, deadline=session.deadline())

    def execute(self, statement: str, *values: str) -> None:
        """Damage or change records where no writer of netplug would."""
        database = sqlite3.connect(self.path)
        with database:
            assert database.execute(statement, values).rowcount > 0, statement
        database.close()

    @contextmanager
    def network(self) -> Iterator[Network]:
        """The library on the same datastore."""
        with netplug_core.open(f"sqlite://{self.path}") as network:
            yield network


def pool(name: str, cidr: str, spec: str = "") -> str:
    """The document of a pool; ``spec`` is more of it."""
    return _HEAD.format(kind="IPPool", metadata=f"{{name: {name}}}", spec=f"{{cidr: '{cidr}'{spec and ', '}{spec}}}")


def resource(kind: str, name: str, spec: str = "{}", labels: str = "{}") -> str:
    """The document of another resource."""
    return _HEAD.format(kind=kind, metadata=f"{{name: {name}, labels: {labels}}}", spec=spec)


def held(block: Block, ordinals: Iterable[int], node: str, pods: Iterable[str]) -> Block:
    """The block with addresses of some pods of a node."""
    for ordinal, pod in zip(ordinals, pods, strict=True):
        owner = (("namespace", "shop"), ("node", node), ("pod", pod), ("timestamp", "2026-11-21T07:32:09Z"))
        block = block.assign((Ordinal(ordinal),), Attribute(handle=f"pods.{pod}", owner=owner))
    return block


def empty(cidr: str, node: str) -> Block:
    """A block of a node without addresses in use."""
    return Block.new(Prefix.parse(cidr), owner=f"host:{node}", now_ns=time.time_ns())


def cooling(block: Block, ordinals: Iterable[int]) -> Block:
    """The block with addresses that were released now."""
    in_order = tuple(map(Ordinal, ordinals))
    return block.assign(in_order, Attribute()).release(frozenset(in_order), cooling_from_ns=time.time_ns())


# --- the scenes ----------------------------------------------------------------------------------------------------


def mistakes(scene: Scene) -> None:
    """A pool, and the file of another one with a mistake."""
    scene.create(pool("main", "10.65.0.0/16"))
    scene.write("pool.yaml", _QUOTED)


def a_used_pool(scene: Scene) -> None:
    """A labelled pool with a block of which two addresses are held."""
    document = pool("main", "10.65.0.0/16").replace("{name: main}", "{name: main, labels: {rack: r1}}")
    scene.create(document)
    empty = Block.new(Prefix.parse("10.65.0.0/26"), owner="host:node-a", now_ns=1)
    scene.store([held(empty, (1, 2), "node-a", ("web-0", "web-1"))])


def nothing(_scene: Scene) -> None:
    """No datastore and no file."""


def a_damaged_pool(scene: Scene) -> None:
    """The CIDR of a pool is a number; two addresses are held in a block that may be of it."""
    scene.create(pool("main", "10.65.0.0/16"))
    scene.store([held(empty("10.65.0.0/26", "node-a"), range(2), "node-a", ("web-0", "web-1"))])
    scene.execute("UPDATE record SET value = replace(value, '\"10.65.0.0/16\"', '7') WHERE kind = 'IPPool'")
    scene.write("pool.yaml", pool("main", "10.65.0.0/16"))


def damaged_handles(scene: Scene) -> None:
    """A handle that counts too little, one that is missing, and a block without its affinity."""
    with scene.network() as network:
        network.create_pool("10.65.0.0/16")
        for handle in ("job-0", "job-1"):
            network.assign(handle, ipv4=1)
    scene.execute("DELETE FROM record WHERE kind = 'BlockAffinity'")
    scene.execute("DELETE FROM record WHERE kind = 'IPAMHandle' AND path LIKE '%job-1%'")
    scene.execute("UPDATE record SET value = replace(value, ':1}', ':0}') WHERE kind = 'IPAMHandle'")


def a_leaked_address(scene: Scene) -> None:
    """A pod with its endpoint, and an address whose pod is gone."""
    one_pool(scene)
    scene.store([held(empty("10.65.0.0/26", "node-a"), (4, 5), "node-a", ("web-0", "web-1"))])
    spec = WorkloadEndpointSpec(
        orchestrator="k8s", node="node-a", pod="web-0", endpoint="eth0", addresses=(Address.parse("10.65.0.4"),)
    )
    endpoint = WorkloadEndpoint(metadata=Metadata(name="web-0", namespace="shop"), spec=spec)
    scene.commit(Create(Key(WORKLOAD_ENDPOINT, ("shop", "web-0")), endpoint))


def a_leak_to_report(scene: Scene) -> None:
    """The same with handles and an affinity."""
    a_leaked_address(scene)
    block = Prefix.parse("10.65.0.0/26")
    scene.commit(
        Create(affinity_key("host:node-a", block), Affinity(state=AffinityState.CONFIRMED)),
        *(Create(handle_key(f"pods.web-{number}"), Handle(blocks=((block, 1),))) for number in range(2)),
    )


def one_pool(scene: Scene) -> None:
    """The pool of most examples."""
    scene.create(pool("main", "10.65.0.0/16"))


def a_newer_cluster(scene: Scene) -> None:
    """The release of the cluster is a minor one later."""
    one_pool(scene)
    major, minor, _patch = netplug_core.__version__.split(".", 2)
    scene.execute(
        "UPDATE record SET value = CAST(json_set(CAST(value AS TEXT), '$.spec.netplugVersion', ?) AS BLOB)"
        " WHERE kind = 'ClusterInformation'",
        f"v{major}.{int(minor) + 1}.0",
    )


def a_datastore_to_move(scene: Scene) -> None:
    """A node with an address of each family, and the configurations of an empty datastore and of one in use."""
    scene.create(
        pool("main", "10.65.0.0/16"),
        pool("six", "fd5f:abcd:64::/48"),
        resource("IPReservation", "routers", "{reservedCIDRs: [10.65.0.0/30]}"),
        resource("Node", "node-a"),
    )
    with scene.network() as network:
        network.assign("pods.web-0", ipv4=1, ipv6=1, node="node-a")
    for name in ("new", "used"):
        spec = f"{{datastoreType: sqlite, sqlitePath: {scene.folder / name}.db}}"
        scene.write(f"{name}.cfg", f"apiVersion: projectnetplug.org/v3\nkind: NetplugAPIConfig\nspec: {spec}\n")
    file = str(scene.write("other.yaml", pool("other", "10.80.0.0/16")))
    assert run(["-c", "used.cfg", "create", "-f", file], make_session) == 0


def a_profile(scene: Scene) -> None:
    """A profile beside that of every store."""
    scene.create(resource("Profile", "web", "{labelsToApply: {tier: front}}"))


def the_example_of(kind: str, file: str) -> Callable[[Scene], None]:
    """The document of a kind that the page shows above its block."""
    page = (ROOT / "docs" / "kinds" / f"{kind.lower()}.md").read_text()
    (text,) = re.findall(rf"```yaml\n([^`]*kind: {kind}\n[^`]*)```", page)

    def prepare(scene: Scene) -> None:
        scene.write(file, text)

    return prepare


def a_policy_of_a_tier(scene: Scene) -> None:
    """A policy of a tier that is not there."""
    head = "apiVersion: projectnetplug.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: all}\nspec:\n"
    scene.write("tier.yaml", f"{head}  tier: security\n")


def a_node(scene: Scene) -> None:
    """One node in a rack."""
    scene.create(resource("Node", "node-a", labels="{rack: r1}"))


def a_node_with_an_object_of_its_own(scene: Scene) -> None:
    own = resource("HostEndpoint", "node-b-lan", "{node: node-b, interfaceName: eth0}")
    scene.create(resource("Node", "node-b"), own)


def three_nodes(scene: Scene) -> None:
    """Nodes with different labels."""
    scene.create(
        resource("Node", "node-a", labels="{rack: r1, tier: gold}"),
        resource("Node", "node-b", labels="{rack: r2}"),
        resource("Node", "node-c", labels="{rack: r3, old: 'true'}"),
    )


def two_pools(scene: Scene) -> None:
    """A pool of each family; one has a label."""
    six = pool("six", "fd5f:abcd:64::/48")
    scene.create(pool("main", "10.65.0.0/16").replace("{name: main}", "{name: main, labels: {rack: r1}}"), six)


def two_pools_and_a_node(scene: Scene) -> None:
    """A pool of each family, of which one has a label, and a node."""
    two_pools(scene)
    a_node(scene)


def pools_to_apply(scene: Scene) -> None:
    """A pool with addresses in use, and a file with a change, a new pool, and one that overlaps that."""
    with scene.network() as network:
        one_pool(scene)
        network.assign("pods.web-0", ipv4=2, node="node-a")
    changed, new = pool("main", "10.65.0.0/16", "disabled: true"), pool("new", "10.66.0.0/16")
    scene.write("pools.yaml", "---\n".join((changed, new, pool("part", "10.66.128.0/17"))))


def a_pool_to_disable(scene: Scene) -> None:
    """A file that would disable the pool."""
    one_pool(scene)
    scene.write("pool.yaml", pool("main", "10.65.0.0/16", "disabled: true"))


def an_editor(scene: Scene) -> None:
    """An editor that changes the block size once, and then leaves the text as it is."""
    one_pool(scene)
    editor = scene.write("editor", "#!/bin/sh\nsed -i 's/blockSize: 26/blockSize: 27/' \"$1\"\n")
    editor.chmod(0o755)


def pools_in_use(scene: Scene) -> None:
    """Three pools; in the small one a block is full, and an address of the other is borrowed."""
    scene.create(
        pool("main", "10.65.0.0/16"),
        pool("six", "fd5f:abcd:64::/48"),
        pool("small", "10.66.0.0/25"),
        resource("IPReservation", "routers", "{reservedCIDRs: [10.65.0.0/30, 10.66.0.1]}"),
    )
    own = held(empty("10.66.0.0/26", "node-a"), (0, 2, 3), "node-a", ("web-00", "web-01", "web-02"))
    full = held(empty("10.66.0.64/26", "node-b"), range(64), "node-b", (f"web-{number}" for number in range(199, 263)))
    scene.store([held(own, (4,), "node-b", ("web-263",)), full])


def every_use_of_an_address(scene: Scene) -> None:
    """Addresses in use, borrowed, cooling down, reserved and free, in both families."""
    scene.create(
        pool("small", "10.66.0.0/26", "blockSize: 27"),
        pool("six", "fd5f:abcd:64::/48"),
        resource("IPReservation", "routers", "{reservedCIDRs: [10.66.0.0/30]}"),
        resource("IPAMConfiguration", "default", "{ipCooldownSeconds: 3600}"),
    )
    first = cooling(empty("10.66.0.0/27", "node-a"), range(4, 7))
    first = held(first, range(7, 24), "node-a", (f"web-{number}" for number in range(17)))
    first = held(first, (24, 25), "node-b", ("web-30", "web-31"))
    second = held(empty("10.66.0.32/27", "node-b"), range(32), "node-b", (f"api-{number}" for number in range(32)))
    six = cooling(empty("fd5f:abcd:64:401e:b5f4:a71d:7464:3400/122", "node-a"), range(3))
    six = held(six, range(3, 20), "node-a", (f"web-{number}" for number in range(17)))
    scene.store([first, second, six])


def ninety_nodes(scene: Scene) -> None:
    """A rack of nodes with two addresses each, in the blocks where nodes of these names begin to look."""
    one_pool(scene)
    with scene.network() as network:
        for number in range(90):
            node = f"rack-node-{number:02}"
            network.assign(f"pods.{node}", ipv4=2, node=node)


def a_pool_for_a_rack(scene: Scene) -> None:
    """A pool that selects one of two nodes, and a pod on this one."""
    scene.create(
        pool("main", "10.65.0.0/24", "nodeSelector: \"rack == 'r1'\""),
        resource("IPReservation", "routers", "{reservedCIDRs: [10.65.0.0/30]}"),
        resource("Node", "node-a", labels="{rack: r1}"),
    )
    with scene.network() as network:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        owner = {"namespace": "shop", "node": "node-a", "pod": "web-0", "timestamp": stamp}
        network.assign("pods.web-0", ipv4=1, node="node-a", owner=owner)


def a_cluster_with_a_log(scene: Scene) -> None:
    """A pool in use, and a network configuration that names a log."""
    one_pool(scene)
    log = scene.write("cni.log", "2026-11-23 16:01:31.000 [INFO][1] add: done\n")
    scene.write(
        "net.d/10-netplug.conflist",
        '{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "netplug", "datastore_type": "sqlite",'
        f' "log_file_path": "{log}", "ipam": {{"type": "netplug-ipam"}}}}]}}\n',
    )


def the_files_of_lint(scene: Scene) -> None:
    """The two files that the page shows first."""
    page = (ROOT / "docs" / "lint.md").read_text()
    for name, language in (("net.d/10-netplug.conflist", "json"), ("pools.yaml", "yaml")):
        (text,) = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
        scene.write(name, text)


def the_repaired_files_of_lint(scene: Scene) -> None:
    """The same after the page's second example."""
    the_files_of_lint(scene)
    assert run(["lint", "-f", "net.d", "--fix"], make_session) == 0


def files_of(page: str) -> Callable[[Scene], None]:
    """The files that a page shows, each under the name in its first line."""
    shown = re.findall(r"```yaml\n(# (\S+\.yaml)\n[^`]*)```", (ROOT / "docs" / page).read_text())

    def prepare(scene: Scene) -> None:
        for text, name in shown:
            scene.write(name, text)

    return prepare


_TOOL = "docs/netplugctl.md: netplugctl"
_KINDS = "docs/kinds"
_LINT = "docs/lint.md: netplugctl lint -f net.d"

SCENES: Mapping[str, Callable[[Scene], None]] = {
    f"{_TOOL} get ippols": mistakes,
    f"{_TOOL} describe pool main": a_used_pool,
    f"{_TOOL} get pools": a_damaged_pool,
    f"{_TOOL} ipam check": damaged_handles,
    f"{_TOOL} ipam collect": damaged_handles,
    f"{_TOOL} datastore migrate lock": a_leak_to_report,
    f"{_TOOL} ipam check --show-problem-ips": a_leak_to_report,
    f"{_TOOL} ipam release --ip 10.65.0.9 --ip 10.65.0.4 --ip 10.65.0.5": a_leaked_address,
    f"{_TOOL} get pools --log-level debug": one_pool,
    f"{_TOOL} get pools (2)": a_newer_cluster,
    f"{_TOOL} datastore migrate lock (2)": one_pool,
    f"{_TOOL} datastore migrate lock (3)": a_datastore_to_move,
    f"{_KINDS}/profile.md: netplugctl get profiles -o wide": a_profile,
    f"{_KINDS}/ipamconfiguration.md: netplugctl ipam configure --strictaffinity true --max-blocks-per-host 4": one_pool,
    f"{_KINDS}/kubecontrollersconfiguration.md: netplugctl create -f controllers.yaml": the_example_of(
        "KubeControllersConfiguration", "controllers.yaml"
    ),
    f"{_KINDS}/hostendpoint.md: netplugctl apply -f hostendpoint.yaml": the_example_of(
        "HostEndpoint", "hostendpoint.yaml"
    ),
    f"{_KINDS}/bgpconfiguration.md: netplugctl apply -f bgp.yaml": the_example_of("BGPConfiguration", "bgp.yaml"),
    f"{_KINDS}/bgppeer.md: netplugctl apply -f peer.yaml": the_example_of("BGPPeer", "peer.yaml"),
    f"{_KINDS}/bgpfilter.md: netplugctl apply -f filter.yaml": the_example_of("BGPFilter", "filter.yaml"),
    f"{_KINDS}/networkpolicy.md: netplugctl apply -f policy.yaml": the_example_of("NetworkPolicy", "policy.yaml"),
    f"{_KINDS}/networkpolicy.md: netplugctl create -f tier.yaml": a_policy_of_a_tier,
    f"{_KINDS}/globalnetworkpolicy.md: netplugctl apply -f global.yaml": the_example_of(
        "GlobalNetworkPolicy", "global.yaml"
    ),
    f"{_KINDS}/networkset.md: netplugctl apply -f databases.yaml": the_example_of("NetworkSet", "databases.yaml"),
    f"{_KINDS}/globalnetworkset.md: netplugctl apply -f partners.yaml": the_example_of(
        "GlobalNetworkSet", "partners.yaml"
    ),
    f"{_KINDS}/nodeconfiguration.md: netplugctl apply -f nodeconfiguration.yaml": the_example_of(
        "NodeConfiguration", "nodeconfiguration.yaml"
    ),
    f"{_KINDS}/node.md: netplugctl get nodes -o wide": a_node,
    f"{_KINDS}/node.md: netplugctl delete node node-b": a_node_with_an_object_of_its_own,
    f"{_TOOL} get pools -o name": two_pools,
    f"{_TOOL} get ippool/six node/node-a": two_pools_and_a_node,
    f"{_TOOL} apply -f pools.yaml --dry-run": pools_to_apply,
    f"{_TOOL} get nodes -o wide -l 'rack in (r1,r3),!old'": three_nodes,
    f"{_TOOL} diff -f pool.yaml": a_pool_to_disable,
    f"{_TOOL} edit pool main": an_editor,
    f"{_TOOL} ipam show": pools_in_use,
    f"{_TOOL} ipam show small --show-blocks": pools_in_use,
    f"{_TOOL} ipam map small six": every_use_of_an_address,
    f"{_TOOL} ipam map main --max-rows 4": ninety_nodes,
    f"{_TOOL} ipam explain 10.65.0.4": a_pool_for_a_rack,
    f"{_TOOL} support bundle -f support.tar.gz --cni-conf-dir net.d": a_cluster_with_a_log,
    "docs/netplugctl.md: SQLITE_PATH=/nowhere.db netplugctl support bundle -f other.tar.gz --cni-conf-dir net.d": (
        a_cluster_with_a_log
    ),
    "docs/from-calico.md: netplugctl validate -f calico.yaml": files_of("from-calico.md"),
    **{
        f"docs/recipes.md: netplugctl apply -f {name}.yaml": files_of("recipes.md")
        for name in ("static", "zones", "dual", "six", "nodes", "reserved")
    },
    "docs/node.md: netplug-node --host-root /mnt": nothing,
    "docs/node.md: netplugctl node status (2)": nothing,
    "docs/installation.md: CNI_MTU=abc netplug-install": nothing,
    f"{_LINT} -f pools.yaml --service-cidr 10.64.0.0/12": the_files_of_lint,
    f"{_LINT} --fix": the_files_of_lint,
    f"{_LINT} -f pools.yaml": the_repaired_files_of_lint,
}
"""The scene of each block that runs by day, without a server and without root."""
