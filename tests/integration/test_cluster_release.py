"""The release of the cluster on a real API server: stored with the account of the pod, not with that of the plugin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import frozen

from netplug_backends.host.machine import HostMachine, SystemClock
from netplug_backends.host.placing import run_here
from netplug_backends.kubernetes.names import CrdMode
from netplug_cli.wiring.node_process import _open_world, _store_release
from netplug_core.errors import Unauthorized
from netplug_core.flows.node.registration import NodeWorld
from netplug_core.netconf.model import NetConf
from netplug_core.settings.model import DatastoreSettings, KubernetesAccess
from tests.harness.node_server import Lines
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import delete_custom_objects, install_definitions, install_role
from tests.harness.servers.node_account import NAMESPACE, install_node_account
from tests.harness.tool_user import ToolUser

pytestmark = pytest.mark.apiserver


@frozen
class NodePod:
    """A node process in a pod: its variables, the files of its account, and the plugin's access for all else."""

    environ: dict[str, str]
    account_folder: str
    world: NodeWorld
    settings: DatastoreSettings

    def store(self, environ: dict[str, str]) -> bool:
        return _store_release(
            environ, run_here, self.world, self.settings, has_just_started=True, account_folder=self.account_folder
        )


@pytest.fixture(params=list(CrdMode), ids=lambda mode: mode.name)
def mode(request: pytest.FixtureRequest, api_server: ApiServer) -> CrdMode:
    found: CrdMode = request.param
    install_definitions(api_server, found)
    delete_custom_objects(api_server, found)
    return found


@pytest.fixture
def pod(api_server: ApiServer, mode: CrdMode, tmp_path: Path) -> Iterator[NodePod]:
    account = tmp_path / "account"
    account.mkdir()
    plugin_token = install_role(api_server)
    (account / "token").write_text(install_node_account(api_server))
    (account / "ca.crt").write_bytes(Path(api_server.ca_file).read_bytes())
    (account / "namespace").write_text(NAMESPACE)
    environ = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(api_server.port),
        "KUBERNETES_SERVICE_PROTOCOL": "https",
    }
    access = KubernetesAccess(kubeconfig=api_server.write_kubeconfig(plugin_token, name="plugin"))
    settings = DatastoreSettings(type="kubernetes", kubernetes=access, api_group=mode.group)
    with _open_world(HostMachine(), SystemClock(), Lines(), NetConf(datastore=settings)) as world:
        yield NodePod(environ, str(account), world, settings)


def test_netplugctl_names_the_release_that_a_node_has_stored(
    pod: NodePod, mode: CrdMode, api_server: ApiServer, tmp_path: Path
) -> None:
    assert pod.store(pod.environ)
    assert not pod.store(pod.environ)
    access = {"kubeconfig": api_server.write_kubeconfig(), "netplugAPIGroup": mode.group}
    user = ToolUser(tmp_path, {"datastoreType": "kubernetes", **access})
    assert "Cluster Version: v3.33.0\nCluster Type: kdd\n" in user.run_command("version").out


def test_the_account_of_the_plugin_may_not_store_it(pod: NodePod) -> None:
    """Outside a pod there is no other one."""
    with pytest.raises(Unauthorized, match='cannot create resource "clusterinformations"'):
        pod.store({})
