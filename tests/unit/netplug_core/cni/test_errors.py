"""The error object and the last words in the log: what is said, and what never is."""

import json
from contextlib import ExitStack

import pytest

from netplug_core.cni.errors import Failure, describe, find_secrets, render_failure
from netplug_core.errors import (
    ConfigurationError,
    DecodeError,
    IncompatibleVersion,
    NamespaceError,
    NetplugError,
    ReadError,
    RequestError,
    Unavailable,
    UnhealthyStatus,
    UsageError,
)


def raising(error: Exception) -> None:
    raise error


def raised(error: Exception) -> Exception:
    """The exception as it is once it was raised: with a traceback."""
    with pytest.raises(type(error)) as caught:
        raising(error)
    return caught.value


def ours(error: Exception, *, while_handling: Exception) -> Exception:
    """The exception as it is when an undo step raised it, with another one pending."""
    with pytest.raises(type(error)) as caught:
        failing_twice(while_handling, error)
    return caught.value


def failing_twice(first: Exception, second: Exception) -> None:
    with ExitStack() as undo:
        undo.callback(raising, second)
        raise first


@pytest.mark.parametrize(
    "error,code",
    [
        (IncompatibleVersion("m"), 1),
        (RequestError("m"), 4),
        (ReadError("m"), 5),
        (DecodeError("w", "p"), 6),
        (ConfigurationError("w", 1, "a"), 7),
        (NamespaceError("m"), 8),
        (Unavailable("w", "c"), 11),
        (UnhealthyStatus("m"), 50),
        (UsageError("m"), 100),
    ],
)
def test_our_errors_have_their_code_and_text(error: NetplugError, code: int) -> None:
    assert describe(error, secrets=()) == Failure(
        code=code,
        message=str(error),
        details="",
        log=f"the final result was an error, code {code}: {error}",
    )


def test_the_details_of_an_error_are_beside_its_text() -> None:
    failure = describe(IncompatibleVersion("incompatible", 'config is "x"'), secrets=())
    assert failure.message == "incompatible"
    assert failure.details == 'config is "x"'
    assert failure.log == 'the final result was an error, code 1: incompatible (config is "x")'


def test_an_unforeseen_exception_is_999_with_its_traceback_in_the_log_only() -> None:
    failure = describe(raised(ValueError("odd")), secrets=())
    assert failure.code == 999
    assert failure.message == failure.details == "ValueError: odd"
    assert failure.log.startswith("the final result was an error, code 999: ValueError: odd\nTraceback (most ")
    assert "raise error" in failure.log


def test_an_exception_without_a_text_is_its_class() -> None:
    assert describe(KeyError(), secrets=()).message == "KeyError"


def test_our_pending_errors_are_in_the_details() -> None:
    error = ours(Unavailable("store", "gone"), while_handling=NamespaceError("no such namespace"))
    failure = describe(error, secrets=())
    assert failure.message == "store: gone"
    assert failure.details == "raised while handling no such namespace"


def test_what_the_message_says_already_is_not_said_again() -> None:
    error = ours(Unavailable("store", "gone"), while_handling=Unavailable("store", "gone"))
    assert describe(error, secrets=()).details == ""


def test_pending_exceptions_of_others_are_not_shown_beside_ours() -> None:
    error = ours(Unavailable("store", "gone"), while_handling=OSError("raw"))
    assert describe(error, secrets=()).details == ""


def test_a_pending_error_is_found_behind_the_exception_of_another() -> None:
    outer = Unavailable("store", "gone")
    outer.__cause__ = ours(OSError("raw"), while_handling=NamespaceError("first"))
    assert describe(outer, secrets=()).details == "raised while handling first"


def test_everything_pending_is_beside_an_unforeseen_exception() -> None:
    error = ours(ValueError("odd"), while_handling=ours(OSError("raw"), while_handling=RequestError("first")))
    assert describe(error, secrets=()).details == (
        "ValueError: odd; raised while handling OSError: raw; raised while handling RequestError: first"
    )


def test_what_was_suppressed_is_not_pending() -> None:
    error = ours(Unavailable("store", "gone"), while_handling=NamespaceError("translated"))
    error.__suppress_context__ = True
    assert describe(error, secrets=()).details == ""


def test_a_ring_of_exceptions_ends() -> None:
    first, second = RequestError("first"), RequestError("second")
    first.__cause__, second.__cause__ = second, first
    assert describe(first, secrets=()).details.count("second") == 8


def test_secrets_are_hidden_in_every_text() -> None:
    error = ours(ValueError("token abcd"), while_handling=OSError("abcdef ghi"))
    failure = describe(error, secrets=("abcdef", "abcd", "ghi"))
    assert failure.message == "ValueError: token <hidden>"
    assert failure.details == ("ValueError: token <hidden>; raised while handling OSError: <hidden> <hidden>")
    assert "OSError: <hidden> <hidden>" in failure.log
    assert "abcd" not in failure.log


def test_secrets_stand_under_telling_keys() -> None:
    config = {
        "name": "net1",
        "policy": {"type": "k8s", "k8s_auth_token": "abc"},
        "plugins": [{"Password": "longest"}, {"client_secret": "x"}, {"token": ""}, {"token": 5}],
        "tokens": {"inner": "not one"},
    }
    assert find_secrets(config) == ("longest", "abc", "x")


def test_secrets_are_found_however_deep() -> None:
    config: object = {"token": "abc"}
    for _ in range(5000):
        config = [{"inner": config}]
    assert find_secrets(config) == ("abc",)


def test_the_error_object() -> None:
    failure = Failure(code=7, message="bad", details="why", log="")
    assert render_failure(failure, "0.4.0") == (
        '{\n    "cniVersion": "0.4.0",\n    "code": 7,\n    "msg": "bad",\n    "details": "why"\n}\n'
    )


def test_empty_details_are_left_out() -> None:
    document = json.loads(render_failure(Failure(code=4, message="bad", details="", log=""), "1.1.0"))
    assert document == {"cniVersion": "1.1.0", "code": 4, "msg": "bad"}
