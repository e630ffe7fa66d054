"""The names of netplug's own backends and the modules of their hooks.

It is a static table, so that an ADD does not read the entry points of all installed packages. A test holds it and the
entry points in ``pyproject.toml`` to each other.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CATALOG"]

CATALOG: Mapping[str, Mapping[str, str]] = {
    "datastore": {
        "etcdv3": "netplug_backends.etcdv3.hookimpls",
        "kubernetes": "netplug_backends.kubernetes.hookimpls",
        "memory": "netplug_backends.memory.hookimpls",
        "sqlite": "netplug_backends.sqlite.hookimpls",
    },
    "ipam": {
        "delegate": "netplug_backends.delegate.hookimpls",
        "host-local": "netplug_backends.hostlocal.hookimpls",
        "netplug-ipam": "netplug_backends.blocks.hookimpls",
    },
    "dataplane": {"linux": "netplug_backends.linux.hookimpls", "memory": "netplug_backends.memory.hookimpls"},
    "bgp": {"bird": "netplug_backends.bird.hookimpls", "memory": "netplug_backends.memory.hookimpls"},
    "host": {"host": "netplug_backends.host.hookimpls"},
    "orchestrator": {
        "kubernetes": "netplug_backends.kubernetes.hookimpls",
        "memory": "netplug_backends.memory.hookimpls",
    },
}
