"""A cluster whose API server is silent, refuses, or is older than some kinds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.installing.cluster import KubernetesCluster, open_cluster
from netplug_core.addressing import Prefix
from netplug_core.errors import NetplugError, Unauthorized, Unavailable
from netplug_core.installation.cluster import FieldConflict, Ownership, Writing
from netplug_core.records import OutcomeUnknown
from netplug_core.settings.model import DatastoreSettings, KubernetesAccess
from tests.harness.servers.http_stub import (
    NeverReply,
    ReceivedRequest,
    SendReply,
    StubAction,
    StubScript,
    open_http_stub,
)
from tests.harness.waiting import deadline_in

CONFIG_MAP: Mapping[str, object] = {
    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}, "data": {"x": "1"},
}  # fmt: skip
NOT_FOUND = SendReply(404, {"kind": "Status", "message": "not found"})


@contextmanager
def cluster_of(folder: Path, script: StubScript) -> Iterator[KubernetesCluster]:
    with open_http_stub(script) as stub:
        named = {"name": "test"}
        kubeconfig = {
            "current-context": "test",
            "contexts": [{**named, "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{**named, "cluster": {"server": stub.url}}],
            "users": [{**named, "user": {}}],
        }
        (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
        access = KubernetesAccess(kubeconfig=str(folder / "kubeconfig"))
        with open_cluster(DatastoreSettings(type="kubernetes", kubernetes=access), SystemClock()) as cluster:
            yield cluster


def apply(cluster: KubernetesCluster, seconds: float = 60.0) -> None:
    cluster.apply(CONFIG_MAP, ownership=Ownership.RESPECTED, writing=Writing.STORED, deadline=deadline_in(seconds))


def test_a_silent_server_ends_with_the_deadline(tmp_path: Path) -> None:
    with cluster_of(tmp_path, lambda _request: NeverReply()) as cluster:
        for read in (cluster.read_state, cluster.read_inventory):
            with pytest.raises(Unavailable):
                read(deadline=deadline_in(0.2))


def test_a_write_that_is_not_answered_may_have_happened(tmp_path: Path) -> None:
    def script(request: ReceivedRequest) -> StubAction:
        return NOT_FOUND if request.method == "GET" else NeverReply()

    with cluster_of(tmp_path, script) as cluster, pytest.raises(OutcomeUnknown):
        apply(cluster, 0.5)


@pytest.mark.parametrize(
    "reply, error, text",
    [
        (
            SendReply(403, {"message": "no"}),
            Unauthorized,
            "a right is missing: no; if the API server has just started, wait: it does not know every right yet",
        ),
        (
            SendReply(401, {"message": "no"}),
            Unauthorized,
            "no; have they expired, or has netplug been removed from this cluster?",
        ),
        (
            SendReply(409, {"details": {"causes": [
                {"reason": "FieldManagerConflict", "field": ".data.x", "message": 'conflict with "kubectl"'},
            ]}}),
            FieldConflict, '.data.x: conflict with "kubectl"; leave the fields to it, or take them over',
        ),
        (SendReply(422, {"message": "data: too long"}), NetplugError, "data: too long"),
    ],
)  # fmt: skip
def test_an_object_that_is_refused(tmp_path: Path, reply: SendReply, error: type[NetplugError], text: str) -> None:
    def script(request: ReceivedRequest) -> StubAction:
        return NOT_FOUND if request.method == "GET" else reply

    with cluster_of(tmp_path, script) as cluster, pytest.raises(error) as raised:
        apply(cluster)
    assert text in str(raised.value)


def test_an_older_server_with_the_configuration_of_kubeadm(tmp_path: Path) -> None:
    """It has no objects for the addresses of services."""
    kubeadm = {"metadata": {"uid": "u", "resourceVersion": "1"}, "data": {"c": "  serviceSubnet: 10.96.0.0/12\n"}}
    replies: dict[str, object] = {
        "/apis": {"groups": []},
        "/api/v1/nodes": {"items": []},
        "/api/v1/services": {"items": [{}, {}], "metadata": {}},
        "/api/v1/namespaces/kube-system/configmaps/kubeadm-config": kubeadm,
    }

    def script(request: ReceivedRequest) -> StubAction:
        found = replies.get(request.path.partition("?")[0])
        return NOT_FOUND if found is None else SendReply(200, found)

    with cluster_of(tmp_path, script) as cluster:
        found = cluster.read_inventory(deadline=deadline_in())
    assert found.service_prefixes == (Prefix.parse("10.96.0.0/12"),)
    assert (found.crd_mode, found.service_count, found.operated_object, found.daemonsets) == ("", 2, "", ())


def test_a_collection_that_is_refused(tmp_path: Path) -> None:
    def script(request: ReceivedRequest) -> StubAction:
        if request.path.startswith("/apis/networking"):
            return SendReply(422, {"message": "not now"})
        return SendReply(200, {"groups": [], "items": []}) if request.path.count("/") < 4 else NOT_FOUND

    with cluster_of(tmp_path, script) as cluster, pytest.raises(NetplugError) as raised:
        cluster.read_inventory(deadline=deadline_in())
    assert "not now" in str(raised.value)
