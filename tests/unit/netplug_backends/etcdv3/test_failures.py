"""Which failure an error text or a gRPC status means."""

import pytest

from netplug_backends.etcdv3.operations import CallFailure, classify, find_failure


@pytest.mark.parametrize(
    "text,failure,shown",
    [
        (
            "Ssl handshake failed: SSL_ERROR_SSL: CERTIFICATE_VERIFY_FAILED: certificate has expired",
            CallFailure.SERVER_NOT_TRUSTED,
            "the server's certificate is not trusted: certificate has expired",
        ),
        (
            "SSLV3_ALERT_BAD_CERTIFICATE",
            CallFailure.CLIENT_NOT_TRUSTED,
            "the server does not accept the client's certificate, or its absence: BAD_CERTIFICATE",
        ),
        (
            "WRONG_VERSION_NUMBER",
            CallFailure.UNREACHABLE,
            "the TLS handshake was not answered; does the server speak TLS?",
        ),
    ],
)
def test_a_handshake_failure_is_named_whatever_the_status(text: str, failure: CallFailure, shown: str) -> None:
    failed = classify("UNAVAILABLE", text)
    assert (failed.failure, str(failed)) == (failure, shown)


def test_the_text_of_etcd_wins_over_the_status() -> None:
    assert classify("INVALID_ARGUMENT", "etcdserver: user name is empty").failure is CallFailure.UNAUTHENTICATED
    assert classify("INVALID_ARGUMENT", "etcdserver: key is not provided").failure is CallFailure.REJECTED


def test_an_unknown_error_of_etcd_leaves_the_outcome_open_and_one_of_the_transport_is_no_reply() -> None:
    assert classify("UNAVAILABLE", "etcdserver: request timed out").failure is CallFailure.OUTCOME_UNKNOWN
    assert classify("UNAVAILABLE", "Socket closed").failure is CallFailure.NO_REPLY


def test_the_address_that_grpc_puts_in_front_is_removed() -> None:
    text = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect"
    assert str(classify("UNAVAILABLE", text)) == "Failed to connect"
    assert str(classify("INTERNAL", "")) == "gRPC status INTERNAL"


def test_a_text_that_etcd_does_not_use_identifies_no_failure() -> None:
    assert find_failure("etcdserver: no leader") is CallFailure.MEMBER_NOT_SERVING
    assert find_failure("no leader") is None
