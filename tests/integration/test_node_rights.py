"""The rights on the node that the plugin needs: each command as root with two capabilities, and with one of them."""

from __future__ import annotations

import json

import pytest

from tests.harness.node import CNIRuntime, NetnsNode, PodNamespace

pytestmark = pytest.mark.netns

CAPABILITIES = ("net_admin", "sys_admin")


def call(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, command: str, capabilities: tuple[str, ...]
) -> dict[str, object]:
    """The answer of the plugin, called as root with no other capabilities; empty if it prints nothing."""
    bounding_set = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    done = node.run_unchecked(
        *("setpriv", f"--bounding-set={bounding_set}", runtime.executable("netplug")),
        stdin=json.dumps(runtime.make_netconf(ipam={"type": "netplug-ipam", "assign_ipv6": "true"})),
        env=runtime.make_environ(command, pod),
    )
    answer: dict[str, object] = json.loads(done.stdout or "{}")
    return answer


def test_two_capabilities_are_enough(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    added = call(node, runtime, pod, "ADD", CAPABILITIES)
    assert "ips" in added, added
    assert call(node, runtime, pod, "DEL", CAPABILITIES) == {}
    assert node.store.is_empty
    assert set(node.links()) == {"lo", "up0"}


@pytest.mark.parametrize("missing", CAPABILITIES)
def test_each_capability_is_needed_and_nothing_is_left_without_it(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, missing: str
) -> None:
    answer = call(node, runtime, pod, "ADD", tuple(name for name in CAPABILITIES if name != missing))
    assert "Operation not permitted" in str(answer["msg"])
    assert 120 <= int(str(answer["code"])) < 140
    assert node.store.is_empty
    assert set(node.links()) == {"lo", "up0"}
