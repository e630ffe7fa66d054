"""The paths in a lab's folder, as a value; ``folder`` locks and fills the folder itself."""

from __future__ import annotations

import os.path

from attrs import frozen

__all__ = ["LabFolder"]


@frozen
class LabFolder:
    """The folder of one lab, and the paths in it."""

    path: str

    @property
    def record_file(self) -> str:
        """The record of the lab."""
        return self._path("lab.json")

    @property
    def subfolders(self) -> tuple[str, ...]:
        """The folders inside; a lab has only these and its record."""
        return tuple(self._path(part) for part in ("bin", "conf", "log", "netns", "run", "servers", "store"))

    @property
    def bin_dir(self) -> str:
        """The plugin executables."""
        return self._path("bin")

    @property
    def conflist_file(self) -> str:
        """The configuration list."""
        return self._path("conf", "10-netplug.conflist")

    @property
    def pools_file(self) -> str:
        """The IP pools, as ``netplugctl create -f`` takes them."""
        return self._path("conf", "pools.yaml")

    @property
    def store_file(self) -> str:
        """The datastore."""
        return self._path("store", "netplug.db")

    @property
    def log_file(self) -> str:
        """The log of the plugins."""
        return self._path("log", "cni.log")

    @property
    def nodename_file(self) -> str:
        """Where a node process would write the node's name."""
        return self._path("run", "nodename")

    @property
    def mtu_file(self) -> str:
        """Where a node process would write the MTU."""
        return self._path("run", "mtu")

    @property
    def ipam_lock_file(self) -> str:
        """The lock between the plugins of this node."""
        return self._path("run", "ipam.lock")

    @property
    def release_record_dir(self) -> str:
        """What DELs could not release while the datastore was away."""
        return self._path("run", "release-records")

    @property
    def endpoint_status_dir(self) -> str:
        """The folder in which the node process would say which endpoints are programmed."""
        return self._path("run", "endpoint-status")

    @property
    def node_socket(self) -> str:
        """Where the lab's node process listens."""
        return self._path("run", "node.sock")

    @property
    def processes_dir(self) -> str:
        """The ids of the lab's processes, a file each."""
        return self._path("run")

    @property
    def kubeconfig_file(self) -> str:
        """The kubeconfig of the lab's own API server."""
        return self._path("conf", "kubeconfig")

    @property
    def tokens_file(self) -> str:
        """The tokens of that server's users."""
        return self._path("conf", "tokens.csv")

    def server_dir(self, name: str) -> str:
        """The data folder of a server of the lab's own; the server makes it."""
        return self._path("servers", name)

    def process_log(self, name: str) -> str:
        """The log of a process of the lab."""
        return self._path("log", f"{name}.log")

    @property
    def netns_dir(self) -> str:
        """The folder of the files to which namespaces are pinned."""
        return self._path("netns")

    def netns(self, name: str) -> str:
        """The namespace of the node or of a pod."""
        return self._path("netns", name)

    def _path(self, *names: str) -> str:
        return os.path.join(self.path, *names)
