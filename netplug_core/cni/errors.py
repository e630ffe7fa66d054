"""How a call that failed answers: one error object, and one text for the log.

``dispatch`` calls this for whatever ended a call. Nothing that leaves here holds a token or password of the
configuration, whoever put it into a message.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from attrs import frozen

from netplug_core.errors import NetplugError

__all__ = ["Failure", "describe", "find_secrets", "render_failure"]

_SECRET_WORDS = ("token", "password", "secret")
_HIDDEN = "<hidden>"
_LONGEST_CHAIN = 16


@frozen(kw_only=True)
class Failure:
    """What ended a call. ``log`` has the traceback too when nobody foresaw it; the other texts never do."""

    code: int
    message: str
    details: str
    log: str


def describe(error: Exception, *, secrets: tuple[str, ...]) -> Failure:
    """The failure that an exception is, with every secret hidden.

    The details of an error of ours are its own, followed by our errors that were pending when it came; those
    of any other exception are its text and the texts of all that were pending.
    """
    if isinstance(error, NetplugError):
        code, message, trace = error.code, str(error), ""
        own: str = getattr(error, "details", "")
        pending = [str(earlier) for earlier in _pending(error) if isinstance(earlier, NetplugError)]
    else:
        code, message, trace = NetplugError.code, _named(error), "\n" + _traceback(error)
        own = message
        pending = [_named(earlier) for earlier in _pending(error)]
    told = [f"raised while handling {text}" for text in pending if text not in message]  # once is enough
    details = "; ".join([own, *told] if own else told)
    beside = f" ({details})" if details and details != message else ""
    return Failure(
        code=code,
        message=_without(message, secrets),
        details=_without(details, secrets),
        log=_without(f"the final result was an error, code {code}: {message}{beside}{trace}", secrets),
    )


def render_failure(failure: Failure, cni_version: str) -> str:
    """The JSON text of the error object.

    Source: CNI specification, "Error".
    """
    members: dict[str, object] = {
        "cniVersion": cni_version,
        "code": failure.code,
        "msg": failure.message,
    }
    if failure.details:
        members["details"] = failure.details
    return json.dumps(members, indent=4) + "\n"


def find_secrets(config: object) -> tuple[str, ...]:
    """The texts in decoded JSON that stand under a key like ``k8s_auth_token``; the longest first."""
    return tuple(sorted(set(_secrets_in(config)), key=lambda text: (-len(text), text)))


def _secrets_in(document: object) -> Iterator[str]:
    # No recursion: input may be nested as deeply as its decoder could just bear.
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(value)
        if not isinstance(value, Mapping):
            continue
        waiting.extend(value.values())
        for key, member in value.items():
            if isinstance(member, str) and member and any(word in key.lower() for word in _SECRET_WORDS):
                yield member


def _without(text: str, secrets: tuple[str, ...]) -> str:
    # The longest first: a secret that is part of another must not leave the rest of it standing.
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return text


def _named(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _pending(error: BaseException) -> Iterator[BaseException]:
    # A chain of exceptions may be a ring; whoever prints an error must come to an end.
    for _ in range(_LONGEST_CHAIN):
        earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if earlier is None:
            return
        yield earlier
        error = earlier


def _traceback(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(error))
