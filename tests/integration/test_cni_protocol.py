"""The CNI protocol, held by the installed executables: flags, variables, versions, errors, namespaces.

Numbers are those of the black-box checks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Final

import pytest

from tests.harness.node import CNIRuntime, NetnsNode, PodNamespace
from tests.integration.conftest import open_default_node

pytestmark = pytest.mark.netns

PLUGINS: Final = ("netplug", "netplug-ipam")
SUPPORTED: Final = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetnsNode]:
    """One node for all: hardly a call here gets as far as doing something, and those that do undo it."""
    with open_default_node(str(tmp_path_factory.mktemp("node"))) as opened:
        yield opened


def is_untouched(node: NetnsNode) -> bool:
    """Whether no call got as far as an address or an interface."""
    return node.store.is_empty and set(node.links()) == {"lo", "up0"}


@pytest.mark.parametrize("plugin", PLUGINS)
def test_flag_v_prints_the_version_and_nothing_else(node: NetnsNode, runtime: CNIRuntime, plugin: str) -> None:
    """Check 2: neither variables nor standard input are looked at."""
    done = node.run_unchecked(runtime.executable(plugin), "-v", stdin="{broken", env={"CNI_COMMAND": "FOO"})

    assert done.returncode == 0
    assert done.stdout.count("\n") == 1
    assert done.stdout.strip().startswith("3.")


@pytest.mark.parametrize("plugin", PLUGINS)
def test_without_any_variable_it_says_what_it_is(node: NetnsNode, runtime: CNIRuntime, plugin: str) -> None:
    """Check 1: on standard error, with every version it speaks; exit 0, and standard output stays empty."""
    done = node.run_unchecked(runtime.executable(plugin), env={})

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith(plugin)
    assert all(version in done.stderr for version in SUPPORTED)


def test_an_unknown_command_is_named(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 4: code 4."""
    reply = runtime.call("FOO", runtime.make_netconf(), pod)

    assert reply.code == 4
    assert "FOO" in reply.text


