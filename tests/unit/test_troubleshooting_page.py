"""The page of troubles quotes what the product really says, and names commands that it has."""

import os
import re
from pathlib import Path

import pytest

from netplug_backends.host.requirements import Environment, find_host_problems, require_trusted
from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.dataplane.protocol import LinkExists
from netplug_core.errors import ConfigurationError, LimitedConnectivity, NetplugError, UnhealthyStatus
from netplug_core.netconf.model import NetConf
from netplug_core.records import Malformed
from netplug_core.testing.clock import ManualClock
from tests.harness.cni_node import DEFAULT_CONTAINER, CNINodeHarness
from tests.harness.ctl import ToolHarness

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()


@pytest.fixture
def node() -> CNINodeHarness:
    made = CNINodeHarness()
    made.add_pool("one", "10.65.0.0/32")
    return made


def refusal(node: CNINodeHarness, **changes: object) -> str:
    with pytest.raises(NetplugError) as refused:
        node.add(DEFAULT_CONTAINER, **changes)
    return str(refused.value)


def quoted(text: str) -> None:
    """Fail unless the page quotes a part of the text, in backticks."""
    quotes = [quote for quote in re.findall(r"`([^`]+)`", PAGE) if len(quote) > len("mkdir -p")]
    assert any(quote in text for quote in quotes), text


def test_what_an_add_says(node: CNINodeHarness) -> None:
    quoted(refusal(node, ipam={"type": "netplug-ipam", "ipv4_pools": ["spare"]}))
    node.add()
    quoted(str(LinkExists("eth0", "/run/netns/c1")))
    quoted(refusal(node))
    empty = CNINodeHarness()
    empty.add_pool("one", "10.65.0.0/32")
    empty.set_ready(is_ready=False)
    quoted(refusal(empty))


def test_what_a_full_pool_and_a_node_that_does_not_forward_say(node: CNINodeHarness) -> None:
    node.dataplane.node_settings.update({"net/ipv4/ip_forward": "0"})
    with pytest.raises(LimitedConnectivity) as limited:
        node.run("STATUS")
    quoted(str(limited.value))
    node.add()
    with pytest.raises(UnhealthyStatus) as full:
        node.run("STATUS")
    quoted(str(full.value))


def test_what_install_host_says(tmp_path: Path) -> None:
    (tmp_path / "etc/containerd").mkdir(parents=True)
    (tmp_path / "etc/containerd/config.toml").write_text("version = 2")
    found = find_host_problems("/usr/lib/cni", str(tmp_path))
    quoted(next(text for text in found if "containerd does not look" in text))
    if os.geteuid() == 0:
        tmp_path.chmod(0o777)
        (tmp_path / "python").write_text("")
        with pytest.raises(ConfigurationError) as refused:
            require_trusted(Environment(interpreter=str(tmp_path / "python"), settings=(), libraries=()))
        quoted(str(refused.value))


def test_a_damaged_record_is_quoted() -> None:
    quoted(str(Malformed("IPPool(main)", "expected a text")))


def test_its_folders_are_the_defaults() -> None:
    assert f"`{NetConf().release_record_dir}`" in PAGE


def test_its_commands_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    harness = ToolHarness(tmp_path, capsys, clock, MemoryDatastore(clock=clock))
    commands = {tuple(text.split()[1:3]) for text in re.findall(r"`(netplugctl [^`]*)`", PAGE)}
    assert len(commands) >= 3
    for command in commands:
        words = [word for word in command if word != "ippools"]
        assert harness.run_command(*words, "--help") == 0, command
