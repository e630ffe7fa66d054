"""Profiles of namespaces and service accounts: names, labels, rules, and the start of watches."""

from typing import cast

import pytest

from netplug_backends.kubernetes.client.apiclient import ApiClient
from netplug_backends.kubernetes.kinds.profiles import ProfileStore, profile_record
from netplug_core.records import Malformed, Revision
from netplug_core.resources.codec import to_mapping
from netplug_core.resources.profile import DEFAULT_ALLOW_PROFILE, PROFILE, Profile

Json = dict[str, object]


def found(name: str, *, namespace: str = "", **metadata: object) -> Json:
    inside = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": name, **inside, "uid": "u", "resourceVersion": "7", **metadata}}


def read(item: Json) -> Json:
    """The profile as JSON."""
    return to_mapping(cast("Profile", profile_record(PROFILE, item).value))


def test_a_namespace_is_a_profile_with_its_labels_that_allows_everything() -> None:
    item = found("shop", labels={"team": "a", "example.org/x": ""}, creationTimestamp="2026-08-20T10:00:00Z")
    assert profile_record(PROFILE, item).revision == "u/7"
    assert read(item) == {
        "kind": "Profile",
        "apiVersion": "projectnetplug.org/v3",
        "metadata": {"name": "kns.shop", "uid": "u", "creationTimestamp": "2026-08-20T10:00:00Z"},
        "spec": {
            "ingress": [{"action": "Allow"}],
            "egress": [{"action": "Allow"}],
            "labelsToApply": {"pcns.team": "a", "pcns.example.org/x": "", "pcns.projectnetplug.org/name": "shop"},
        },
    }


def test_a_service_account_is_a_profile_with_its_labels_alone() -> None:
    item = found("web.front", namespace="shop", labels={"team": "a"}, deletionTimestamp="2026-08-20T10:00:00Z")
    assert read(item) == {
        "kind": "Profile",
        "apiVersion": "projectnetplug.org/v3",
        "metadata": {"name": "ksa.shop.web.front", "uid": "u", "deletionTimestamp": "2026-08-20T10:00:00Z"},
        "spec": {"labelsToApply": {"pcsa.team": "a", "pcsa.projectnetplug.org/name": "web.front"}},
    }


def test_a_service_account_with_a_long_name_has_a_label_that_the_api_accepts() -> None:
    spec = cast("Json", read(found("a" * 253, namespace="shop"))["spec"])
    (label,) = cast("Json", spec["labelsToApply"]).values()
    assert isinstance(label, str)
    assert (label[:47], len(label)) == ("a" * 46 + "_", 63)


def test_a_profile_with_an_invalid_time_is_malformed() -> None:
    with pytest.raises(Malformed, match=r"Profile\(kns\.shop\).*creationTimestamp"):
        profile_record(PROFILE, found("shop", creationTimestamp="yesterday"))


@pytest.mark.parametrize(
    "revision,numbers", [("5/6", ("5", "6")), ("5/", ("5", "")), ("/6", ("", "6")), ("", ("", ""))]
)
def test_a_revision_has_a_number_per_collection(revision: str, numbers: tuple[str, str]) -> None:
    sources = ProfileStore(cast("ApiClient", None)).watched_collections(PROFILE, Revision(revision))
    assert tuple(number for _, number in sources) == numbers
    assert [request.path for request, _ in sources] == ["/api/v1/namespaces", "/api/v1/serviceaccounts"]


def test_the_allow_all_profile_needs_no_object() -> None:
    assert to_mapping(DEFAULT_ALLOW_PROFILE.value) == {
        "kind": "Profile",
        "apiVersion": "projectnetplug.org/v3",
        "metadata": {"name": "projectnetplug-default-allow"},
        "spec": {"ingress": [{"action": "Allow"}], "egress": [{"action": "Allow"}]},
    }
