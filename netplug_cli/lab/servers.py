"""What a lab runs itself inside its node's namespace: its node process, and the servers of its datastore.

They store everything in the lab's folder. The API server makes its own certificate, whose key also signs the tokens of
accounts. A user who can read the lab's kubeconfig has all rights.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence

from netplug_backends.host.atomic_files import PRIVATE_FILE_MODE, replace_file
from netplug_cli.lab.folder import LockedFolder
from netplug_cli.lab.model import NODE_ADDRESSES, NODE_NETNS, LabError
from netplug_cli.lab.namespaces import Namespaces
from netplug_cli.lab.paths import LabFolder
from netplug_cli.lab.processes import LabProcess, start_process
from netplug_cli.lab.stores import API_PORT, API_URL, ETCD_PORT, ETCD_URL, OwnServers
from netplug_core.clock import Clock, Deadline
from netplug_core.errors import NetplugError

__all__ = ["require_etcd", "start_node_process", "start_servers", "wait_until_ready"]

_PEER_URL = "http://127.0.0.1:2380"
_TIMEOUT_S, _POLL_S = 180.0, 0.05
_ACCOUNT = "lab"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def start_servers(namespaces: Namespaces, locked: LockedFolder, store: OwnServers) -> tuple[LabProcess, ...]:
    """Start the servers that a store needs; they may not be ready yet."""
    folder = locked.folder
    with namespaces.enter(folder.netns(NODE_NETNS)):
        etcd = start_process(locked, "etcd", [store.etcd, *_etcd_arguments(folder)])
        if not store.apiserver:
            return (etcd,)
        _write_accounts(folder)
        return (etcd, start_process(locked, "kube-apiserver", [store.apiserver, *_apiserver_arguments(folder)]))


def start_node_process(
    namespaces: Namespaces, locked: LockedFolder, command: Sequence[str], clock: Clock
) -> LabProcess:
    """Start the node process; it listens when this returns, and may still load its libraries.

    It gets none of this process's variables, which may name a datastore that is not the lab's. It makes the folder of
    endpoints' status in the lab's own.

    Raises:
        LabError: it has ended, or it takes too long.
    """
    path = locked.folder.node_socket
    environ = {"PATH": _PATH, "ENDPOINT_STATUS_DIR": locked.folder.endpoint_status_dir}
    with namespaces.enter(locked.folder.netns(NODE_NETNS)):
        process = start_process(locked, "netplug-node", [*command, "--socket", path], environ)

    def require_listening() -> None:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(path)

    wait_until_ready(require_listening, (process,), clock)
    return process


def wait_until_ready(require_ready: Callable[[], object], started: Sequence[LabProcess], clock: Clock) -> None:
    """Return when ``require_ready`` no longer raises.

    Raises:
        LabError: a server has ended, or it takes too long.
    """
    deadline = Deadline.after(clock, _TIMEOUT_S)
    while True:
        for server in started:
            server.require_alive()
        try:
            require_ready()
        except (NetplugError, OSError) as error:
            if deadline.has_passed:
                raise LabError(f"{started[-1].name} is not ready after {_TIMEOUT_S:g} s: {error}") from error
            clock.sleep(_POLL_S)
        else:
            return


def require_etcd(namespaces: Namespaces, folder: LabFolder) -> None:
    """Raise OSError unless the lab's etcd accepts clients, which it does when it has a leader."""
    with namespaces.enter(folder.netns(NODE_NETNS)):
        socket.create_connection(("127.0.0.1", ETCD_PORT), timeout=_POLL_S).close()


def _etcd_arguments(folder: LabFolder) -> Iterator[str]:
    yield f"--data-dir={folder.server_dir('etcd')}"
    yield f"--listen-client-urls={ETCD_URL}"
    yield f"--advertise-client-urls={ETCD_URL}"
    yield f"--listen-peer-urls={_PEER_URL}"
    yield f"--initial-advertise-peer-urls={_PEER_URL}"
    yield f"--initial-cluster=default={_PEER_URL}"
    yield "--log-level=warn"


def _apiserver_arguments(folder: LabFolder) -> Iterator[str]:
    key = os.path.join(folder.server_dir("kube-apiserver"), "apiserver.key")
    yield f"--etcd-servers={ETCD_URL}"
    yield "--bind-address=127.0.0.1"
    yield f"--secure-port={API_PORT}"
    # Without it, the server looks for a default route, which a lab's node does not have.
    yield f"--advertise-address={NODE_ADDRESSES[0]}"
    yield f"--cert-dir={folder.server_dir('kube-apiserver')}"
    yield "--service-account-issuer=https://kubernetes.default.svc"
    yield f"--service-account-key-file={key}"
    yield f"--service-account-signing-key-file={key}"
    yield f"--token-auth-file={folder.tokens_file}"
    yield "--authorization-mode=RBAC"
    yield "--service-cluster-ip-range=10.98.2.0/24"
    yield "--endpoint-reconciler-type=none"


def _write_accounts(folder: LabFolder) -> None:
    """Write a token with all rights, and the kubeconfig with it, for users who can read the lab's files."""
    token = secrets.token_hex(16)
    authority = os.path.join(folder.server_dir("kube-apiserver"), "apiserver.crt")
    parts: dict[str, object] = {
        "clusters": [{"name": _ACCOUNT, "cluster": {"server": API_URL, "certificate-authority": authority}}],
        "users": [{"name": _ACCOUNT, "user": {"token": token}}],
        "contexts": [{"name": _ACCOUNT, "context": {"cluster": _ACCOUNT, "user": _ACCOUNT}}],
    }
    config = {"apiVersion": "v1", "kind": "Config", "current-context": _ACCOUNT, **parts}
    replace_file(folder.tokens_file, f"{token},{_ACCOUNT},{_ACCOUNT},system:masters\n", PRIVATE_FILE_MODE)
    replace_file(folder.kubeconfig_file, json.dumps(config, indent=2) + "\n", PRIVATE_FILE_MODE)
