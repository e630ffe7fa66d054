"""A node with a container runtime: containerd or podman of Debian, and everything that it starts, in namespaces.

The node has its own network, mounts, processes, host name and System V objects. It sees the machine's files, and what
it writes below ``/etc``, ``/opt``, ``/usr/lib/cni`` and ``/var`` goes into memory: it is gone with the node.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import glob
from itertools import product
from pathlib import Path

from tests.harness.node import DEBIAN_PLUGINS, NetnsNode, missing_requirement, open_node
from tests.harness.runtimes.cri import CRIRuntime, open_cri
from tests.harness.runtimes.image import BUSYBOX, IMAGE
from tests.harness.waiting import wait_until

__all__ = ["missing_runtime", "open_runtime_node", "replace_containerd", "run_containerd", "set_up_podman"]

_CONTAINERD_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr")
_CONTAINERD_FILE = "/etc/containerd/config.toml"
_CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
_CGROUP_PARENTS = ("netplug-tests", "libpod_parent", "default", "k8s.io")

# The files of the machine below, what the node writes above, in memory. What containerd and podman unpack must not lie
# on such a mount, because they make some themselves. sysfs shows the interfaces of the namespace that mounted it; the
# control groups stay those of the machine.
_PRIVATE_FILES = """
set -e
for folder in etc opt usr/lib/cni var; do
    mkdir -p /run/private/$folder/upper /run/private/$folder/work /$folder
    mount -t overlay private /$folder \\
        -o lowerdir=/$folder,upperdir=/run/private/$folder/upper,workdir=/run/private/$folder/work
done
for folder in containerd containers; do
    mkdir -p /var/lib/$folder
    mount -t tmpfs none /var/lib/$folder
done
rm -rf /var/log/netplug /var/lib/cni /var/lib/netplug /etc/netplug /etc/cni/net.d/*
mkdir /run/cgroups /run/lock
mount --rbind /sys/fs/cgroup /run/cgroups
mount -t sysfs none /sys
mount --move /run/cgroups /sys/fs/cgroup
"""

# What containerd must be told on a machine without systemd or a registry; everything else is as Debian ships it.
_CRI_SECTION = '[plugins."io.containerd.grpc.v1.cri"]\n'
_PLUGIN_FOLDER = f'bin_dir = "{DEBIAN_PLUGINS}"'
_CONTAINERD_SETTINGS = f"""{_CRI_SECTION}
    sandbox_image = "{IMAGE}"
    disable_apparmor = true
    restrict_oom_score_adj = true
"""

_PODMAN_FILES = {
    "/etc/containers/policy.json": '{"default": [{"type": "insecureAcceptAnything"}]}',
    "/etc/containers/containers.conf.d/machine.conf": """
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
image_copy_tmp_dir = "/run"
[containers]
log_driver = "k8s-file"
""",
}


def missing_runtime(*programs: str) -> str:
    """Why tests with these container runtimes cannot run on this machine; empty when they can."""
    return missing_requirement("runc", BUSYBOX, "/usr/lib/cni/portmap", "/usr/lib/cni/loopback", *programs)


@contextmanager
def open_runtime_node(folder: Path) -> Iterator[NetnsNode]:
    """A new node without a runtime; the files below ``folder`` are the machine's."""
    with open_node(str(folder), private_files=_PRIVATE_FILES) as node:
        try:
            yield node
        finally:
            node.close()
            _remove_empty_cgroups()


def replace_containerd(node: NetnsNode, folder: Path) -> None:
    """Put another release of containerd in the place of Debian's, on this node only."""
    for name in _CONTAINERD_PROGRAMS:
        node.run("mount", "--bind", str(folder / name), f"/usr/bin/{name}")


@contextmanager
def run_containerd(node: NetnsNode, *images: Path, plugin_folder: str = "") -> Iterator[CRIRuntime]:
    """The node's containerd with Debian's configuration; it has the images. Release 2 reads that file too.

    It looks for plugins in ``plugin_folder`` instead of in Debian's.
    """
    shipped = node.run("cat", _CONTAINERD_FILE)
    assert shipped.count(_CRI_SECTION) == shipped.count(_PLUGIN_FOLDER) == 1, shipped
    changed = shipped.replace(_CRI_SECTION, _CONTAINERD_SETTINGS)
    if plugin_folder:
        changed = changed.replace(_PLUGIN_FOLDER, f'bin_dir = "{plugin_folder}"')
    node.run("tee", _CONTAINERD_FILE, stdin=changed)
    log = Path(node.file("containerd.log"))
    with log.open("w") as output:
        daemon = subprocess.Popen(
            node.entering("", ("containerd",)), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        wait_until(
            lambda: daemon.poll() is not None or node.run_unchecked("ctr", "version").returncode == 0,
            "containerd answers",
        )
        assert daemon.poll() is None, log.read_text()
        for namespace, image in product(("k8s.io", "default"), images):
            node.run("ctr", "-n", namespace, "images", "import", str(image))
        with open_cri(f"/proc/{node.pid}/root{_CONTAINERD_SOCKET}", cgroup_parent=f"/{_CGROUP_PARENTS[0]}") as runtime:
            yield runtime
    finally:
        daemon.kill()
        daemon.wait()


def set_up_podman(node: NetnsNode, image: Path) -> None:
    """Debian's podman on the node, which has the image; nothing about networks is configured."""
    for path, text in _PODMAN_FILES.items():
        node.run("sh", "-c", f"mkdir -p {os.path.dirname(path)} && cat > {path}", stdin=text)
    node.run("podman", "load", "-q", "-i", str(image))


def _remove_empty_cgroups() -> None:
    """Remove the control groups that runtimes made and left; one that has processes cannot be removed."""
    for parent in _CGROUP_PARENTS:
        for top in (*glob(f"/sys/fs/cgroup/{parent}"), *glob(f"/sys/fs/cgroup/*/{parent}")):
            for path, _folders, _files in os.walk(top, topdown=False):
                with suppress(OSError):
                    os.rmdir(path)
