"""``support bundle``: what is in it, what is never in it, and what becomes of a part that cannot be read."""

import json
import os
import stat
from pathlib import Path

import pytest
import yaml

from netplug_core.records import Create
from netplug_core.resources.ippool import ippool_key
from netplug_core.resources.kinds import KINDS, key_of
from netplug_core.resources.kubecontrollersconfiguration import KUBE_CONTROLLERS_CONFIGURATION
from tests.harness.ctl import ToolHarness
from tests.harness.node_status import NODE_STATUS, node_process_with_status
from tests.harness.resources import ENDPOINT, NODE
from tests.harness.support_bundles import plant_secrets, read_bundle

OWN_PARTS = ["README.txt", "index.json", "client.yaml", "netplugctl.yaml"]
STORE_PARTS = ["cluster.yaml", *(f"resources/{row.plural}.yaml" for row in KINDS), "ipam/show.txt", "ipam/check.txt"]


@pytest.fixture
def asked(harness: ToolHarness) -> ToolHarness:
    """A person on a machine without a node process and without network configurations."""
    harness.environ["NETPLUG_NODE_SOCKET"] = str(harness.folder / "node.sock")
    return harness


def make_bundle(asked: ToolHarness, *argv: str, status: int = 0, folder: str = "") -> dict[str, str]:
    """The files of a bundle."""
    path = asked.folder / "bundle.tar.gz"
    options = ("--cni-conf-dir", folder or str(asked.folder / "net.d"))
    assert asked.run_command("support", "bundle", "-f", str(path), *options, *argv) == status, asked.err
    return read_bundle(path)


def states(files: dict[str, str]) -> dict[str, str]:
    return {part["path"]: part["state"] for part in json.loads(files["index.json"])["parts"]}


def reasons(files: dict[str, str]) -> dict[str, str]:
    return {part["path"]: part.get("reason", "") for part in json.loads(files["index.json"])["parts"]}


def test_it_has_versions_resources_and_the_state_of_address_management(asked: ToolHarness) -> None:
    asked.run_command("create", "-f", asked.write_pools(("main", "10.0.0.0/16")))
    asked.store_records(Create(key_of(NODE), NODE), Create(key_of(ENDPOINT), ENDPOINT))
    files = make_bundle(asked)
    assert states(files) == {
        "client.yaml": "written",
        "netplugctl.yaml": "written",
        "node/status.yaml": "absent",
        "node/cni": "absent",
        **dict.fromkeys(STORE_PARTS, "written"),
    }
    assert set(files) == {*OWN_PARTS, *STORE_PARTS}
    (pool,) = yaml.safe_load_all(files["resources/ippools.yaml"])
    assert pool["spec"]["cidr"] == "10.0.0.0/16"
    (node,) = yaml.safe_load_all(files["resources/nodes.yaml"])
    assert node["metadata"]["labels"] == {"rack": "a"}
    assert "main   10.0.0.0/16   65536" in files["ipam/show.txt"]
    assert files["ipam/check.txt"].endswith("Check complete; found no problems.\n")
    cluster = yaml.safe_load(files["cluster.yaml"])
    assert cluster["datastore"] == {"type": "memory", "location": "this process"}
    assert yaml.safe_load(files["client.yaml"])["version"].startswith("v")
    assert json.loads(files["index.json"])["created"] == "2026-01-01T00:00:00Z"
    environment = yaml.safe_load(files["netplugctl.yaml"])["environment"]
    assert environment == {"SQLITE_PATH": "/nowhere", "ETCD_PASSWORD": "<hidden>"}


def test_only_its_owner_may_read_it_and_a_file_is_replaced_only_if_asked(asked: ToolHarness) -> None:
    make_bundle(asked)
    path = asked.folder / "bundle.tar.gz"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    count = len(OWN_PARTS) + len(STORE_PARTS)
    assert asked.out == f"wrote {path}: {count} files, {path.stat().st_size} bytes\n"
    before = path.read_bytes()
    asked.opened_settings.clear()
    assert asked.run_command("support", "bundle", "-f", str(path)) == 1
    assert asked.err == f"netplugctl: {path}: there is such a file; name another one, or use --overwrite\n"
    assert (path.read_bytes(), asked.opened_settings) == (before, [])
    make_bundle(asked, "--overwrite")
    assert [file.name for file in asked.folder.iterdir()] == ["bundle.tar.gz"]


