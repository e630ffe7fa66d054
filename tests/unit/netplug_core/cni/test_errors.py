"""The error object and the last words in the log: what is said, and what never is."""

import json
from contextlib import ExitStack

import pytest

from netplug_core.addressing import Family, Prefix
from netplug_core.cni.result import CNIErrorObject, collect_secrets, describe_error, render_error
from netplug_core.errors import (
    ConfigurationError,
    DecodeError,
    ErrorCode,
    IncompatibleVersion,
    LimitedConnectivity,
    NamespaceError,
    NetplugError,
    ReadError,
    RequestError,
    Unavailable,
    UnhealthyStatus,
    UsageError,
)
from netplug_core.ipam.outcome import (
    BlockOutcome,
    BlockTrace,
    PoolExhausted,
    PoolOutcome,
    PoolRefused,
    PoolsExhausted,
    PoolTrace,
)
from netplug_core.records import Malformed


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
        (LimitedConnectivity("m"), 51),
        (UsageError("m"), 100),
    ],
)
def test_our_errors_have_their_code_and_text(error: NetplugError, code: int) -> None:
    assert describe_error(error, secrets=()) == CNIErrorObject(
        code=code,
        message=str(error),
        details="",
        log_text=f"the final result was an error, code {code}: {error}",
    )


def test_the_details_of_an_error_are_beside_its_text() -> None:
    failure = describe_error(IncompatibleVersion("incompatible", 'config is "x"'), secrets=())
    assert failure.message == "incompatible"
    assert failure.details == 'config is "x"'
    assert failure.log_text == 'the final result was an error, code 1: incompatible (config is "x")'


def test_an_unforeseen_exception_is_999_with_its_traceback_in_the_log_only() -> None:
    failure = describe_error(raised(ValueError("odd")), secrets=())
    assert failure.code == 999
    assert failure.message == failure.details == "ValueError: odd"
    assert failure.log_text.startswith("the final result was an error, code 999: ValueError: odd\nTraceback (most ")
    assert "raise error" in failure.log_text


def test_an_exception_without_a_text_is_its_class() -> None:
    assert describe_error(KeyError(), secrets=()).message == "KeyError"


def test_our_pending_errors_are_in_the_details() -> None:
    error = ours(Unavailable("store", "gone"), while_handling=NamespaceError("no such namespace"))
    failure = describe_error(error, secrets=())
    assert failure.message == "store: gone"
    assert failure.details == "raised while handling no such namespace"


def test_what_the_message_says_already_is_not_said_again() -> None:
    error = ours(Unavailable("store", "gone"), while_handling=Unavailable("store", "gone"))
    assert describe_error(error, secrets=()).details == ""


def test_pending_exceptions_of_others_are_not_shown_beside_ours() -> None:
    error = ours(Unavailable("store", "gone"), while_handling=OSError("raw"))
    assert describe_error(error, secrets=()).details == ""


def test_a_pending_error_is_found_behind_the_exception_of_another() -> None:
    outer = Unavailable("store", "gone")
    outer.__cause__ = ours(OSError("raw"), while_handling=NamespaceError("first"))
    assert describe_error(outer, secrets=()).details == "raised while handling first"


def test_everything_pending_is_beside_an_unforeseen_exception() -> None:
    error = ours(ValueError("odd"), while_handling=ours(OSError("raw"), while_handling=RequestError("first")))
    assert describe_error(error, secrets=()).details == (
        "ValueError: odd; raised while handling OSError: raw; raised while handling RequestError: first"
    )


def test_what_was_suppressed_is_not_pending() -> None:
    error = ours(Unavailable("store", "gone"), while_handling=NamespaceError("translated"))
    error.__suppress_context__ = True
    assert describe_error(error, secrets=()).details == ""


def test_a_ring_of_exceptions_ends() -> None:
    first, second = RequestError("first"), RequestError("second")
    first.__cause__, second.__cause__ = second, first
    assert describe_error(first, secrets=()).details.count("second") == 8


