"""No message shows more than 200 characters of a text that came from outside, whichever way it came."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from netplug_cli.ctl.documents import read_manifests
from netplug_core.cni.dispatch import Invocation, Plugin, PluginIdentity
from netplug_core.cni.request import CNIRequest
from netplug_core.errors import NetplugError, excerpt, quote
from netplug_core.flows.cni.call import run_invocation
from netplug_core.netconf.model import load
from netplug_core.resources.codec import manifest_from_mapping
from netplug_core.resources.validation import validate_resource
from netplug_core.settings.apiconfig import (
    datastore_settings_from_environment,
    datastore_settings_from_file,
    datastore_settings_from_url,
)

LONG = "x" * 5000
VALUES = [
    *(LONG, [LONG], {LONG: LONG}, 10**400, [1] * 3000, [[[[1] * 3000]]]),
    *("10.0.0.0/" + "9" * 3000, "1 " * 2000, "\ud800" * 3000, "http://" + "h" * 4000),
]
MAX_LENGTH = 1300
"""Of a message: our own words, the lists of what is accepted, and a few texts of 200 characters."""

NETCONF: dict[str, object] = {
    "cniVersion": "1.0.0", "name": "n", "type": "netplug", "nodename": "a", "datastore_type": "etcdv3",
    "etcd_endpoints": "http://a:1", "etcd_discovery_srv": "", "etcd_key_file": "/a", "etcd_cert_file": "/a",
    "etcd_ca_cert_file": "/a", "etcd_authority": "a:1", "etcd_scheme": "http", "log_level": "INFO",
    "log_file_path": "/a", "log_file_max_size": 1, "container_settings": {"allow_ip_forwarding": False},
    "readiness_gates": ["http://a"],
    "ipam": {"type": "netplug-ipam", "assign_ipv4": "true", "ipv4_pools": ["10.0.0.0/8"], "ipv6_pools": []},
    "kubernetes": {"kubeconfig": "/a", "k8s_api_root": "http://a"}, "policy": {"type": "k8s"}, "num_queues": 1,
    "mtu": 9,
    "feature_control": {"ip_addrs_no_ipam": True}, "sqlite_path": "/x", "runtimeConfig": {"portMappings": []},
    "args": {"cni": {}}, "datastore_options": {"a": "b"}, "nodename_file": "/x", "annotation_prefix": "a",
    "prevResult": {
        "cniVersion": "1.0.0", "ips": [{"address": "10.0.0.1/32", "interface": 0}], "interfaces": [{"name": "a"}],
        "routes": [{"dst": "10.0.0.0/8"}], "dns": {},
    },
}  # fmt: skip
ENVIRONMENT = {
    "CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c", "CNI_NETNS": "/n", "CNI_IFNAME": "eth0", "CNI_PATH": "/p",
    "CNI_ARGS": "K8S_POD_NAME=a",
}  # fmt: skip
POOL: dict[str, object] = {
    "apiVersion": "projectnetplug.org/v3", "kind": "IPPool",
    "metadata": {"name": "a", "namespace": "d", "labels": {"a": "b"}, "uid": "x", "finalizers": ["a"],
                 "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [{"kind": "a"}]},
    "spec": {"cidr": "10.0.0.0/16", "blockSize": 26, "ipipMode": "Never", "natOutgoing": False, "nodeSelector": "all()",
             "namespaceSelector": "all()", "allowedUses": ["Workload"], "assignmentMode": "Automatic"},
}  # fmt: skip
SETTINGS: dict[str, object] = {
    "apiVersion": "projectnetplug.org/v3", "kind": "NetplugAPIConfig", "metadata": {},
    "spec": {"datastoreType": "etcdv3", "etcdEndpoints": "http://a:1", "sqlitePath": "/x", "kubeconfig": "/x"},
}  # fmt: skip


def test_a_text_is_cut_after_200_characters() -> None:
    assert excerpt("y" * 200) == "y" * 200
    assert excerpt("y" * 201) == "y" * 200 + "…"
    assert quote("y" * 201) == "'" + "y" * 199 + "…"


def variants(document: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """The document with one part of it replaced by something long, or with a member of a long name."""
    for path in paths_of(document):
        for value in VALUES:
            yield from as_document(replaced(document, path, value))
        if isinstance(found := part_of(document, path), dict):
            yield from as_document(replaced(document, path, {**found, LONG: LONG}))


def as_document(value: object) -> Iterator[dict[str, object]]:
    if isinstance(value, dict):
        yield value


def paths_of(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from paths_of(member, (*path, key))


def part_of(value: object, path: tuple[str | int, ...]) -> object:
    for key in path:
        assert isinstance(value, dict | list)
        value = value[key]  # type: ignore[index]  # pyright: ignore[reportArgumentType, reportCallIssue]
    return value


def replaced(value: object, path: tuple[str | int, ...], new: object) -> object:
    if not path:
        return new
    assert isinstance(value, dict | list)
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new)  # type: ignore[index]  # pyright: ignore[reportArgumentType, reportCallIssue]
    return copy


def message_of_call(environ: Mapping[str, str], netconf: object, flags: tuple[str, ...] = ()) -> str:
    def test_connection(given: Mapping[str, object]) -> None:
        load(given, Plugin.MAIN)

    def read(request: CNIRequest) -> None:
        load(request.netconf_mapping, Plugin.MAIN)

    logged: list[str] = []
    output = run_invocation(
        Invocation(
            identity=PluginIdentity(plugin=Plugin.MAIN, version="1"),
            flags=flags,
            environ=environ,
            stdin=lambda: json.dumps(netconf),
        ),
        serve=read,
        is_own_namespace=lambda _path: False,
        test_connection=test_connection,
        log=logged.append,
    )
    return max((output.stdout, output.stderr, *logged), key=len)


def refusal(call: Callable[[], object]) -> str:
    """The message of the error that a call ends with; empty if it ends with none."""
    try:
        call()
    except NetplugError as error:
        return str(error)
    return ""


def test_network_configurations() -> None:
    for netconf in variants(NETCONF):
        assert len(message_of_call(ENVIRONMENT, netconf)) < MAX_LENGTH


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_variables_and_flags(name: str) -> None:
    for text in (LONG, f"IP={LONG}", f"a=b=c{LONG}", f"{LONG}=1=", f"IgnoreUnknown={LONG}", "\n" * 3000):
        assert len(message_of_call({**ENVIRONMENT, name: text}, NETCONF)) < MAX_LENGTH
    assert len(message_of_call({}, {}, (LONG,))) < MAX_LENGTH


def read_resource(document: Mapping[str, object]) -> None:
    validate_resource(manifest_from_mapping(document, source="f").resource)


def test_resources() -> None:
    refusals = 0
    for document in variants(POOL):
        message = refusal(partial(read_resource, document))
        assert len(message) < MAX_LENGTH
        refusals += bool(message)
    assert refusals > 100


def test_settings() -> None:
    for document in variants(SETTINGS):
        assert len(refusal(partial(datastore_settings_from_file, document, source="f"))) < MAX_LENGTH
    for name in ("DATASTORE_TYPE", "ETCD_ENDPOINTS", "ETCD_DISCOVERY_SRV", "SQLITE_PATH", "DATASTORE_OPTIONS"):
        for text in (LONG, f"http://{LONG}", "/x\0" * 2000):
            assert len(refusal(partial(datastore_settings_from_environment, {name: text}))) < MAX_LENGTH


@pytest.mark.parametrize("url", ["", "memory:", "etcd://a:1/", "etcd://a?", "etcd://[", "kubernetes:///x?"])
def test_urls(url: str) -> None:
    assert 0 < len(refusal(partial(datastore_settings_from_url, f"{url}{LONG}"))) < MAX_LENGTH


FILES = {
    "aliases of aliases": "\n".join(
        ["a0: &a0 [x,x,x,x,x,x,x,x,x]", *(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))]
    ),
    "merged aliases": "\n".join(
        ["a0: &a0 {k: v}", *(f"a{n}: &a{n} {{<<: [{','.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 9))]
    ),
    "an alias of what it is in": "a: &a [*a]",
    "a long text": f"- {LONG}",
    "items that are none": f"{{kind: FooList, items: {LONG}}}",
    "an unknown member of a list": f"{{kind: FooList, items: [], {LONG}: 1}}",
    "a key twice": f"{{{LONG}: 1, {LONG}: 2}}",
    "a tag": f"a: !{LONG} b",
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "in.yaml").write_text(text)
    manifests, problems = read_manifests([str(tmp_path / "in.yaml")])
    assert manifests == ()
    assert problems
    assert len("".join(problems)) < MAX_LENGTH


def test_aliases_stand_for_a_bounded_number_of_values(tmp_path: Path) -> None:
    """336 characters of aliases of aliases stood for 39 million characters of an error."""
    (tmp_path / "in.yaml").write_text(FILES["aliases of aliases"])
    assert read_manifests([str(tmp_path / "in.yaml")])[1] == (
        f"{tmp_path}/in.yaml: neither YAML nor JSON, line 1, column 1: its aliases stand for more than 10000 values",
    )
