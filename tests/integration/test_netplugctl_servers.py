"""``netplugctl`` on real servers: etcd, and an API server in both groups. What is typed, and what comes back.

The cases that are named are those of the catalogue. Each test runs on every store, through a configuration file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from attrs import evolve

from netplug_backends.etcdv3.operations import Put, Txn
from netplug_backends.host.machine import SystemClock
from netplug_core import __version__
from netplug_core.addressing import Ordinal, Prefix
from netplug_core.clock import Deadline
from netplug_core.flows.ipam.check import RepairResult, check_ipam, repair
from netplug_core.flows.resources.cluster import ensure_initialized
from netplug_core.flows.resources.write import Overwriting, change_marks
from netplug_core.ipam.model import Attribute, Block, Handle, handle_key
from netplug_core.records import ABSENT, Create, Delete, Get
from netplug_core.resources.codec import Mark
from netplug_core.resources.ippool import IPPool, IPPoolStatus, PoolCondition, ippool_key
from netplug_core.testing.clock import ManualClock
from tests.harness.servers.etcd import EtcdCluster, make_client, read_all_entries
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import make_node
from tests.harness.tool_stores import SERVERS, make_tool_user
from tests.harness.tool_user import ToolUser, document, environment_without

_ROOT = Path(__file__).resolve().parents[2]
POOL = document("IPPool", "main", "cidr: 10.68.0.0/16, nodeSelector: \"zone == 'a'\"", "labels: {tier: gold}")


@pytest.fixture(params=SERVERS)
def user(request: pytest.FixtureRequest, tmp_path: Path) -> ToolUser:
    """Somebody whose configuration leads to an empty store."""
    return make_tool_user(request, tmp_path, request.param)


# --- pools and their rules -------------------------------------------------------------------------------------------


def test_a_pool_is_created_shown_and_deleted(user: ToolUser) -> None:
    """S-37, S-39 and S-42."""
    spec = "cidr: 10.0.1.0/24, ipipMode: Always, blockSize: 27, nodeSelector: \"foo == 'bar'\""
    made = user.run_command("create", "-f", "-", stdin=document("IPPool", "ippool-name1", spec))
    assert (made.status, made.out) == (0, "IPPool(ippool-name1) created\nSuccessfully created 1 'IPPool' resource(s)\n")
    assert user.run_command("get", "pools").out.splitlines() == [
        "NAME           CIDR          SELECTOR",
        "ippool-name1   10.0.1.0/24   foo == 'bar'",
    ]
    wide = user.run_command("get", "ippool", "-o", "wide").out
    assert (
        "   10.0.1.0/24   false   Always     Never       false      false              foo == 'bar'   Automatic" in wide
    )
    assert user.run_command("get", "ippool", "-n", "default").err == (
        "netplugctl: failed to get resources: IPPool is not namespaced\n"
    )
    assert "resource type 'somekind' is not supported" in user.run_command("get", "somekind").err
    gone = user.run_command("delete", "pool", "ippool-name1", "nobody")
    assert (gone.status, gone.err) == (1, "netplugctl: resource does not exist: IPPool(nobody)\n")
    assert (
        user.run_command("get", "pool", "ippool-name1").err
        == "netplugctl: resource does not exist: IPPool(ippool-name1)\n"
    )


def test_pools_that_overlap_are_refused_and_the_others_made(user: ToolUser) -> None:
    """S-29 and S-41."""
    pools = (
        ("ippool1", "1.2.3.0/24"),
        ("ippool2", "1.2.3.0/24"),
        ("ippool3", "1.2.0.0/16"),
        ("ippool4", "1.2.3.128/25"),
    )
    file = user.file("".join(document("IPPool", name, f"cidr: {cidr}") for name, cidr in pools))
    said = user.run_command("create", "-f", file)
    assert said.status == 1
    assert said.out.endswith("Partial success: created 1 out of 4 'IPPool' resources\n")
    for name in ("ippool2", "ippool3", "ippool4"):
        assert f"IPPool({name}) CIDR overlaps with IPPool(ippool1) CIDR 1.2.3.0/24" in said.err
    again = user.run_command("create", "-f", "-", stdin=document("IPPool", "ippool1", "cidr: 1.2.3.0/24"))
    assert again.err.startswith(
        "netplugctl: failed to create 'IPPool' resource: standard input#1: resource already exists"
    )
    assert "Partial success" not in again.all_output


def test_what_never_changes_and_what_no_pool_may_be(user: ToolUser) -> None:
    """S-30 and S-32."""
    user.run_command("create", "-f", "-", stdin=document("IPPool", "p", "cidr: 1.2.3.0/24, blockSize: 25"))
    for spec, words in (
        ("cidr: 1.2.4.0/24, blockSize: 25", "IPPool CIDR cannot be modified"),
        ("cidr: 1.2.3.0/24, blockSize: 26", "IPPool BlockSize cannot be modified"),
        ("cidr: 1.2.3.0/24, blockSize: 33", "blockSize must be between"),
    ):
        assert words in user.run_command("apply", "-f", "-", stdin=document("IPPool", "p", spec)).err
    for spec, words in (
        ("cidr: 10.0.0.1/24", "not strictly masked"),
        ("cidr: 169.254.5.0/24", "link-local range"),
        ("cidr: 10.9.0.0/24, ipipMode: Always, vxlanMode: Always", "ipipMode and vxlanMode cannot both be enabled"),
        ("cidr: 'fd00::/64', ipipMode: Always", "IPIP is not supported on IPv6 pools"),
        ("cidr: 10.9.0.0/24, nodeSelector: global()", "nodeSelector"),
    ):
        said = user.run_command("create", "-f", "-", stdin=document("IPPool", "q", spec))
        assert said.status == 1
        assert words.lower() in said.err.lower()
    assert [line.split()[0] for line in user.run_command("get", "pools").out.splitlines()] == ["NAME", "p"]


def test_blocks_that_an_earlier_pool_left_keep_their_size(user: ToolUser) -> None:
    """S-31."""
    block = Block.new(Prefix.parse("1.2.3.0/26"), owner="host:a", now_ns=1).assign((Ordinal(1),), Attribute())
    with user.store() as store:
        (revision,) = store.commit([Create(block.key, block)], deadline=user.deadline)

    def create(cidr: str, size: int) -> int:
        text = document("IPPool", "p", f"cidr: {cidr}, blockSize: {size}, nodeSelector: all()")
        return user.run_command("create", "-f", "-", stdin=text).status

    assert create("1.2.3.0/26", 28) == 1
    assert "conflicts with existing allocations" in user.results[-1].err
    assert create("1.2.3.0/26", 26) == 0
    assert "addresses of it that are still held: 1" in user.run_command("delete", "pool", "p").err
    assert create("1.2.2.0/23", 28) == 1
    with user.store() as store:
        found = store.read([Get(block.key)], deadline=user.deadline).find(block.key)
        assert found is not None
        store.commit([Delete(block.key, found.revision)], deadline=user.deadline)
    assert create("1.2.3.0/26", 28) == 0
    assert revision


# --- changes ---------------------------------------------------------------------------------------------------------


def test_d10_applying_again_changes_neither_spec_nor_revision(user: ToolUser) -> None:
    assert "created" in user.run_command("apply", "-f", "-", stdin=POOL).out
    first = user.get_object("pool", "main")
    again = user.run_command("apply", "-f", "-", stdin=POOL)
    assert again.out == "IPPool(main) unchanged\nSuccessfully applied 1 'IPPool' resource(s)\n"
    shown = user.run_command("get", "pool", "main", "-o", "yaml").out
    assert "unchanged" in user.run_command("apply", "-f", "-", stdin=shown).out
    assert "unchanged" in user.run_command("replace", "-f", "-", stdin=shown).out
    assert user.get_object("pool", "main") == first


def test_d6_identity_never_changes_whatever_is_done(user: ToolUser) -> None:
    """S-44, and D6 for replace, apply, patch and label."""
    user.run_command("create", "-f", "-", stdin=POOL)
    before = user.get_object("pool", "main")["metadata"]
    assert isinstance(before, dict)
    other = "uid: 00000000-0000-4000-8000-000000000009, creationTimestamp: '2001-01-01T00:00:00Z'"
    spec = "cidr: 10.68.0.0/16, disabled: true"
    for verb, labels in (("apply", "{tier: silver}"), ("apply", "{tier: lead}"), ("replace", "{tier: iron}")):
        text = document("IPPool", "main", spec, f"{other}, labels: {labels}, annotations: {{by: {verb}}}")
        assert user.run_command(verb, "-f", "-", stdin=text).status == 0
    user.run_command("label", "pool", "main", "more=yes")
    user.run_command("patch", "pool", "main", "-p", '{"spec": {"natOutgoing": true}}')
    after = user.get_object("pool", "main")["metadata"]
    assert isinstance(after, dict)
    changing = ("labels", "annotations", "resourceVersion")
    kept = [{name: value for name, value in found.items() if name not in changing} for found in (before, after)]
    assert kept[0] == kept[1]
    assert (after["labels"], after["annotations"]) == ({"tier": "iron", "more": "yes"}, {"by": "replace"})


def test_a_change_of_the_spec_keeps_the_status(user: ToolUser) -> None:
    """S-34."""
    user.run_command("create", "-f", "-", stdin=POOL)
    condition = PoolCondition(type="Allocatable", status="False")

    def judged(pool: object) -> IPPool:
        assert isinstance(pool, IPPool)
        return evolve(pool, status=IPPoolStatus(conditions=(condition,)))

    user.rewrites(ippool_key("main"), judged)
    user.run_command("apply", "-f", "-", stdin=document("IPPool", "main", "cidr: 10.68.0.0/16, disabled: true"))
    with user.store() as store:
        found = store.read([Get(ippool_key("main"))], deadline=user.deadline).find(ippool_key("main"))
    assert found is not None
    assert found.value.spec.is_disabled
    assert found.value.status.conditions == (condition,)


def test_a_resource_version_has_to_be_the_latest(user: ToolUser) -> None:
    """S-35 and S-40."""
    user.run_command("create", "-f", "-", stdin=POOL)
    first = user.run_command("get", "pool", "main", "-o", "yaml").out
    assert "(field must not be set for a Create request)" in user.run_command("create", "-f", "-", stdin=first).err
    user.run_command("apply", "-f", "-", stdin=document("IPPool", "main", "cidr: 10.68.0.0/16, disabled: true"))
    for verb in ("delete", "replace", "apply"):
        said = user.run_command(verb, "-f", "-", stdin=first)
        assert said.status == 1
        assert "update conflict: IPPool(main): resource version '" in said.err
    second = user.run_command("get", "pool", "main", "-o", "yaml").out.replace("disabled: true", "disabled: false")
    assert "updated" in user.run_command("replace", "-f", "-", stdin=second).out
    third = user.run_command("get", "pool", "main", "-o", "yaml").out
    assert user.run_command("delete", "-f", "-", stdin=third).status == 0
    assert "resource does not exist: IPPool(main)" in user.run_command("replace", "-f", "-", stdin=POOL).err
    assert user.run_command("create", "-f", "-", stdin="kind: IPPool\n").err.endswith("; nothing was done\n")


def test_changes_at_the_same_time_all_happen(user: ToolUser) -> None:
    """No update is lost: eight people give one pool a label each, and none takes another's."""
    user.run_command("create", "-f", "-", stdin=POOL)
    problems: list[BaseException] = []
    session = user.session

    def label(number: int) -> None:
        try:
            with session.open_datastore() as store:
                key = ippool_key("main")
                changes = {f"l{number}": "x"}
                change_marks(store, key, Mark.LABEL, changes, overwriting=Overwriting.REFUSED, pace=user.pace)
        except BaseException as error:  # noqa: BLE001 - told by the test below
            problems.append(error)

    threads = [threading.Thread(target=label, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    metadata = user.get_object("pool", "main")["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["labels"] == {"tier": "gold", **{f"l{number}": "x" for number in range(8)}}


def test_labels_are_set_replaced_and_removed(user: ToolUser) -> None:
    """S-46."""
    user.run_command("create", "-f", "-", stdin=POOL)
    assert user.run_command("label", "pool", "main", "app=web").out == "Successfully set label app on IPPool main\n"
    refused = user.run_command("label", "pool", "main", "app=order")
    assert refused.status == 1
    assert "key app is already present" in refused.err
    assert user.run_command("label", "pool", "main", "app=order", "--overwrite").out == (
        "Successfully updated label app on IPPool main\n"
    )
    assert user.run_command("label", "pool", "main", "app", "--remove").out == (
        "Successfully removed label app from IPPool main\n"
    )
    missing = user.run_command("label", "pool", "main", "app", "--remove")
    assert missing.status == 1
    assert "cannot remove label" in missing.err
    metadata = user.get_object("pool", "main")["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["labels"] == {"tier": "gold"}


def test_a_patch_changes_what_it_names(user: ToolUser) -> None:
    """S-47."""
    user.run_command("create", "-f", "-", stdin=POOL)
    before = user.get_object("pool", "main")
    done = user.run_command("patch", "pool", "main", "-p", '{"spec": {"disabled": true}}')
    assert (done.status, done.out) == (0, "IPPool(main) updated\nSuccessfully patched 1 'IPPool' resource(s)\n")
    after = user.get_object("pool", "main")
    assert isinstance(before["metadata"], dict)
    assert isinstance(after["metadata"], dict)
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert after["spec"] == {**before["spec"], "disabled": True}  # type: ignore[dict-item] # it is a mapping
    refused = user.run_command("patch", "pool", "main", "-p", '{"spec": {"colour": "red"}}')
    assert refused.status == 1
    assert "field in document is not recognized" in refused.err


def test_what_is_exported_can_be_applied_elsewhere(user: ToolUser) -> None:
    """S-45."""
    user.run_command("create", "-f", "-", stdin=POOL)
    exported = user.run_command("get", "pool", "main", "-o", "yaml", "--export").out
    metadata = yaml.safe_load(exported)["metadata"]
    assert metadata == {"name": "main", "labels": {"tier": "gold"}}
    assert "unchanged" in user.run_command("apply", "-f", "-", stdin=exported).out
    user.run_command("delete", "pool", "main")
    assert "created" in user.run_command("apply", "-f", "-", stdin=exported).out
    (listed,) = json.loads(user.run_command("get", "pools", "-o", "json", "--export").out)["items"]
    assert {"uid", "resourceVersion", "creationTimestamp"} <= set(listed["metadata"])


def test_other_kinds_are_written_too(user: ToolUser, request: pytest.FixtureRequest) -> None:
    text = document("IPReservation", "routers", "reservedCIDRs: [10.68.0.0/30]") + document(
        "IPAMConfiguration", "default", "strictAffinity: true, maxBlocksPerHost: 4"
    )
    assert user.run_command("apply", "-f", "-", stdin=text).out.endswith("Successfully applied 2 resource(s)\n")
    assert "10.68.0.0/30" in user.run_command("get", "reservations", "-o", "wide").out
    user.run_command("ipam", "configure", "--strictaffinity", "false", "--max-blocks-per-host", "0")
    assert "strictAffinity: false" in user.run_command("get", "ipamconfig", "default", "-o", "yaml").out
    if "kubeconfig" in user.spec:
        make_node(request.getfixturevalue("api_server"), "tooled")
    else:
        user.run_command("create", "-f", "-", stdin=document("Node", "tooled", ""))
    assert "tooled" in user.run_command("get", "nodes").out
    assert user.run_command("label", "node", "tooled", "rack=r1").status == 0
    assert "rack=r1" in user.run_command("get", "nodes", "tooled", "-o", "wide").out
    assert user.run_command("ipam", "show").status == 0


# --- the cluster's version -------------------------------------------------------------------------------------------


def test_the_first_change_gives_the_cluster_an_identity(user: ToolUser) -> None:
    """S-56; reference 4.8."""
    said = user.run_command("version")
    kind = "kdd" if "kubeconfig" in user.spec else "etcdv3"
    assert said.out == f"Client Version: v{__version__}\nCluster Version: unknown\nCluster Type: {kind}\n"
    user.run_command("create", "-f", "-", stdin=POOL)
    shown = user.get_object("clusterinfo", "default")["spec"]
    assert isinstance(shown, dict)
    assert len(shown["clusterGUID"]) == 32
    assert shown["datastoreReady"] is True
    assert shown.get("clusterType", "") == ("kdd" if "kubeconfig" in user.spec else "")
    user.run_command("apply", "-f", "-", stdin=POOL)
    assert user.get_object("clusterinfo", "default")["spec"] == shown


def test_an_older_client_is_refused_everything_but_the_version(user: ToolUser) -> None:
    """S-50, S-56."""
    user.run_command("create", "-f", "-", stdin=POOL)

    def upgraded(version: str) -> None:
        with user.session.open_datastore_of_any_release() as store:
            session = user.session
            ensure_initialized(store, pace=user.pace, new_uid=session.new_uid, recorded=(version,))

    for accepted in ("v0.0.0.1.2.3", "v3.33.7-rc1"):
        upgraded(accepted)
        assert user.run_command("get", "pools").status == 0
    upgraded("v3.34.1")
    for argv in (["get", "pools"], ["delete", "pool", "main"], ["ipam", "show"], ["apply", "-f", "-"]):
        said = user.run_command(*argv, stdin=POOL)
        assert said.status == 1
        assert said.err == (
            f"netplugctl: version mismatch. This is {__version__}, and the cluster runs v3.34.1: use a client of "
            "release 3.34 or later; --allow-version-mismatch goes on all the same\n"
        )
    assert "Cluster Version: v3.34.1\n" in user.run_command("version").out
    assert user.run_command("--allow-version-mismatch", "get", "pools").status == 0
    assert user.run_command("get", "pools", "--allow-version-mismatch").status == 0


def test_the_environment_leads_to_the_same_store(user: ToolUser) -> None:
    """The console program itself, and names with the prefix."""
    user.run_command("create", "-f", "-", stdin=POOL)
    names = {
        "etcdEndpoints": "NETPLUG_ETCD_ENDPOINTS",
        "kubeconfig": "NETPLUG_KUBECONFIG",
        "netplugAPIGroup": "NETPLUG_API_GROUP",
    }
    environ = environment_without("ETCD_", "NETPLUG_", "KUBE", "K8S_", "DATASTORE_")
    environ |= {names[key]: str(value) for key, value in user.spec.items()}
    command = (sys.executable, "-m", "netplug_cli.wiring.ctl", "get", "pools", "--log-level", "debug")
    done = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT, env=environ, check=False)
    assert done.returncode == 0, done
    assert "main   10.68.0.0/16" in done.stdout
    assert done.stderr.startswith("netplugctl: datastore ")
    assert "netplugctl: read IPPool(*) in " in done.stderr


# --- damaged records -------------------------------------------------------------------------------------------------


def test_a_damaged_block_goes_and_a_damaged_pool_is_replaced(user: ToolUser, request: pytest.FixtureRequest) -> None:
    """The block names an attribute that it does not have; the pool has no range (an API server does not store such)."""
    user.run_command("create", "-f", "-", stdin=POOL)
    block = Block.new(Prefix.parse("10.68.0.0/26"), owner="host:node-a", now_ns=1)
    with user.store() as store:
        store.commit([Create(block.key, block)], deadline=user.deadline)
    etcd: EtcdCluster | None = request.getfixturevalue("etcd") if "etcdEndpoints" in user.spec else None
    if etcd is not None:
        damage_entry(etcd, b"/10.68.0.0", b'{"cidr": 7}')
    else:
        server: ApiServer = request.getfixturevalue("api_server")
        path = f"/apis/{user.spec['netplugAPIGroup']}/ipamblocks/10-68-0-0-26"
        damage = {"spec": {"allocations": [5, *[None] * 63]}}
        server.request("PATCH", path, damage, content_type="application/merge-patch+json")
    refused = user.run_command("ipam", "delete-block", "10.68.0.64/26")
    assert (refused.status, refused.err) == (
        1,
        "netplugctl: resource does not exist: IPAMBlock(ipv4/10.68.0.64/26)\n",
    )
    deleted = user.run_command("ipam", "delete-block", "10.68.0.0/26")
    assert deleted.status == 0, deleted
    assert deleted.err.startswith("netplugctl: warning: IPAMBlock(ipv4/10.68.0.0/26): it was damaged: ")
    with user.store() as store:
        assert store.read([Get(block.key)], deadline=user.deadline).state(Get(block.key)) is ABSENT
    if etcd is not None:
        damage_entry(etcd, b"/ippools/main", b"no JSON")
        assert user.run_command("get", "pool", "main").status == 1
        assert user.run_command("replace", "-f", "-", stdin=POOL).out.startswith("IPPool(main) repaired\n")
        damage_entry(etcd, b"/ippools/main", b"no JSON")
        assert user.run_command("delete", "pool", "main").status == 0
        assert "main" not in user.run_command("get", "pools").out


def test_a_handle_that_leads_nowhere_is_found_and_repaired(user: ToolUser) -> None:
    """The repair's clock is moved by hand, so that the test does not wait as long as on an ordered store."""
    user.run_command("create", "-f", "-", stdin=POOL)
    key = handle_key("pods.gone")
    block = Block.new(Prefix.parse("10.68.0.0/26"), owner="host:node-a", now_ns=1)
    block = block.assign((Ordinal(0),), Attribute(handle="pods.here", owner=(("node", "node-a"),)))
    with user.store() as store:
        writes = (Create(block.key, block), Create(key, Handle(blocks=((block.prefix, 1),))))
        store.commit(writes, deadline=user.deadline)
        found = user.run_command("ipam", "check")
        assert found.status == 1
        assert found.out.splitlines()[1:4] == [
            "--fix would repair handle pods.gone: its counts differ from its blocks",
            "--fix would restore handle pods.here from its blocks: it is missing or damaged",
            "--fix would restore the affinity of host:node-a for block 10.68.0.0/26: it is missing or damaged",
        ]
        clock = ManualClock()
        deadline = Deadline.after(clock, 600)
        report = check_ipam(store, clock=clock, deadline=deadline)
        attempts = repair(store, report, chance=lambda: 0.5, deadline=deadline)
        assert [attempt.result for attempt in attempts] == [RepairResult.DONE] * 3
        assert check_ipam(store, clock=clock, deadline=deadline).problems == 0
        assert store.read([Get(key)], deadline=user.deadline).find(key) is None
    assert user.run_command("ipam", "check", "--fix").status == 0


def damage_entry(etcd: EtcdCluster, part: bytes, value: bytes) -> None:
    """Put other bytes in the place of the one entry whose key has a part."""
    (key,) = (entry.key for entry in read_all_entries(etcd) if part in entry.key)
    clock = SystemClock()
    with closing(make_client(etcd, clock=clock)) as client:
        client.write(Txn(success=(Put(key, value),)), deadline=Deadline.after(clock, 10.0))
