"""A container for the node process: a root of its own, and the node's whole file system below one folder of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from tests.harness.node import NetnsNode
from tests.harness.node_process import NO_VARIABLES, ROOT, NodeProcess, wait_until_listening

__all__ = ["start_contained_node_process"]

_HOST_ROOT = "/host"
_PROGRAMS = ("bin", "lib", "lib64", "sbin", "usr")
# The machine's programs and this checkout are the container's image. All else is missing, or its own.
_SCRIPT = """
set -e
root=$1 image=$2
shift 2
mount --make-rprivate /
mount -t tmpfs none $root
mkdir $root/host $root/proc $root/dev $root/tmp $root/run
mount --rbind / $root/host
mount -t proc none $root/proc
mount --rbind /dev $root/dev
for path in $image; do
    if [ -L $path ]; then cp -P $path $root$path; continue; fi
    mkdir -p $root$path
    mount --bind $path $root$path
done
cd $root
exec unshare --root=$root -- "$@"
"""


def start_contained_node_process(
    node: NetnsNode, *options: str, script: str = "", environ: Mapping[str, str] = NO_VARIABLES
) -> NodeProcess:
    """Start a node process in a container on a node that has processes of its own; it listens when this returns.

    ``script`` is run in the container before, so that it has files of its own.
    """
    folder = node.file("contained")
    root = node.file("container")
    os.makedirs(folder)
    os.makedirs(root)
    path, log = f"{folder}/node.sock", f"{folder}/node.log"
    programs = [f"/{name}" for name in _PROGRAMS if os.path.lexists(f"/{name}")]
    image = " ".join(dict.fromkeys((*programs, sys.base_prefix, ROOT, os.path.realpath(sys.prefix))))
    variables = [f"{name}={text}" for name, text in environ.items()]
    command = (sys.executable, "-m", "netplug_cli.wiring.node", "--host-root", _HOST_ROOT, "--socket", path, *options)
    inside = ("sh", "-ec", f'{script}\ncd {ROOT}; exec "$@"', "sh", "env", *variables, *command)
    argv = ("unshare", "--mount", "--", "sh", "-c", _SCRIPT, "sh", root, image, *inside)
    child = node.start_process("sh", "-c", f'exec "$@" 2>>{log}', "sh", *argv)
    return wait_until_listening(NodeProcess(child, path, log))
