"""``datastore migrate`` between real stores: each record arrives once, also after a kill; ADD is refused meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Family
from netplug_core.datastore.transaction import read_pages
from netplug_core.errors import Unavailable
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import AssignRequest, Automatic
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Key
from netplug_core.resources.ippool import IPPOOL, AllowedUse
from tests.harness.tool_stores import make_tool_user
from tests.harness.tool_user import ToolUser, document
from tests.harness.waiting import wait_until

_V1, _V3 = (pytest.param(mode, marks=pytest.mark.apiserver, id=f"kubernetes-{mode.name.lower()}") for mode in CrdMode)
_ETCD = pytest.param("etcdv3", marks=pytest.mark.etcd)
_ROOT = Path(__file__).resolve().parents[2]
POOLS = document("IPPool", "main", "cidr: 10.68.0.0/24", "labels: {tier: gold}") + document(
    "IPPool", "six", 'cidr: "fd00:68::/112"'
)


def make_user(request: pytest.FixtureRequest, folder: Path, store: str | CrdMode) -> ToolUser:
    folder.mkdir()
    return make_tool_user(request, folder, store)


def assign(user: ToolUser, handle: str, node: str = "node-a") -> None:
    """Assign two addresses as an ADD does."""
    wanted = (Automatic(family=Family.IPV4), Automatic(family=Family.IPV6))
    request = AssignRequest(handle=handle, node=node, wanted=wanted, use=AllowedUse.WORKLOAD)
    with user.store() as store:
        ipam = BlockIPAM(datastore=store, clock=user.session.clock, chance=lambda: 0.5)
        ipam.assign(request, NO_ENDPOINT, deadline=user.deadline)


def state(user: ToolUser) -> dict[Key[object], object]:
    """The allocator's records, and the specs of the pools."""
    with user.store() as store:
        found: dict[Key[object], object] = {
            record.key: record.value
            for kind in (AFFINITY, BLOCK, HANDLE)
            for record in read_pages(store, kind, deadline=user.deadline)
        }
        pools = read_pages(store, IPPOOL, deadline=user.deadline)
        return found | {pool.key: (pool.value.spec, pool.value.metadata.labels) for pool in pools}


def migrate(user: ToolUser, *argv: str) -> str:
    result = user.run_command("datastore", "migrate", *argv)
    assert result.status == 0, result
    return result.out


def fill(user: ToolUser) -> None:
    assert user.run_command("create", "-f", "-", stdin=POOLS).status == 0
    for number in range(5):
        assign(user, f"net.Pod{number}", f"node-{number % 2}")


@pytest.mark.parametrize(
    "source, target",
    [
        pytest.param("sqlite", "etcdv3", marks=pytest.mark.etcd),
        pytest.param("etcdv3", "sqlite", marks=pytest.mark.etcd),
        pytest.param("etcdv3", CrdMode.V3, marks=[pytest.mark.etcd, pytest.mark.apiserver], id="etcdv3-kubernetes-v3"),
        pytest.param("sqlite", CrdMode.V1, marks=pytest.mark.apiserver, id="sqlite-kubernetes-v1"),
        pytest.param(CrdMode.V1, "sqlite", marks=pytest.mark.apiserver, id="kubernetes-v1-sqlite"),
        pytest.param(CrdMode.V3, "etcdv3", marks=[pytest.mark.etcd, pytest.mark.apiserver], id="kubernetes-v3-etcdv3"),
    ],
)
def test_every_record_arrives_and_the_target_works(
    request: pytest.FixtureRequest, tmp_path: Path, source: str | CrdMode, target: str | CrdMode
) -> None:
    """D11 and D12 of the catalogue."""
    before, after = (make_user(request, tmp_path / name, of) for name, of in (("a", source), ("b", target)))
    fill(before)
    assert migrate(before, "lock") == "Datastore locked.\n"
    with pytest.raises(Unavailable, match="pod networking is locked"):
        assign(before, "net.late")
    file = before.file(migrate(before, "export"), "export.json")
    assert migrate(after, "import", "-f", file, "--dry-run").startswith("would import 2 IPPool, ")
    assert state(after) == {}
    assert migrate(after, "import", "-f", file).startswith("imported 2 IPPool, ")
    assert state(after) == state(before)
    assert migrate(after, "import", "-f", file) == "every record of the export is stored already\n"
    with pytest.raises(Unavailable, match="pod networking is locked"):
        assign(after, "net.late")
    assert migrate(after, "unlock") == "Datastore unlocked.\n"
    assign(after, "net.late")
    assert after.run_command("ipam", "check").status == 0


@pytest.mark.night
@pytest.mark.parametrize("store", ["sqlite", _ETCD, _V1, _V3])
def test_an_import_that_is_killed_is_run_again(
    request: pytest.FixtureRequest, tmp_path: Path, store: str | CrdMode
) -> None:
    """The process is killed after some records; a second run stores the others, and none twice."""
    before, after = make_user(request, tmp_path / "a", "sqlite"), make_user(request, tmp_path / "b", store)
    fill(before)
    migrate(before, "lock")
    many = [
        json.dumps({"kind": "IPAMHandle", "path": [f"net.{number}"], "value": {"block": {"10.68.0.0/26": 1}}})
        for number in range(400)
    ]
    header, *records, _end = migrate(before, "export").splitlines()
    end = json.dumps({"kind": "DatastoreExportEnd", "records": len(records) + len(many)})
    file = before.file("\n".join([header, *records, *many, end]), "export.json")
    argv = ("-c", after.write_configuration(), "datastore", "migrate", "import", "-f", file)
    process = subprocess.Popen([sys.executable, "-m", "netplug_cli.wiring.ctl", *argv], cwd=_ROOT, env=dict(os.environ))
    try:
        wait_until(lambda: len(state(after)) > 30 or process.poll() is not None, "some records are stored")
        process.send_signal(signal.SIGSTOP)
        is_finished = len(state(after)) == len(state(before)) + len(many)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    if not is_finished:  # on a busy machine the import may be faster than the look at what is stored
        refused = after.run_command("datastore", "migrate", "unlock")
        assert (refused.status, "is not finished" in refused.err) == (1, True)
    migrate(after, "import", "-f", file)
    found = state(after)
    assert {key: value for key, value in found.items() if key in state(before)} == state(before)
    assert len(found) == len(state(before)) + len(many)
    assert migrate(after, "unlock") == "Datastore unlocked.\n"
