"""Replies as values: what is shown of a text that is not JSON, and what is hidden."""

import pytest

from netplug_backends.kubernetes.client.apiclient import ApiReply, ApiRequest, RawReply, decode_reply, parse_json
from netplug_core.errors import Unavailable
from netplug_core.records import OutcomeUnknown


def reply(status: int, body: bytes = b"", location: str = "") -> RawReply:
    return RawReply(status, "", location, body, is_last=False)


def test_a_missing_object_differs_from_a_path_that_is_not_served() -> None:
    assert decode_reply(reply(404, b'{"kind": "Status", "details": {"name": "main"}}')).is_missing
    assert not decode_reply(reply(404, b'{"kind": "Status", "details": {}}')).is_missing
    assert not decode_reply(reply(404, b"404 page not found")).is_missing


def test_the_text_of_a_proxy_becomes_the_message() -> None:
    assert decode_reply(reply(502, b" bad gateway\n" + b"x" * 300)).message == "bad gateway\n" + "x" * 188 + "…"
    assert decode_reply(reply(503)).message == "HTTP status 503"


@pytest.mark.parametrize(
    "location,shown",
    [
        ("https://login.example/sso?token=secret#part", "https://login.example/sso"),
        ("https://user:secret@login.example/", "…"),
        ("", "nowhere"),
    ],
)
def test_a_redirect_is_shown_without_the_secrets_in_its_url(location: str, shown: str) -> None:
    assert decode_reply(reply(302, location=location)).message == f"HTTP status 302, which leads to {shown}"


def test_a_write_without_an_answer_has_an_unknown_outcome_and_a_read_has_none() -> None:
    assert ApiRequest("GET", "/api").no_answer_error is Unavailable
    assert ApiRequest("PATCH", "/api").no_answer_error is OutcomeUnknown


def test_json_that_is_nested_too_deeply_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 100_000)


def test_the_rights_that_an_account_would_give_and_does_not_have_are_shown() -> None:
    groups = " ".join(f'"system:group-{number}"' for number in range(20))
    text = (
        'clusterroles.rbac.authorization.k8s.io "netplug" is forbidden: user "system:serviceaccount:a:b" '
        f"(groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["pods/status"], Verbs:["patch"]}'
    )
    assert ApiReply(403, {"message": text}).message == (
        'clusterroles.rbac.authorization.k8s.io "netplug" is forbidden: RBAC permissions not currently held: '
        '{APIGroups:[""], Resources:["pods/status"], Verbs:["patch"]}'
    )


def test_a_right_that_is_missing_is_shown_behind_long_names() -> None:
    text = (
        'customresourcedefinitions.apiextensions.k8s.io "installations.operator.projectnetplug.org" is forbidden: '
        'User "system:serviceaccount:netplug-operator:netplug-operator" cannot create resource '
        '"customresourcedefinitions" in API group "apiextensions.k8s.io" at the cluster scope'
    )
    assert ApiReply(403, {"message": text}).message == text
    assert ApiReply(403, {"message": text * 2}).message == f"{(text * 2)[:400]}…"
