"""Which plugins the configuration lists of a host need, and which of them are missing."""

from __future__ import annotations

import json

import pytest

from netplug_core.cni.plugins import LOOPBACK, MissingPlugin, NeededPlugin, find_missing, needed_plugins

LIST = "/etc/cni/net.d/10-netplug.conflist"


def chain(*types: object) -> str:
    return json.dumps({"name": "net", "plugins": [{"type": name} for name in types]})


def names(text: str, *, calls_loopback: bool = False) -> list[str]:
    return [plugin.name for plugin in needed_plugins({LIST: text}, calls_loopback=calls_loopback)]


def test_what_a_list_chains_with_netplug_is_needed_and_netplug_itself_is_not() -> None:
    assert names(chain("netplug", "portmap", "bandwidth", "portmap")) == ["portmap", "bandwidth"]
    assert names(chain("netplug")) == []
    assert needed_plugins({LIST: chain("netplug", "portmap")}, calls_loopback=False) == (NeededPlugin("portmap", LIST),)


def test_loopback_is_needed_where_the_runtime_calls_it_and_a_list_names_netplug() -> None:
    assert names(chain("netplug", "tuning"), calls_loopback=True) == ["loopback", "tuning"]
    assert needed_plugins({LIST: chain("netplug", "loopback")}, calls_loopback=True) == (LOOPBACK,)
    assert names(chain("bridge"), calls_loopback=True) == []
    assert needed_plugins({}, calls_loopback=True) == ()


def test_the_list_of_another_network_needs_nothing() -> None:
    assert names(chain("bridge", "portmap")) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        "[]",
        "7",
        '{"plugins": 7}',
        '{"plugins": {"type": "netplug"}}',
        '{"plugins": [7, null, {"type": 7}, {"type": ""}, {}]}',
    ],
)
def test_a_damaged_list_needs_nothing_and_harms_no_other(text: str) -> None:
    files = {"/etc/cni/net.d/00-damaged.conflist": text, LIST: chain("netplug", "portmap")}
    assert needed_plugins(files, calls_loopback=False) == (NeededPlugin("portmap", LIST),)


def test_a_type_that_is_a_path_is_none() -> None:
    assert names(chain("netplug", "../portmap", "/bin/sh", "a\0b", "tuning")) == ["tuning"]


def test_a_plugin_is_missing_if_it_is_in_none_of_the_folders() -> None:
    needed = (LOOPBACK, NeededPlugin("portmap", LIST), NeededPlugin("tuning", LIST))
    there = {"/opt/cni/bin/loopback", "/usr/lib/cni/tuning"}
    folders = ("/opt/cni/bin", "/usr/lib/cni")
    (missing,) = find_missing(needed, folders, there.__contains__)
    assert missing == MissingPlugin(NeededPlugin("portmap", LIST), folders)
    assert str(missing) == (
        f"portmap is not in /opt/cni/bin or /usr/lib/cni: {LIST} names it, so no pod starts without it"
    )
    assert str(MissingPlugin(LOOPBACK, ("/opt/cni/bin",))) == (
        "loopback is not in /opt/cni/bin: containerd starts no pod without it"
    )
