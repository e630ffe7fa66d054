"""What each command loads, to the module: imports are most of what a call costs, so a new one is a decision.

``loaded_modules.txt`` holds the lists. A module that a call came to load, or no longer loads, is added or removed
there in the same commit, which says why.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Set as AbstractSet

import pytest
from attrs import frozen

from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode, PodNamespace
from tests.harness.plugin_datastores import PluginDatastore, on_every_datastore

pytestmark = [pytest.mark.netns, pytest.mark.alone]

HEAVY = {
    "asyncio",
    "click",
    "etcd3",
    "google",
    "grpc",
    "hypothesis",
    "kubernetes",
    "pyroute2",
    "requests",
    "rich",
    "urllib3",
    "yaml",
}
HEAVY_OF = {"etcdv3": {"asyncio", "etcd3", "google", "grpc"}}  # its client is of gRPC, which loads asyncio

LISTED = os.path.join(os.path.dirname(__file__), "loaded_modules.txt")

# The executable, and then the names of everything that is loaded. Its own exit is caught, so that it can be asked.
ASK = """
import os, posix, sys
os._exit = posix._exit = sys.exit
path, listed = sys.argv[1:3]
sys.argv[:] = [path]
with open(path) as file:
    code = compile(file.read(), path, "exec")
status = 0
try:
    exec(code, {"__name__": "__main__"})
except SystemExit as ended:
    status = ended.code
with open(listed, "w") as file:
    file.write("\\n".join(sys.modules))
sys.exit(status)
"""


@frozen
class LoadedModules:
    """The modules of a process beyond those of an interpreter that does nothing."""

    modules: frozenset[str]

    @property
    def ours(self) -> set[str]:
        return {name for name in self.modules if is_ours(name)}


def is_ours(module: str) -> bool:
    """Whether a module belongs to netplug."""
    return module.startswith("netplug_")


def loaded(runtime: CNIRuntime, conf: NetConfDict, environ: dict[str, str], plugin: str = "netplug") -> LoadedModules:
    """What one successful call loads."""
    listed = runtime.node.file("modules")
    python = (sys.executable, "-IS", "-c")
    runtime.node.run(*python, "import sys; open(sys.argv[1], 'w').write('\\n'.join(sys.modules))", listed)
    bare = lines(listed)
    done = runtime.node.run_unchecked(
        *python, ASK, runtime.executable(plugin), listed, stdin=json.dumps(conf), env=environ
    )
    assert done.returncode == 0, done
    return LoadedModules(frozenset(lines(listed) - bare))


def lines(path: str) -> set[str]:
    """The lines of a file."""
    with open(path, encoding="utf-8") as file:
        return set(file.read().split())


def expected(name: str) -> set[str]:
    """One of the lists in the file: everything below its heading, and of the lists that its heading adds."""
    lists: dict[str, set[str]] = {}
    current: set[str] = set()
    with open(LISTED, encoding="utf-8") as file:
        for line in file:
            text = line.partition("#")[0].strip()
            if text.startswith("["):
                title, *bases = text.strip("[]").split()
                current = lists.setdefault(title, set())
                current.update(*(lists[base] for base in bases))
            elif text:
                current.add(text)
    return lists[name]


def assert_is_as_listed(found: LoadedModules, name: str, heavy: AbstractSet[str] = frozenset()) -> None:
    """Exactly the listed modules; those of others differ from one version of Python to the next."""
    listed = expected(name)
    assert {module.partition(".")[0] for module in found.modules} & HEAVY == heavy
    assert found.ours == {module for module in listed if is_ours(module)}
    if sys.version_info[:2] == (3, 11):
        assert found.modules == listed


def test_version(node: NetnsNode, runtime: CNIRuntime) -> None:
    """Podman asks for it twice a container."""
    assert_is_as_listed(loaded(runtime, runtime.make_netconf(), {"CNI_COMMAND": "VERSION"}), "VERSION")


@pytest.mark.parametrize("plugin", ["netplug", "netplug-ipam"])
def test_version_is_the_same_for_both(node: NetnsNode, runtime: CNIRuntime, plugin: str) -> None:
    """The file's name makes no difference before there is something to do."""
    assert_is_as_listed(loaded(runtime, runtime.make_netconf(), {"CNI_COMMAND": "VERSION"}, plugin), "VERSION")


@on_every_datastore
def test_add_and_del(runtime: CNIRuntime, plugin_datastore: PluginDatastore, pod: PodNamespace) -> None:
    """Both families, in a process of its own."""
    plugin_datastore.register_pods([pod])
    conf = runtime.make_netconf(ipam={"type": "netplug-ipam", "assign_ipv6": "true"}, **plugin_datastore.netconf_keys)
    for command in ("ADD", "DEL"):
        found = loaded(
            runtime, conf, runtime.make_environ(command, pod, CNI_ARGS=plugin_datastore.make_cni_args(pod.name))
        )
        assert_is_as_listed(found, f"{command}-{plugin_datastore.name}", HEAVY_OF.get(plugin_datastore.name, set()))


def test_a_log_file_loads_one_module(node: NetnsNode, runtime: CNIRuntime) -> None:
    """It is not ``logging``, which only the call that rotates the file loads."""
    pods = node.make_pods(2)
    plain, logged = (
        loaded(runtime, runtime.make_netconf(log_file_path=path), runtime.make_environ("ADD", pod))
        for path, pod in zip((None, node.file("cni.log")), pods, strict=True)
    )
    assert logged.modules - plain.modules == {"netplug_backends.host.log_file"}


def test_the_guard_of_policy_loads_nothing_of_the_filter_where_there_is_a_table(
    node: NetnsNode, runtime: CNIRuntime
) -> None:
    """Only the first ADD after a boot makes the table."""
    pods = node.make_pods(3)
    first, guarded, plain = (
        loaded(runtime, runtime.make_netconf(policy_guard=is_on), runtime.make_environ("ADD", pod))
        for is_on, pod in zip((True, True, False), pods, strict=True)
    )
    assert "netplug_core.dataplane.filter" in first.modules
    assert guarded.modules - plain.modules == {"netplug_backends.linux.policy_guard"}
