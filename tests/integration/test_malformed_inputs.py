"""The installed executables, called with anything wrong about the call: one document each, and nothing stays.

`make nightly` starts 200 of them; ``tests/property/test_malformed_inputs.py`` tries far more within one process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given

from tests.harness.example_counts import MALFORMED_PROCESSES
from tests.harness.malformed import NAMESPACE, MalformedCall, malformed_calls
from tests.harness.node import CNIRuntime, NetnsNode, PodNamespace
from tests.integration.conftest import open_default_node

pytestmark = pytest.mark.netns


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetnsNode]:
    """One node for all: a call that succeeds is undone."""
    with open_default_node(str(tmp_path_factory.mktemp("node"))) as opened:
        yield opened


@pytest.fixture(scope="module")
def runtime(node: NetnsNode, bin_dir: str) -> CNIRuntime:
    return CNIRuntime(node, bin_dir)


@pytest.fixture(scope="module")
def pod(node: NetnsNode) -> PodNamespace:
    return node.make_pod()


def contained(runtime: CNIRuntime, text: str) -> str:
    """A configuration with the files and the datastore of the node, if it can be read at all."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(config, dict):
        return text
    files = runtime.make_netconf()
    own = {
        key: files[key] for key in ("sqlite_path", "ipam_lock_file", "release_record_dir", "nodename_file", "mtu_file")
    }
    own |= {"log_file_path": runtime.node.file("cni.log"), "readiness_gates": [], "nodename": "node-1"}
    if config.get("datastore_type") == "memory":
        own["datastore_type"] = "sqlite"
    config = {key: value for key, value in config.items() if key not in ("kubernetes", "policy")}
    ipam = config.get("ipam")
    if isinstance(ipam, dict):
        own["ipam"] = {**ipam, "dataDir": runtime.node.file("networks")} if ipam.get("type") == "host-local" else ipam
    return json.dumps({**config, **own})


@MALFORMED_PROCESSES
@given(call=malformed_calls())
def test_a_process_ends_in_one_document_and_leaves_nothing(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, call: MalformedCall
) -> None:
    variables = {name: value.replace(NAMESPACE, pod.path) for name, value in call.environ.items() if "\0" not in value}
    variables["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    stdin = contained(runtime, call.stdin.decode("utf-8", "replace"))
    executable = runtime.executable(call.plugin.value)
    done = node.run_unchecked(executable, stdin=stdin, env=variables)
    assert "Traceback" not in done.stdout
    if done.returncode == 0:
        assert not done.stdout or isinstance(json.loads(done.stdout), dict)
        if variables.get("CNI_COMMAND") == "ADD":
            undone = node.run_unchecked(executable, stdin=stdin, env={**variables, "CNI_COMMAND": "DEL"})
            assert (undone.returncode, undone.stdout) == (0, "")
    else:
        error = json.loads(done.stdout)
        assert (done.returncode, isinstance(error["msg"], str), error["code"] not in (0, 999)) == (1, True, True), error
    assert node.store.is_empty
    assert set(node.links()) == {"lo", "up0"}
