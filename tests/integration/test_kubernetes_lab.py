"""What stands for a lab on a real API server that others use too: made, told apart from theirs, and removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.lab import LabCluster, ObjectRefused, get_api_address
from netplug_backends.kubernetes.layout import KIND_MAPPINGS
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.errors import ConfigurationError
from netplug_core.settings.model import KubernetesAccess
from tests.harness.local_stores import IS_DEEP
from tests.harness.node import NetnsNode
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_apiserver import start_api_server as started_api_server
from tests.harness.servers.kube_objects import (
    delete_custom_objects,
    install_definitions,
    make_namespace,
    make_node,
    make_pod,
    open_client,
)
from tests.harness.servers.port_forward import forward_port
from tests.integration.test_lab import CTL, environment

pytestmark = pytest.mark.apiserver

THEIRS = "lab-theirs"


@pytest.fixture
def lab(api_server: ApiServer) -> Iterator[LabCluster]:
    """The objects of a lab, removed at the end."""
    opened = LabCluster(open_client(api_server), clock=SystemClock(), owner="test-1")
    yield opened
    opened.remove_all()
    opened.close()


@pytest.fixture(scope="module")
def bare_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A server of this module's own, from which definitions may be taken away."""
    with started_api_server(tmp_path_factory.mktemp("bare")) as server:
        yield server


def names(server: ApiServer, path: str) -> set[str]:
    items = server.get(path)["items"]
    assert isinstance(items, list)
    return {item["metadata"]["name"] for item in items if not item["metadata"].get("deletionTimestamp")}


def test_what_is_made_is_removed_and_nothing_of_others(api_server: ApiServer, lab: LabCluster) -> None:
    make_namespace(api_server, THEIRS)
    make_node(api_server, THEIRS)
    make_pod(api_server, THEIRS, "web", node=THEIRS)
    before = names(api_server, "/api/v1/nodes")
    for _ in range(2):  # the second time everything is there, and the lab's own
        lab.make_node("lab-node")
        lab.make_namespace("lab-objects")
        lab.make_pod("lab-objects", "pod-1", node="lab-node")
    spec = api_server.get("/api/v1/namespaces/lab-objects/pods/pod-1")["spec"]
    assert isinstance(spec, dict)
    assert spec["nodeName"] == "lab-node"
    assert names(api_server, "/api/v1/namespaces/lab-objects/serviceaccounts") == {"default"}
    assert lab.remove_all() == 3
    assert names(api_server, "/api/v1/nodes") == before
    assert names(api_server, "/api/v1/namespaces/lab-objects/pods") == set()
    assert "web" in names(api_server, f"/api/v1/namespaces/{THEIRS}/pods")


def test_a_name_that_is_already_used_is_refused(api_server: ApiServer, lab: LabCluster) -> None:
    make_node(api_server, THEIRS)
    with pytest.raises(ObjectRefused, match=rf"^/api/v1/nodes/{THEIRS}: it is there already, and not this lab's$"):
        lab.make_node(THEIRS)
    with pytest.raises(ObjectRefused, match=r"a lowercase RFC 1123 subdomain"):
        lab.make_node("No Name")


@pytest.mark.parametrize("mode", list(CrdMode))
def test_definitions_of_the_group_that_the_cluster_has_are_used(bare_server: ApiServer, mode: CrdMode) -> None:
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    bare_server.delete_collection(definitions)
    fresh = LabCluster(open_client(bare_server), clock=SystemClock(), owner="test-2")
    if mode is CrdMode.V3:
        install_definitions(bare_server, mode)
        assert fresh.install_definitions() == 0
    else:
        assert fresh.install_definitions() == len(KIND_MAPPINGS)
        assert fresh.install_definitions() == 0
    assert {name.partition(".")[2] for name in names(bare_server, definitions)} == {mode.group}
    fresh.close()


@pytest.mark.parametrize("root,place", [("https://10.0.0.1", ("10.0.0.1", 443)), ("https://[::1]:6443", ("::1", 6443))])
def test_where_a_server_is(root: str, place: tuple[str, int]) -> None:
    assert get_api_address(KubernetesAccess(api_root=root)) == place


@pytest.mark.parametrize("root", ["10.0.0.1:6443", "https://", "https://x:y", "ftp://x"])
def test_what_is_no_place(root: str) -> None:
    with pytest.raises(ConfigurationError, match="a URL such as https"):
        get_api_address(KubernetesAccess(api_root=root))


KEPT = ("ippools", "ipamblocks", "ipamhandles", "blockaffinities")


def finish_namespace(server: ApiServer, name: str) -> None:
    """Let a namespace that was deleted go, as the controllers of a whole cluster do."""
    path = f"/api/v1/namespaces/{name}"
    server.request("PUT", f"{path}/finalize", {**server.get(path), "spec": {"finalizers": []}})


@pytest.mark.netns
@pytest.mark.parametrize("lost", ["", "*"] if IS_DEEP else ["*"])
def test_a_lab_on_a_cluster_that_runs_leaves_nothing_there(
    api_server: ApiServer, node: NetnsNode, tmp_path: Path, lost: str
) -> None:
    """Neither when its namespaces are gone, so that no plugin can be called."""
    install_definitions(api_server, CrdMode.V1)
    delete_custom_objects(api_server, CrdMode.V1)
    before = names(api_server, "/api/v1/nodes")
    told = {**environment(), "KUBECONFIG": api_server.write_kubeconfig(), "DATASTORE_TYPE": "kubernetes"}
    ctl = (*CTL, "lab")
    where = ("--dir", str(tmp_path / "lab"))
    with forward_port(node, api_server.port):
        made = node.run_unchecked(*ctl, "up", "--pods", "2", "--datastore", "kubernetes", *where, env=told)
        assert (made.returncode, made.stderr) == (0, ""), made
        assert names(api_server, "/api/v1/namespaces/lab/pods") == {"pod-1", "pod-2"}
        shown = node.run_unchecked(*ctl, "status", *where, env=environment())
        assert (shown.returncode, shown.stderr) == (0, ""), shown
        assert "lab-ipv4" in node.run(*CTL, "get", "ippools", env=told)
        assert all(names(api_server, f"/apis/{CrdMode.V1.value}/{plural}") for plural in KEPT)
        if lost:
            node.run("sh", "-c", f"umount -n {tmp_path}/lab/netns/{lost}")
        # Whoever takes it down need not know where the server is.
        removed = node.run_unchecked(*ctl, "down", *where, env=environment())
        assert (removed.returncode, removed.stderr) == (0, ""), removed
        assert "4 objects removed; the definitions stay, others may use them" in removed.stdout
        assert not any(names(api_server, f"/apis/{CrdMode.V1.value}/{plural}") for plural in KEPT)
    finish_namespace(api_server, "lab")
    assert names(api_server, "/api/v1/nodes") == before
