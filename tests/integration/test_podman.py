"""Debian's podman with its CNI backend: the page of its quick start, and what its commands leave on the node."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.node import NODE_ADDRESS, PEER_NAMESPACE, NetnsNode
from tests.harness.runtimes.environment import ENVIRONMENT, mount_environment
from tests.harness.runtimes.image import IMAGE
from tests.harness.runtimes.nodes import missing_runtime, open_runtime_node, set_up_podman
from tests.harness.runtimes.pages import read_page, run_page
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.netns, pytest.mark.runtimes]

PAGE = "docs/quickstart-podman.md"
PULLED = "docker.io/library/busybox:1"
GET = """
import sys, urllib.request
print(urllib.request.urlopen(f"http://{sys.argv[1]}/passwd", timeout=5).read().decode())
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[NetnsNode]:
    """A node with podman, the image and the environment of the page."""
    if reason := missing_runtime("podman", "conmon"):
        pytest.skip(reason)
    image: Path = request.getfixturevalue("busybox_image")
    environment: Path = request.getfixturevalue("host_environment")
    with open_runtime_node(tmp_path_factory.mktemp("podman")) as opened:
        mount_environment(opened, environment)
        set_up_podman(opened, image)
        opened.run("podman", "tag", IMAGE, PULLED)
        opened.store.add_pool("main", "10.65.0.0/16")
        yield opened


def test_the_quick_start(node: NetnsNode) -> None:
    """Everything but the first step, which needs the internet."""
    first, *steps = read_page(PAGE)
    assert f"podman pull {PULLED}\n" in first.script
    run_page(node, steps, path=os.environ["PATH"])
    assert node.run("sh", "-c", "ls /etc/cni/net.d /usr/lib/cni | grep netplug || true") == ""
    assert set(node.links()) == {"lo", "up0"}


def is_clean(node: NetnsNode) -> bool:
    return node.store.is_empty and set(node.links()) == {"lo", "up0"}


def fetch(node: NetnsNode) -> str:
    target = f"{NODE_ADDRESS}:8080"
    return node.run_unchecked(sys.executable, "-ISc", GET, target, inside=PEER_NAMESPACE).stdout.strip()


def test_a_published_port_and_a_container_that_stops_and_starts(node: NetnsNode) -> None:
    """Its port leads to it while it runs; nothing is left while it does not run, and it gets its address again."""
    path = f"{ENVIRONMENT}/bin:{os.environ['PATH']}"
    _internet, backend, install, *_rest = read_page(PAGE)
    run_page(node, [backend, install], path=path)
    netplug = {"type": "netplug", "datastore_type": "sqlite", "sqlite_path": node.database}
    plugins = [
        {**netplug, "ipam": {"type": "netplug-ipam"}},
        {"type": "portmap", "snat": True, "capabilities": {"portMappings": True}},
    ]
    text = json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": plugins})
    node.run("sh", "-ec", "mkdir -p /etc/cni/net.d; cat >/etc/cni/net.d/10-netplug.conflist", stdin=text)

    wanted = ("--network", "pods", "--ip", "10.65.0.80", "--mac-address", "02:00:00:00:00:80", "-p", "8080:80")
    node.run("podman", "run", "-d", "--name", "web", *wanted, PULLED, "httpd", "-f", "-h", "/etc")
    wait_until(lambda: bool(fetch(node)), "the published port leads to the container")
    ((_handle, addresses),) = node.store.held().items()
    assert addresses == ("10.65.0.80",)

    node.run("podman", "stop", "-t", "0", "web")
    wait_until(lambda: is_clean(node), "nothing is left of a container that is stopped")
    assert fetch(node) == ""
    node.run("podman", "start", "web")
    wait_until(lambda: bool(fetch(node)), "the container is reached again")
    refused = node.run_unchecked("podman", "run", "--rm", "--network", "pods", "--ip", "10.65.0.80", PULLED, "true")
    assert refused.returncode != 0
    assert "10.65.0.80" in refused.stderr
    assert len(node.store.handles()) == 1
    node.run("podman", "rm", "-f", "-t", "0", "web")
    wait_until(lambda: is_clean(node), "nothing is left of a container that is removed")
    assert fetch(node) == ""