def test_secrets_are_hidden_in_every_text() -> None:
    error = ours(ValueError("token abcd"), while_handling=OSError("abcdef ghi"))
    failure = describe_error(error, secrets=("abcdef", "abcd", "ghi"))
    assert failure.message == "ValueError: token <hidden>"
    assert failure.details == ("ValueError: token <hidden>; raised while handling OSError: <hidden> <hidden>")
    assert "OSError: <hidden> <hidden>" in failure.log_text
    assert "abcd" not in failure.log_text


def test_secrets_stand_under_telling_keys() -> None:
    config = {
        "name": "net1",
        "policy": {"type": "k8s", "k8s_auth_token": "abc"},
        "plugins": [{"Password": "longest"}, {"client_secret": "x"}, {"token": ""}, {"token": 5}],
        "tokens": {"inner": "not one"},
    }
    assert collect_secrets(config) == ("longest", "abc", "x")


def test_secrets_are_found_however_deep() -> None:
    config: object = {"token": "abc"}
    for _ in range(5000):
        config = [{"inner": config}]
    assert collect_secrets(config) == ("abc",)


def test_the_error_object() -> None:
    failure = CNIErrorObject(code=7, message="bad", details="why", log_text="")
    assert render_error(failure, "0.4.0") == (
        '{\n    "cniVersion": "0.4.0",\n    "code": 7,\n    "msg": "bad",\n    "details": "why"\n}\n'
    )


def test_empty_details_are_left_out() -> None:
    document = json.loads(render_error(CNIErrorObject(code=4, message="bad", details="", log_text=""), "1.1.0"))
    assert document == {"cniVersion": "1.1.0", "code": 4, "msg": "bad"}


V4 = Prefix.parse("10.0.0.0/26")
FULL = PoolExhausted(pool="main", prefix=V4, used=64, reserved=0, cooling=0, free_elsewhere=0)


def test_the_message_ends_with_the_identifier_and_the_next_step() -> None:
    """Runtimes show the message alone."""
    error = PoolsExhausted(family=Family.IPV4, found=0, wanted=1, trace=(FULL,))
    failure = describe_error(error, secrets=())
    assert failure.message == (
        f"{error}; pools-exhausted: add a pool, shrink the reservations, or shorten the cooldown"
    )
    assert failure.details == "", "the pool's numbers stand in the message already"


def test_the_next_step_of_a_node_with_all_its_blocks_is_another_one() -> None:
    block = BlockTrace(block=V4, outcome=BlockOutcome.OVER_LIMIT)
    error = PoolsExhausted(family=Family.IPV4, found=0, wanted=1, trace=(block,))
    assert describe_error(error, secrets=()).message.endswith(
        "; pools-exhausted: use larger blocks in the next pool, or set maxBlocksPerHost, which needs strict affinity"
    )


def test_the_details_of_a_full_cluster_are_cut() -> None:
    block = BlockTrace(block=V4, outcome=BlockOutcome.FULL)
    error = PoolsExhausted(family=Family.IPV4, found=0, wanted=1, trace=(FULL, *(block,) * 1000))
    assert describe_error(error, secrets=()).details.count(str(V4)) == 20
    assert describe_error(error, secrets=()).details.endswith("; and 980 more")


@pytest.mark.parametrize(
    "outcome, ending",
    [
        (PoolOutcome.DISABLED, "pool-disabled: name another pool, or enable this one"),
        (PoolOutcome.WRONG_FAMILY, "pool-wrong-family: move the entry to the list of its family"),
    ],
)
def test_a_reason_of_a_pool_has_its_own_next_step(outcome: PoolOutcome, ending: str) -> None:
    error = PoolRefused("main", PoolTrace(pool="main", prefix=V4, outcome=outcome))
    assert describe_error(error, secrets=()).message == f"{error}; {ending}"


def test_every_code_with_an_identifier_has_a_next_step() -> None:
    assert all(code.next_step for code in ErrorCode if code.identifier)


def test_the_message_about_a_damaged_record_says_how_to_go_on() -> None:
    error = Malformed("IPPool(main)", "$.spec.cidr: 7 is not a text")
    assert describe_error(error, secrets=()).message == (
        f"{error}; netplugctl ipam check lists damaged records; replace or delete them"
    )
