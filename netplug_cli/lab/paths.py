"""The paths of a lab: what is where in its folder. A value; ``folder`` locks and fills the real one."""

from __future__ import annotations

import os.path

from attrs import frozen

__all__ = ["LabFolder"]


@frozen
class LabFolder:
    """The folder of one lab, and what is where in it."""

    path: str

    @property
    def record_file(self) -> str:
        """What the lab consists of."""
        return self._path("lab.json")

    @property
    def partial_record_file(self) -> str:
        """The record while it is being written."""
        return self._path(".lab.json.new")

    @property
    def subfolders(self) -> tuple[str, ...]:
        """The folders inside; nothing else of a lab is beside them and the record."""
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
        """What the plugins logged."""
        return self._path("log", "cni.log")

    @property
    def nodename_file(self) -> str:
        """Where a node process would write the node's name; a lab has none."""
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
    def processes_dir(self) -> str:
        """The ids of the lab's processes, a file each."""
        return self._path("run")

    @property
    def kubeconfig_file(self) -> str:
        """The way to the lab's own API server."""
        return self._path("conf", "kubeconfig")

    @property
    def tokens_file(self) -> str:
        """Whom that server knows."""
        return self._path("conf", "tokens.csv")

    def server_dir(self, name: str) -> str:
        """Where a server of the lab's own keeps everything; it makes the folder."""
        return self._path("servers", name)

    def process_log(self, name: str) -> str:
        """What a process of the lab says."""
        return self._path("log", f"{name}.log")

    @property
    def netns_dir(self) -> str:
        """The files that namespaces are pinned over."""
        return self._path("netns")

    def netns(self, name: str) -> str:
        """The namespace of the node or of a pod."""
        return self._path("netns", name)

    def _path(self, *names: str) -> str:
        return os.path.join(self.path, *names)
