"""A URL to an open network: backends and host by entry points, and refusals that name the argument."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import netplug_core
from netplug_core.errors import ConfigurationError, InvalidArgument
from netplug_core.registry import UnknownBackend
from netplug_core.settings.apiconfig import InvalidURL
from netplug_core.settings.model import DatastoreSettings


def test_each_memory_is_a_store_of_its_own() -> None:
    with netplug_core.open("memory:") as one, netplug_core.open("memory:") as other:
        one.create_pool("10.0.0.0/24")
        assert len(one.pools()) == 1
        assert other.pools() == ()


def test_a_file_keeps_its_addresses_from_one_program_to_the_next(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/netplug.db"
    with netplug_core.open(url) as net:
        net.create_pool("10.0.0.0/24")
        held = net.assign("job-1", ipv4=2)
    with netplug_core.open(url) as net:
        assert net.held("job-1") == held


def test_settings_take_the_place_of_a_url() -> None:
    with netplug_core.open(DatastoreSettings(type="memory"), timeout_s=2.5) as net:
        assert net.store.description.name == "memory"
        assert net.timeout_s == 2.5
    with pytest.raises(UnknownBackend), netplug_core.open(DatastoreSettings(type="oracle")):
        pass


@pytest.mark.parametrize("arguments, message", [
    ({"url": 5}, "open(url): 5 is not accepted; a URL such as memory: is expected, or DatastoreSettings"),
    ({"node": None}, "open(node): None is not accepted; the name of a node is expected, of printable characters, or "),
    ({"node": "a\0"}, "open(node): 'a\\x00' is not accepted; the name of a node is expected, of printable "),
    ({"timout_s": 1}, "open(timout_s): 1 is not accepted; there is no such argument; there are node, timeout_s, host"),
    ({"timeout_s": 0}, "open(timeout_s): 0 is not accepted; a number of seconds greater than 0 is expected"),
    ({"timeout_s": "5"}, "open(timeout_s): '5' is not accepted; "),
    ({"timeout_s": True}, "open(timeout_s): True is not accepted; "),
    ({"timeout_s": float("nan")}, "open(timeout_s): nan is not accepted; "),
    ({"host": "here"}, "open(host): 'here' is not accepted; a HostServices is expected"),
])  # fmt: skip
def test_an_argument_is_checked_at_once(arguments: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"url": "memory:", **arguments}
    with pytest.raises(InvalidArgument) as refusal:
        netplug_core.open(**given)
    assert str(refusal.value) == message or str(refusal.value).startswith(message)


def test_a_program_without_the_with_block_gets_an_error_that_names_it() -> None:
    forgotten: Any = netplug_core.open("memory:")
    with pytest.raises(AttributeError, match="no attribute 'create_pool': use it in a with block, such as: with netpl"):
        forgotten.create_pool("10.0.0.0/24")
    with forgotten as net:
        assert net.pools() == ()


@pytest.mark.parametrize("text", ["N ode", "job/1", "ü" * 2000])
def test_every_printable_text_is_a_handle_and_a_node(tmp_path: Path, text: str) -> None:
    """As in the plugin, whose node names and handles have neither an alphabet nor a length."""
    for url in ("memory:", f"sqlite://{tmp_path}/netplug.db"):
        with netplug_core.open(url, node=text) as net:
            net.create_pool("10.0.0.0/24")
            assert net.assign(text, ipv4=1) == net.held(text) == net.release(text)


def test_a_url_is_judged_at_once_and_its_backend_is_looked_for_when_it_is_opened() -> None:
    with pytest.raises(InvalidURL, match="it does not begin with the name of a datastore"):
        netplug_core.open("netplug.db")
    opening = netplug_core.open("oracle://scott:tiger@host")
    with pytest.raises(InvalidURL) as refusal, opening:
        pass
    assert str(refusal.value) == (
        "url: 'oracle://…@host' is not accepted: no datastore is called 'oracle'; "
        "registered: etcdv3, kubernetes, memory, sqlite"
    )


def test_a_name_that_is_no_datastore_is_none() -> None:
    with pytest.raises(InvalidURL, match="no datastore is called 'linux'"), netplug_core.open("linux:"):
        pass


def test_what_a_backend_cannot_use_is_its_own_refusal() -> None:
    opening = netplug_core.open("etcd://host?key_file=/nowhere")
    with pytest.raises(ConfigurationError), opening:
        pass


def test_the_core_opens_a_datastore_without_importing_other_backends() -> None:
    script = """
import sys, netplug_core
with netplug_core.open("memory:") as net:
    net.create_pool("10.0.0.0/24")
    net.assign("job-1", ipv4=2)
print(*sorted(name for name in sys.modules if name.startswith("netplug_backends.")))
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {name.split(".")[1] for name in ran.stdout.split()} == {"blocks", "host", "memory"}
