"""The admission policy of docs/annotations.md on a real API server: what it refuses, how, and what it lets pass."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.harness.annotations import ANNOTATION_PREFIX, prefixed
from tests.harness.servers.kube_apiserver import ApiServer, RequestRefused
from tests.harness.servers.kube_objects import make_namespace, make_pod
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.apiserver

PAGE = (Path(__file__).parents[2] / "docs" / "annotations.md").read_text()
NAMESPACE, TRUSTED = "restricted", "trusted"
API = "/apis/admissionregistration.k8s.io/v1"
COLLECTIONS = {
    "ValidatingAdmissionPolicy": f"{API}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{API}/validatingadmissionpolicybindings",
}


def shown(language: str, start: str) -> str:
    """The block of the page that begins so."""
    found: list[str] = re.findall(rf"```{language}\n({re.escape(start)}.*?)```", PAGE, re.DOTALL)
    return found[0]


@pytest.fixture(scope="module")
def server(api_server: ApiServer) -> Iterator[ApiServer]:
    """A server where the policy holds in two namespaces, and in no other test's."""
    make_namespace(api_server, NAMESPACE)
    make_namespace(api_server, TRUSTED, labels={"projectnetplug.org/trusted": "true"})
    for namespace in (NAMESPACE, TRUSTED):
        api_server.delete_collection(f"/api/v1/namespaces/{namespace}/pods")
    make_pod(api_server, NAMESPACE, "older", node="n", annotations=prefixed({"ipAddrsNoIpam": '["192.0.2.1"]'}))
    policy, binding = yaml.safe_load_all(shown("yaml", "apiVersion: admissionregistration"))
    names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [NAMESPACE, TRUSTED]}
    binding["spec"]["matchResources"] = {"namespaceSelector": {"matchExpressions": [names]}}
    for body in (policy, binding):
        api_server.create(COLLECTIONS[body["kind"]], body)
    try:
        wait_until(lambda: bool(refusal(api_server, {"ipAddrsNoIpam": "[]"})), "the policy holds")
        yield api_server
    finally:
        for body in (binding, policy):
            api_server.request("DELETE", f"{COLLECTIONS[body['kind']]}/{body['metadata']['name']}")


def refusal(server: ApiServer, texts: dict[str, str], namespace: str = NAMESPACE) -> str:
    """What the server answers about a pod with these annotations; empty if it takes the pod."""
    try:
        make_pod(server, namespace, "web", node="n", annotations=prefixed(texts))
    except RequestRefused as error:
        return str(json.loads(str(error).removeprefix("HTTP 422: "))["message"])
    server.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/web?gracePeriodSeconds=0")
    return ""


def change(server: ApiServer, path: str, texts: dict[str, str | None]) -> None:
    body = {"metadata": {"annotations": prefixed(texts)}}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{path}"
    server.request("PATCH", path, body, content_type="application/merge-patch+json")


def test_the_page_shows_what_the_server_answers(server: ApiServer) -> None:
    answers = [refusal(server, texts) for texts in ({"ipAddrs": '["192.0.2.1"]'}, {"ipAddrsNoIpam": '["192.0.2.1"]'})]
    assert answers == shown("text", "pods ").splitlines()


@pytest.mark.parametrize(
    "texts",
    [
        {},
        {"ipAddrs": ""},
        {"ipAddrs": '["10.65.0.9"]'},
        {"ipAddrs": '["10.65.0.9", "fd65::9"]'},
        {"ipv4pools": '["blue"]', "hwAddr": "02:00:00:00:00:01", "ipAddrsNoIpam": ""},
    ],
)
def test_what_anybody_may_use(server: ApiServer, texts: dict[str, str]) -> None:
    assert refusal(server, texts) == ""


@pytest.mark.parametrize(
    "text",
    [
        '["10.66.0.9"]', '["10.65.0.9", "fd66::9"]', '["fd66::9","10.65.0.9"]', '["10.65.0.9/8"]', "10.65.0.9",
        '["192.0.2.\\\\u0031"]', '["::ffff:192.0.2.1"]', '["10.65.0.9", "192.0.2.1"', "[", "[192.0.2.1]",
    ],
)  # fmt: skip
def test_addresses_outside_the_ranges_in_any_spelling(server: ApiServer, text: str) -> None:
    assert "ipAddrs may name addresses of" in refusal(server, {"ipAddrs": text})


@pytest.mark.parametrize("name", ["ipAddrsNoIpam", "floatingIPs", "allowedSourcePrefixes"])
def test_what_reaches_beyond_the_pod_needs_a_trusted_namespace(server: ApiServer, name: str) -> None:
    assert f"{ANNOTATION_PREFIX}/{name} needs the label" in refusal(server, {name: '["192.0.2.1"]'})
    assert refusal(server, {name: '["192.0.2.1"]'}, TRUSTED) == ""


@pytest.mark.parametrize("path", ["older", "older/status"])
def test_a_pod_that_was_there_before_is_judged_by_what_changes(server: ApiServer, path: str) -> None:
    change(server, path, {"podIP": "10.65.0.9/32", "ipv4pools": '["blue"]'})
    with pytest.raises(RequestRefused, match="needs the label"):
        change(server, path, {"ipAddrsNoIpam": '["192.0.2.2"]'})
    with pytest.raises(RequestRefused, match="may name addresses of"):
        change(server, path, {"ipAddrs": '["192.0.2.2"]'})
