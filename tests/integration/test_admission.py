"""The admission policies of v3 on a real API server: what they fill in, what they leave alone, what they refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

import pytest

from netplug_backends.kubernetes.installing.manifests import (
    ADMISSION_GROUP,
    ALLOW_DELETION,
    MUTATING_VERSIONS,
    admission_objects,
    protection_objects,
)
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.decoding.tables import DocumentOrigin
from netplug_core.resources.codec import from_mapping, to_mapping
from netplug_core.selectors import parse
from tests.harness.servers.kube_apiserver import ApiServer, RequestRefused
from tests.harness.servers.kube_objects import delete_custom_objects, install_definitions
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.apiserver

POOLS = f"/apis/{CrdMode.V3.value}/ippools"
CLUSTERS = f"/apis/{CrdMode.V3.value}/clusterinformations"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def server(api_server: ApiServer) -> Iterator[ApiServer]:
    """A server with the definitions of v3 and the policies, which are in force."""
    version = served_version(api_server)
    install_definitions(api_server, CrdMode.V3)
    delete_custom_objects(api_server, CrdMode.V3)  # what tests before left
    objects = list(admission_objects(version))
    for one in objects:
        path = f"{path_of(one)}?fieldManager=tests&fieldValidation=Strict&force=true"
        api_server.request("PATCH", path, one, content_type=APPLY)
    try:
        wait_until(lambda: is_filled_in(api_server), "the policies are in force")
        yield api_server
    finally:
        for one in objects:
            api_server.request("DELETE", path_of(one))
        wait_until(lambda: is_deletable(api_server), "the policies are gone")
        delete_custom_objects(api_server, CrdMode.V3)


def served_version(server: ApiServer) -> str:
    for version in MUTATING_VERSIONS:
        with suppress(RequestRefused):
            server.get(f"/apis/{ADMISSION_GROUP}/{version}/mutatingadmissionpolicies")
            return version
    pytest.skip("this API server has no MutatingAdmissionPolicy")


def path_of(found: Mapping[str, object]) -> str:
    plural = str(found["kind"]).lower() + "s"
    metadata = found["metadata"]
    assert isinstance(metadata, Mapping)
    return f"/apis/{found['apiVersion']}/{plural.replace('ys', 'ies')}/{metadata['name']}"


def create(server: ApiServer, name: str, spec: Mapping[str, object]) -> Mapping[str, object]:
    """The spec of a pool as it would be stored."""
    body = {"apiVersion": CrdMode.V3.value, "kind": "IPPool", "metadata": {"name": name}, "spec": spec}
    stored = server.request("POST", f"{POOLS}?dryRun=All", body)
    assert isinstance(stored, dict)
    found = stored["spec"]
    assert isinstance(found, dict)
    return found


def is_filled_in(server: ApiServer) -> bool:
    """Whether a policy fills in what a pool lacks. While the server reads the schema of a new kind, it answers 503."""
    try:
        return create(server, "probe", {"cidr": "10.9.0.0/16"}).get("blockSize") == 26
    except RequestRefused as error:
        if error.code != 503:
            raise
        return False


def is_deletable(server: ApiServer) -> bool:
    """Whether a ClusterInformation can be deleted, which does not exist or is there."""
    try:
        server.request("DELETE", f"{CLUSTERS}/default?dryRun=All")
    except RequestRefused as error:
        return error.code == 404
    return True


@pytest.mark.parametrize(
    "spec",
    [
        {"cidr": "10.1.0.0/16"},
        {"cidr": "fd00::/48"},
        {"cidr": "10.1.0.0/16", "blockSize": 0, "nodeSelector": "", "allowedUses": []},
        {"cidr": "10.1.0.0/28", "blockSize": 30, "disabled": True},
        {"cidr": "fd00::/48", "blockSize": 120, "vxlanMode": "Always", "nodeSelector": "zone == 'a'"},
        {"cidr": "10.1.0.0/16", "allowedUses": ["Workload"], "namespaceSelector": "team == 'a'"},
        {"cidr": "10.1.0.0/16", "allowedUses": ["LoadBalancer"], "assignmentMode": "Manual", "natOutgoing": True},
    ],
)
def test_what_is_left_out_is_what_the_core_fills_in(server: ApiServer, spec: Mapping[str, object]) -> None:
    mapping = {"kind": "IPPool", "apiVersion": CrdMode.V3.value, "metadata": {"name": "p"}, "spec": spec}
    wanted = to_mapping(from_mapping(mapping, origin=DocumentOrigin.USER))["spec"]
    assert isinstance(wanted, dict)
    assert {"natOutgoing": False, **create(server, "p", spec)} == wanted


@pytest.mark.parametrize(
    "spec, words",
    [
        ({"cidr": "10.1.0.0"}, "IPPool CIDR must be a valid subnet"),
        ({"cidr": "10.1.0.0/28"}, "IP pool size is too small"),
        ({"blockSize": 26}, "spec.cidr: Required value"),
        *(
            ({"cidr": "10.1.0.0/16", "allowedUses": ["Workload"], field: text}, f"spec.{field}.*: {words}")
            for field in ("nodeSelector", "namespaceSelector")
            for text, words in (
                ("zone = 'a'", "a selector is expected, such as zone == 'a'"),
                ("zone == a", "a selector is expected"),
                ("zone == 'a' has(gpu)", "a selector is expected"),
                ("zone in {'a'", "a selector is expected"),
                ("(zone == ')' && has(gpu)", r"a selector has as many '\)' as '\('"),
            )
        ),
    ],
)
def test_what_is_wrong_is_said_by_the_definition(server: ApiServer, spec: Mapping[str, object], words: str) -> None:
    with pytest.raises(RequestRefused, match=words):
        create(server, "p", spec)


@pytest.mark.parametrize(
    "text",
    [
        "!(has(a) && b not in {'(', \"c\",}) || !!global() || zone.a/b-c starts  with ')'",
        "f contains'x'&&(in != ' '||all())",
        "has(has)",
        " \t",
        " || ".join(f"label-{number} == 'a({number})'" for number in range(40)),
    ],
)
def test_selectors_of_every_spelling_are_stored(server: ApiServer, text: str) -> None:
    parse(text)
    spec = {"cidr": "10.1.0.0/16", "allowedUses": ["Workload"], "nodeSelector": text, "namespaceSelector": text}
    assert create(server, "p", spec)["namespaceSelector"] == text


def test_a_change_keeps_what_is_there(server: ApiServer) -> None:
    body = {"apiVersion": CrdMode.V3.value, "kind": "IPPool", "metadata": {"name": "kept"}}
    server.create(POOLS, {**body, "spec": {"cidr": "10.2.0.0/16", "blockSize": 28}})
    server.request("PATCH", f"{POOLS}/kept", {"spec": {"disabled": True}}, content_type=MERGE)
    spec = server.get(f"{POOLS}/kept")["spec"]
    assert isinstance(spec, dict)
    assert (spec["blockSize"], spec["disabled"], spec["nodeSelector"]) == (28, True, "all()")
    server.request("DELETE", f"{POOLS}/kept")


def test_the_cluster_information_is_not_deleted(server: ApiServer) -> None:
    body = {"apiVersion": CrdMode.V3.value, "kind": "ClusterInformation", "metadata": {"name": "default"}}
    with suppress(RequestRefused):  # another test has made it
        server.create(CLUSTERS, {**body, "spec": {"datastoreReady": False}})
    for path in (f"{CLUSTERS}/default", CLUSTERS):
        with pytest.raises(RequestRefused, match="it is not deleted"):
            server.request("DELETE", path)
    assert server.get(f"{CLUSTERS}/default")


# --- definitions -----------------------------------------------------------------------------------------------------


@pytest.fixture
def protected(api_server: ApiServer) -> Iterator[ApiServer]:
    """A server with the definitions of v1, which are kept."""
    install_definitions(api_server, CrdMode.V1)
    objects = list(protection_objects())
    for one in objects:
        path = f"{path_of(one)}?fieldManager=tests&fieldValidation=Strict&force=true"
        api_server.request("PATCH", path, one, content_type=APPLY)
    try:
        wait_until(lambda: not may_delete(api_server, PROBE), "the policy is in force")
        yield api_server
    finally:
        for one in objects:
            api_server.request("DELETE", path_of(one))
        wait_until(lambda: may_delete(api_server, PROBE), "the policy is gone")
        unmarked = {"metadata": {"annotations": {ALLOW_DELETION: None}}}
        api_server.request("PATCH", f"{DEFINITIONS}/{KEPT}", unmarked, content_type=MERGE)


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KEPT, PROBE = "ipamblocks.crd.projectnetplug.org", "ippools.crd.projectnetplug.org"


def may_delete(server: ApiServer, name: str) -> bool:
    try:
        server.request("DELETE", f"{DEFINITIONS}/{name}?dryRun=All")
    except RequestRefused as error:
        if error.code not in (403, 422):
            raise
        return False
    return True


def test_a_definition_is_deleted_only_with_the_annotation(protected: ApiServer) -> None:
    text = (
        "with this definition every IPAMBlock would be deleted; if that is meant: kubectl annotate "
        f"customresourcedefinition {KEPT} projectnetplug.org/allow-deletion=true"
    )
    with pytest.raises(RequestRefused, match=text):
        protected.request("DELETE", f"{DEFINITIONS}/{KEPT}")
    with pytest.raises(RequestRefused, match="with this definition every"):
        protected.request("DELETE", DEFINITIONS)  # all of a collection
    other = {"metadata": {"annotations": {"projectnetplug.org/other": "true"}}}
    protected.request("PATCH", f"{DEFINITIONS}/{KEPT}", other, content_type=MERGE)
    assert not may_delete(protected, KEPT)
    annotated = {"metadata": {"annotations": {ALLOW_DELETION: "true"}}}
    protected.request("PATCH", f"{DEFINITIONS}/{KEPT}", annotated, content_type=MERGE)
    assert may_delete(protected, KEPT)
    assert not may_delete(protected, PROBE)


def test_definitions_of_others_are_not_kept(protected: ApiServer) -> None:
    name = "things.example.org"
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    spec = {"group": "example.org", "scope": "Cluster", "names": names, "versions": [version]}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name}}
    protected.create(DEFINITIONS, {**head, "spec": spec})
    protected.request("DELETE", f"{DEFINITIONS}/{name}")
