"""Calls with anything wrong about them, and a node of fakes that serves them as the executables do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from attrs import frozen
from hypothesis import strategies as st

from netplug_backends.memory.orchestrator import MemoryOrchestrator
from netplug_core.cni.dispatch import Invocation, Plugin, PluginIdentity, ProcessOutput
from netplug_core.cni.request import CNIRequest
from netplug_core.cni.result import CNIResult
from netplug_core.decoding.codecs import is_utf8
from netplug_core.flows.cni.call import run_invocation
from netplug_core.netconf.model import HOST_LOCAL_IPAM, LoadPurpose, load
from netplug_core.netconf.precedence import ANNOTATIONS
from netplug_core.orchestrator.model import NamespaceFacts, PodFacts
from tests.harness.annotations import prefixed
from tests.harness.cni_node import FLOWS, NODE, POD, CNINodeHarness
from tests.harness.netconfs import JUNK, anything, configurations, right_configurations

__all__ = ["NAMESPACE", "MalformedCall", "make_node", "malformed_calls", "serve", "state_of"]

NAMESPACE = "/run/netns/c1"


def _mostly(usual: tuple[str, ...], odd: tuple[str | None, ...]) -> st.SearchStrategy[str | None]:
    """A usual value, and one time in twelve an odd one: a call should get far."""
    return st.integers(0, 11).flatmap(lambda number: st.sampled_from(odd if number == 0 else usual))


VARIABLES: Mapping[str, st.SearchStrategy[str | None]] = {
    "CNI_COMMAND": _mostly(("ADD", "ADD", "DEL", "CHECK", "STATUS", "GC"), ("VERSION", "", "add", "ADD\n", None)),
    "CNI_CONTAINERID": _mostly(("c1",), ("", "-c", "a/b", "c" * 300, "\udcff", "a\0b", "é")),
    "CNI_NETNS": _mostly((NAMESPACE,), ("", "relative", "/etc/passwd", "\udc80", None)),
    "CNI_IFNAME": _mostly(("eth0", "eth0", "net1"), ("", "..", "a b", "x" * 16, "eth%d", "\udcff", None)),
    "CNI_PATH": _mostly(("/opt/cni/bin",), ("", ":", None)),
    "CNI_NETNS_OVERRIDE": _mostly(("",), ("1", "maybe")),
    "CNI_ARGS": _mostly(
        ("", POD, POD, f"IgnoreUnknown=1;{POD};K8S_POD_UID=u", "IP=10.65.0.9", "K8S_POD_NAME=x"),
        (
            *("=", "a", ";", "a=b=c", "A=\udcff", "IgnoreUnknown=perhaps", "IP=10.65.0.9/24", "IP=::ffff:1.2.3.4"),
            "K8S_POD_NAMESPACE=a/b;K8S_POD_NAME=..",
        ),
    ),
}
_FILES: st.SearchStrategy[str] = st.sampled_from(
    (
        "/var/lib/netplug/mtu",
        "/var/lib/netplug/nodename",
        "/var/lib/netplug/release-records/x",
        "/var/lib/netplug/release-records/y.json",
        "/var/run/netplug/endpoint-status/k8s test%2Ftest-pod-1 eth0",
    )
)
_ADDRESS_FILES: st.SearchStrategy[str] = st.sampled_from(
    ("10.22.0.2", "10.22.0.3", "last_reserved_ip.0", "not-an-address", "fd00::1")
)
_CONTENTS: st.SearchStrategy[bytes] = st.sampled_from(
    (b"", b"c1\r\neth0", b"c1", b"\xff\xfe", b"x" * 5000, b"\r\n\r\n")
)
_ANNOTATIONS: st.SearchStrategy[str] = st.sampled_from((*ANNOTATIONS, "noSuchOne"))
_TEXTS: st.SearchStrategy[str] = st.sampled_from(
    ("", "x", "\0", "1500", "-1", "9" * 400, "[]", "{", '["10.65.0.9"]', '["fd65::9", 1]', "[" * 3000, "\ud800")
)
# What the machine reads is decoded already.
_FILE_TEXTS = _TEXTS.filter(is_utf8)
_BROKEN = st.sampled_from((b"", b"[]", b"null", b"[" * 3000, b'{"a":1,"a":2}', b"{}")) | st.binary(max_size=40)
_RESULT = {
    "cniVersion": "1.0.0",
    "interfaces": [{"name": "eth0", "sandbox": NAMESPACE}],
    "ips": [{"address": "10.65.0.1/32"}],
}
_RESULTS = (
    st.just(_RESULT) | JUNK | st.fixed_dictionaries({"ips": JUNK, "interfaces": JUNK, "cniVersion": st.just("1.0.0")})
)


@frozen(kw_only=True)
class MalformedCall:
    """One call, and what stands around it: files of the node, files of host-local, annotations of the pod."""

    plugin: Plugin
    environ: Mapping[str, str]
    stdin: bytes
    files: Mapping[str, str]
    address_files: Mapping[str, bytes]
    annotations: Mapping[str, str]


@st.composite
def malformed_calls(draw: st.DrawFn) -> MalformedCall:
    """Calls of which each part may be right or wrong."""
    chosen = {name: draw(values) for name, values in VARIABLES.items()}
    return MalformedCall(
        plugin=draw(st.sampled_from((Plugin.MAIN, Plugin.MAIN, Plugin.IPAM))),
        environ={name: value for name, value in chosen.items() if value is not None},
        stdin=draw(_stdin()),
        files=draw(st.dictionaries(_FILES, _FILE_TEXTS, max_size=2)),
        address_files=draw(st.dictionaries(_ADDRESS_FILES, _CONTENTS, max_size=2)),
        annotations=draw(st.dictionaries(_ANNOTATIONS, _TEXTS, max_size=2)),
    )


@st.composite
def _stdin(draw: st.DrawFn) -> bytes:
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(
            st.binary(max_size=40) | st.sampled_from((b"", b"[]", b"null", b"[" * 3000, b'{"a":1,"a":2}', b"{}"))
        )
    config = {
        "name": "net1",
        "cniVersion": "1.1.0",
        **draw(st.one_of(right_configurations(), configurations(), anything())),
    }
    config["datastore_type"] = draw(_mostly(("memory",), ("nowhere",)))
    if draw(st.booleans()):
        config["prevResult"] = draw(_RESULTS)
    if draw(st.booleans()):
        config["cni.dev/valid-attachments"] = draw(st.just([]) | JUNK)
    timeout = config.get("policy_setup_timeout_seconds")
    if isinstance(timeout, int):
        config["policy_setup_timeout_seconds"] = min(3, timeout)
    text = json.dumps(config).encode()
    if kind == 1:
        cut = draw(st.integers(0, len(text)))
        return text[:cut] + draw(st.binary(max_size=3)) + text[cut + draw(st.integers(0, 3)) :]
    return text


def make_node(call: MalformedCall, folder: Path) -> CNINodeHarness:
    """A node with pools, a pod, and the files of the call; ``folder`` is that of host-local."""
    node = CNINodeHarness()
    node.add_pool("main", "10.65.0.0/24")
    node.add_pool("six", "fd65::/112")
    node.set_ready(is_ready=True)
    node.dataplane.add_namespace(NAMESPACE)
    node.host.texts.update(call.files)
    orchestrator = node.orchestrator = MemoryOrchestrator(clock=node.clock)
    orchestrator.put_namespace(NamespaceFacts(name="test", uid=""))
    pod = PodFacts(
        namespace="test",
        name="test-pod-1",
        uid="",
        node=NODE,
        annotations=tuple(sorted(prefixed(call.annotations).items())),
    )
    orchestrator.put_pod(pod)
    network = folder / "net1"
    network.mkdir()
    for name, content in call.address_files.items():
        (network / name).write_bytes(content)
    return node


def serve(
    node: CNINodeHarness, call: MalformedCall, folder: Path, *, command: str = "", log: list[str] | None = None
) -> ProcessOutput:
    """Serve the call, or another command of its attachment, as the executables do. host-local stays in its folder."""
    lines = [] if log is None else log
    environ = {**call.environ, "CNI_COMMAND": command} if command else call.environ
    return run_invocation(
        Invocation(
            identity=PluginIdentity(plugin=call.plugin, version="0"),
            flags=(),
            environ=environ,
            stdin=lambda: call.stdin,
        ),
        serve=partial(_handle, node, call.plugin, folder),
        is_own_namespace=lambda _path: False,
        test_connection=lambda _netconf: None,
        log=lines.append,
    )


def _handle(node: CNINodeHarness, plugin: Plugin, folder: Path, request: CNIRequest) -> CNIResult | None:
    mapping = dict(request.netconf_mapping)
    ipam = mapping.get("ipam")
    if isinstance(ipam, dict) and ipam.get("type") == HOST_LOCAL_IPAM:
        mapping["ipam"] = {**ipam, "dataDir": str(folder)}
    netconf = load(mapping, plugin, LoadPurpose.of(request.command))
    opened = node.open_host_local(netconf) if netconf.ipam.type == HOST_LOCAL_IPAM else None
    if netconf.ipam.is_delegated and plugin is Plugin.MAIN:
        opened = node.open_delegated(request, netconf)
    return FLOWS[plugin][request.command.value](node.open_world(netconf.ipam_lock_file, opened), request, netconf)


def state_of(node: CNINodeHarness, folder: Path) -> object:
    """Everything that a call may change: records, interfaces, files."""
    own = ("lock", "boot")  # of the folder itself, not of an address
    files = {path.name: path.read_bytes() for path in sorted((folder / "net1").iterdir()) if path.name not in own}
    return (
        node.allocations(),
        node.handles(),
        [(endpoint.metadata.name, endpoint.spec.container_id) for endpoint in node.endpoints()],
        node.dataplane.names(),
        node.dataplane.host_routes(),
        dict(node.host.texts),
        files,
    )