def test_missing_variables_are_named_together(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 5: an ADD without namespace and interface, code 4."""
    reply = runtime.call("ADD", runtime.make_netconf(), pod, CNI_NETNS=None, CNI_IFNAME=None)

    assert reply.code == 4
    assert "CNI_NETNS" in reply.text
    assert "CNI_IFNAME" in reply.text
    assert is_untouched(node)


def test_del_needs_no_namespace(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 6: neither an absent nor an empty CNI_NETNS is a mistake of the environment."""
    runtime.delete(runtime.make_netconf(), pod, CNI_NETNS=None)
    runtime.delete(runtime.make_netconf(), pod, CNI_NETNS="")
    assert is_untouched(node)


@pytest.mark.parametrize(
    "plugin, ipam",
    [
        ("netplug", "netplug-ipam"),
        ("netplug", "host-local"),  # host-local is in the main plugin
        ("netplug-ipam", "netplug-ipam"),
    ],
)
def test_del_fails_because_of_nothing_that_it_does_not_use(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, plugin: str, ipam: str
) -> None:
    """Whatever CNI_ARGS and the configuration hold by now: else the sandbox could never be removed."""
    ranges = {"subnet": "10.22.0.0/24", "dataDir": node.file("networks")} if ipam == "host-local" else {}
    added = runtime.make_netconf(ipam={"type": ipam, **ranges})
    later = added | {
        "mtu": "large",
        "container_settings": 1,
        "readiness_gates": "x",
        "runtimeConfig": {"ips": 1, "mac": 2},
        "args": [],
        "nodename_file_optional": "no",
        "prevResult": "?",
        "disableGC": "perhaps",
        "policy": "none",
    }
    for arguments in ("IP=10.65.0.9/24", "A=1;", "A=b=c;MAC=x", "IgnoreUnknown=perhaps;K8S_POD_NAME"):
        runtime.add(added, pod, plugin=plugin)
        assert not node.store.is_empty or ipam == "host-local"
        runtime.delete(later, pod, plugin=plugin, CNI_ARGS=arguments)
        assert node.store.is_empty
    if ipam == "host-local":
        assert not [name for name in os.listdir(node.file("networks/net1")) if name.startswith("10.")]


@pytest.mark.parametrize(
    "command, container", [("ADD", "-abc"), ("ADD", "a b"), ("ADD", ""), ("DEL", "-abc"), ("DEL", "a/b")]
)
def test_container_ids_are_judged(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, command: str, container: str
) -> None:
    """Check 7: what the CNI specification does not allow is code 4."""
    reply = runtime.call(command, runtime.make_netconf(), pod, CNI_CONTAINERID=container)

    assert reply.code == 4
    assert "CNI_CONTAINERID" in reply.text


@pytest.mark.parametrize(
    "interface", ["eth0/1", "a:b", "..", "sixteen-letters-", "eth%d", "100%", "all", "default", "à"]
)
def test_interface_names_are_judged(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, interface: str) -> None:
    """Check 7: what the kernel would not take is code 4 before anything is done."""
    reply = runtime.call("ADD", runtime.make_netconf(), pod, CNI_IFNAME=interface)

    assert reply.code == 4
    assert "CNI_IFNAME" in reply.text
    assert is_untouched(node)


def test_an_unknown_version_is_refused_with_those_there_are(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace
) -> None:
    """Check 9: code 1, and nothing is allocated."""
    reply = runtime.call("ADD", runtime.make_netconf(cniVersion="9.9.9"), pod)

    assert reply.code == 1
    assert all(version in str(reply.error["details"]) for version in SUPPORTED)
    assert is_untouched(node)


@pytest.mark.parametrize("command, version", [("CHECK", "0.3.1"), ("GC", "1.0.0"), ("STATUS", "1.0.0")], ids=str)
@pytest.mark.parametrize("plugin", PLUGINS)
def test_commands_that_a_version_lacks(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, plugin: str, command: str, version: str
) -> None:
    """Check 10: code 1, naming the command."""
    reply = runtime.call(command, runtime.make_netconf(cniVersion=version), pod, plugin=plugin)

    assert reply.code == 1
    assert command in reply.text


@pytest.mark.parametrize("version", ["0.1.0", "0.4.0", "1.1.0"])
def test_error_objects_have_the_version_of_the_request(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, version: str
) -> None:
    """Check 11: and a number and a text, whichever version asks."""
    error = runtime.call("ADD", runtime.make_netconf(cniVersion=version, mtu="large"), pod).error

    assert error["cniVersion"] == version
    assert error["code"] == 6
    assert "mtu" in str(error["msg"])


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize(
    "stdin, code",
    [("", 6), ("{broken", 6), ("[]", 6), ('{"cniVersion": "1.0.0"}', 7), ('{"cniVersion": "1.0.0", "name": "a b"}', 7)],
)
def test_what_is_no_configuration(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, plugin: str, stdin: str, code: int
) -> None:
    """Check 11, second half: one error object for whatever stands on standard input."""
    assert runtime.call("ADD", stdin, pod, plugin=plugin).code == code
    assert is_untouched(node)


@pytest.mark.parametrize("path", ["/proc/self/ns/net", "/proc/thread-self/ns/net"])
def test_its_own_namespace_is_refused(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, path: str) -> None:
    """Check 12: code 8, and no interface is made."""
    reply = runtime.call("ADD", runtime.make_netconf(), pod, CNI_NETNS=path)

    assert reply.code == 8
    assert is_untouched(node)


def test_the_override_skips_that_check(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 12, second half: the call goes on, as far as the kernel allows, and takes back what it cannot keep."""
    reply = runtime.call("ADD", runtime.make_netconf(), pod, CNI_NETNS="/proc/self/ns/net", CNI_NETNS_OVERRIDE="true")

    assert reply.code != 8
    assert is_untouched(node)


def test_del_in_its_own_namespace_removes_nothing_without_the_override(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace
) -> None:
    """A runtime that names the node's namespace by mistake must not lose the node an interface."""
    reply = runtime.call("DEL", runtime.make_netconf(), pod, CNI_NETNS="/proc/self/ns/net", CNI_IFNAME="up0")

    assert reply.code == 8
    assert "up0" in node.links()


def test_debug_lines_never_reach_standard_output(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 14: one document on standard output, lines on standard error."""
    conf = runtime.make_netconf(log_level="DEBUG")
    added = runtime.add(conf, pod)

    assert added.stderr
    assert added.document["ips"]
    assert runtime.delete(conf, pod).stderr


@pytest.mark.parametrize(
    "plugin, version", [*(("netplug", version) for version in SUPPORTED), ("netplug-ipam", "1.1.0")]
)
def test_version_answers_in_the_version_asked(node: NetnsNode, runtime: CNIRuntime, plugin: str, version: str) -> None:
    """VERSION looks at no other variable, reads no store and repeats the version of the request."""
    asked = json.dumps({"cniVersion": version})
    done = node.run_unchecked(
        runtime.executable(plugin), stdin=asked, env={"CNI_COMMAND": "VERSION", "CNI_IFNAME": "a/b"}
    )

    assert done.returncode == 0
    assert json.loads(done.stdout) == {"cniVersion": version, "supportedVersions": list(SUPPORTED)}