def test_without_a_name_the_time_names_it(asked: ToolHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(asked.folder)
    assert asked.run_command("support", "bundle", "--cni-conf-dir", "none") == 0
    assert os.listdir(asked.folder) == ["netplug-support-20260101T000000Z.tar.gz"]


@pytest.mark.parametrize("argv", [["-f", "-"], ["--timeout", "0"]])
def test_a_command_line_that_makes_no_sense_is_exit_2(asked: ToolHarness, argv: list[str]) -> None:
    assert asked.run_command("support", "bundle", *argv) == 2


def test_a_folder_that_is_not_there_is_one_error(asked: ToolHarness) -> None:
    path = asked.folder / "none" / "bundle.tar.gz"
    assert asked.run_command("support", "bundle", "-f", str(path), "--cni-conf-dir", "none") == 1
    assert asked.err == f"netplugctl: {path}: No such file or directory\n"


def test_of_a_datastore_that_does_not_answer_each_part_says_so(asked: ToolHarness) -> None:
    asked.is_unavailable = True
    files = make_bundle(asked, status=3)
    assert set(files) == {"README.txt", "index.json", "client.yaml", "netplugctl.yaml"}
    failed = [path for path, state in states(files).items() if state == "failed"]
    assert failed == STORE_PARTS
    assert reasons(files)["ipam/check.txt"].endswith("unable to open the file")
    assert asked.err.startswith(f"netplugctl: not in the bundle: {', '.join(STORE_PARTS)}: ")
    assert len(asked.err.splitlines()) == 2
    assert len(asked.opened_settings) == 1


def test_a_damaged_record_is_named_and_costs_no_other_part(asked: ToolHarness) -> None:
    asked.run_command("create", "-f", asked.write_pools(("bad", "10.1.0.0/16"), ("main", "10.0.0.0/16")))
    asked.damage[ippool_key("bad")] = b'{"kind": "IPPool", "spec": 7}'
    files = make_bundle(asked, status=3)
    assert [pool["metadata"]["name"] for pool in yaml.safe_load_all(files["resources/ippools.yaml"])] == ["main"]
    assert states(files)["resources/ippools.yaml#IPPool(bad)"] == "failed"
    assert states(files)["resources/nodes.yaml"] == "written"
    assert "is malformed" in reasons(files)["resources/ippools.yaml#IPPool(bad)"]
    assert states(files)["ipam/check.txt"] == "written"
    assert states(files)["ipam/show.txt"] == "failed"


def test_a_kind_that_a_cluster_of_an_older_release_lacks_costs_no_other_part(asked: ToolHarness) -> None:
    asked.unserved = frozenset({KUBE_CONTROLLERS_CONFIGURATION})
    files = make_bundle(asked, status=3)
    missing = "resources/kubecontrollersconfigurations.yaml"
    assert {path for path, state in states(files).items() if state == "failed"} == {missing}
    assert reasons(files)[missing].endswith("the server has no such resource")


def test_a_configuration_that_cannot_be_read_is_not_shown(asked: ToolHarness) -> None:
    asked.write_file("etcdPassword: [pl4nted", name="netplugctl.cfg")
    files = make_bundle(asked, status=3)
    assert states(files)["netplugctl.yaml"] == "failed"
    assert "pl4nted" not in json.dumps(files)


def test_no_secret_of_the_machine_is_in_it(asked: ToolHarness) -> None:
    planted = plant_secrets(asked.folder)
    document = {"apiVersion": "projectnetplug.org/v3", "kind": "NetplugAPIConfig"}
    keys = {"datastoreType": "sqlite", "etcdPassword": "pl4nted-in-file", "k8sAPIToken": "pl4nted-as-token"}
    asked.write_file(json.dumps({**document, "spec": {**keys, **planted.spec}}), name="netplugctl.cfg")
    asked.environ["SOME_OTHER_TOKEN"] = "pl4nted-in-environment"  # noqa: S105  # searched for
    log = asked.folder / "cni.log"
    log.write_text(f"{log.read_text()}pl4nted-in-environment pl4nted-in-file pl4nted-as-token\n")
    assert asked.run_command("create", "-f", asked.write_file(planted.pools)) == 0
    files = make_bundle(asked, folder=planted.configurations)
    text = json.dumps(files, ensure_ascii=False) + "".join(files.values()) + asked.out + asked.err
    assert planted.find_leaked_secrets(text) == ()
    assert "pl4nted" not in text
    assert states(files)["node/cni/10-netplug.conflist"] == "written"
    (lines,) = [text for path, text in files.items() if path.startswith("node/logs/")]
    assert lines.startswith("2026 [INFO] plain: <hidden>\n")
    (pool,) = yaml.safe_load_all(files["resources/ippools.yaml"])
    assert pool["metadata"]["annotations"]["x.io/mirror"] == "https://<hidden>@mirror/"
    assert pool["metadata"]["labels"] == {"x.io/password": "<hidden>"}
    assert pool["spec"]["cidr"] == "10.68.0.0/16"


def test_network_configurations_of_others_are_only_named(asked: ToolHarness) -> None:
    folder = asked.folder / "net.d"
    folder.mkdir()
    texts = {
        "1.conf": '{"type": "bridge"}',
        "2.conf": '{"name": "netplug", "type": "bridge", "ipam": 7}',
        "3.conf": '["netplug"]',
        "4.conf": "{netplug",
        "5.conf": '{"type": "other", "ipam": {"type": "netplug-ipam", "log_file_path": "/none/cni.log"}}',
        "6.txt": '{"type": "netplug"}',
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "7.conf").mkdir()
    os.mkfifo(folder / "8.conf")
    files = make_bundle(asked, status=3)
    found = {path.removeprefix("node/"): state for path, state in states(files).items() if path.startswith("node/")}
    assert found == {
        "status.yaml": "absent",
        "cni/1.conf": "absent", "cni/2.conf": "absent", "cni/3.conf": "absent",
        "cni/4.conf": "failed", "cni/5.conf": "written", "cni/7.conf": "failed", "cni/8.conf": "failed",
        "logs/none_cni.log": "absent",
    }  # fmt: skip
    assert reasons(files)["node/cni/8.conf"] == f"{folder}/8.conf: a regular file is expected, and it is a pipe"
    assert reasons(files)["node/cni/4.conf"] == f"{folder}/4.conf: no JSON: JSONDecodeError"


def test_a_folder_without_configurations_and_one_with_too_many(asked: ToolHarness) -> None:
    folder = asked.folder / "net.d"
    folder.mkdir()
    assert reasons(make_bundle(asked))["node/cni"] == f"{folder} has no network configuration"
    for number in range(66):
        (folder / f"{number:02}.conf").write_text("{}")
    files = make_bundle(asked, "--overwrite", status=3)
    assert reasons(files)["node/cni"] == "2 further files were not read"


def test_of_a_long_log_the_end_is_kept(asked: ToolHarness) -> None:
    folder = asked.folder / "net.d"
    folder.mkdir()
    log = asked.folder / "cni.log"
    log.write_text("".join(f"line {number:012}\n" for number in range(70_000)))
    (folder / "a.conf").write_text(json.dumps({"type": "netplug", "log_file_path": str(log)}))
    files = make_bundle(asked)
    (path,) = [path for path in files if path.startswith("node/logs/")]
    assert files[path].endswith("line 000000069999\n")
    assert files[path].startswith("line 0")
    assert reasons(files)[path] == f"the last {2**20} of {log.stat().st_size} bytes"
    assert states(files)[path] == "cut"


def test_files_of_secrets_that_are_not_there_are_passed_over(asked: ToolHarness, tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\n-----END PRIVATE KEY-----\n")
    broken = tmp_path / "broken"
    broken.write_text("{broken pl4nted")
    asked.environ |= {"ETCD_KEY_FILE": str(key), "KUBECONFIG": f"/none:{broken}", "DATASTORE_TYPE": "sqlite"}
    pool = asked.write_pools(("main", "10.0.0.0/16"))
    Path(pool).write_text(
        Path(pool).read_text().replace("name: main", "name: main, annotations: {note: MIIEvQIBADANBgkqhkiG9w0BAQEF}")
    )
    assert asked.run_command("create", "-f", pool) == 0
    files = make_bundle(asked)
    assert "note: <hidden>" in files["resources/ippools.yaml"]


def test_the_status_of_a_running_node_process_is_in_it(asked: ToolHarness) -> None:
    with node_process_with_status(asked.folder / "node.sock", NODE_STATUS) as socket:
        asked.environ["NETPLUG_NODE_SOCKET"] = socket
        files = make_bundle(asked)
    assert yaml.safe_load(files["node/status.yaml"])["version"] == NODE_STATUS.version
    assert states(files)["node/status.yaml"] == "written"
