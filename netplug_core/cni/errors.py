"""The answer to a call that failed: one error object, and one text for the log.

``dispatch`` calls this for every exception that ended a call. No text contains a token or password of the network
configuration.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator, Mapping

from attrs import frozen

from netplug_core.errors import NetplugError, shorten

__all__ = [
    "HIDDEN", "SECRET_WORDS", "CNIErrorObject", "collect_secrets", "describe_error", "hide", "render_error",
    "render_message",
]  # fmt: skip

SECRET_WORDS = ("token", "password", "secret")
"""The value of a member is secret if one of these is in its name."""

HIDDEN = "<hidden>"
"""What stands in place of a secret."""

_MAX_CHAIN_LENGTH = 16


@frozen(kw_only=True)
class CNIErrorObject:
    """What ended a call. Only ``log_text`` has a traceback, and only for an exception that is not an error of ours."""

    code: int
    message: str
    details: str
    log_text: str


def describe_error(error: Exception, *, secrets: tuple[str, ...]) -> CNIErrorObject:
    """The error object for an exception, with every secret hidden.

    The details of an error of ours are its own details, followed by the errors of ours that it was raised from. The
    details of any other exception are its text and the texts of all exceptions that it was raised from.
    """
    if isinstance(error, NetplugError):
        code, message, trace = error.reported_code, render_message(error), ""
        own: str = getattr(error, "details", "")
        pending = [str(earlier) for earlier in _exception_chain(error) if isinstance(earlier, NetplugError)]
    else:
        code, message, trace = NetplugError.code, _type_and_text(error), "\n" + _traceback(error)
        own = message
        pending = [_type_and_text(earlier) for earlier in _exception_chain(error)]
    causes = [f"raised while handling {text}" for text in pending if text not in message]  # once is enough
    details = "; ".join([own, *causes] if own else causes)
    beside = f" ({details})" if details and details != message else ""
    return CNIErrorObject(
        code=code,
        message=shorten(hide(message, secrets)),
        details=shorten(hide(details, secrets)),
        log_text=hide(f"the final result was an error, code {code}: {message}{beside}{trace}", secrets),
    )


def render_message(error: NetplugError) -> str:
    """The text of an error and, where its code has them, the identifier and the next step.

    Runtimes show this text alone, so that it has to say what to do.
    """
    if not error.next_step:
        return str(error)
    reason = f"{error.identifier}: " if error.identifier else ""
    return f"{error}; {reason}{error.next_step}"


def render_error(error: CNIErrorObject, cni_version: str) -> str:
    """The JSON text of the error object.

    Source: CNI specification, "Error".
    """
    members: dict[str, object] = {"cniVersion": cni_version, "code": error.code, "msg": error.message}
    if error.details:
        members["details"] = error.details
    return json.dumps(members, indent=4) + "\n"


def collect_secrets(document: object) -> tuple[str, ...]:
    """The texts in decoded JSON that stand under a key like ``k8s_auth_token``; the longest first."""
    return tuple(sorted(set(_secrets_in(document)), key=lambda text: (-len(text), text)))


def _secrets_in(document: object) -> Iterator[str]:
    # No recursion: the input may be nested as deeply as the JSON decoder allows.
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(value)
        if not isinstance(value, Mapping):
            continue
        waiting.extend(value.values())
        for key, member in value.items():
            if isinstance(member, str) and member and any(word in key.lower() for word in SECRET_WORDS):
                yield member


def hide(text: str, secrets: tuple[str, ...]) -> str:
    """A text without some secrets. They come the longest first: a secret may be part of another one."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def _type_and_text(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _exception_chain(error: BaseException) -> Iterator[BaseException]:
    # A chain of exceptions may be a ring, so its length is bounded.
    for _ in range(_MAX_CHAIN_LENGTH):
        earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if earlier is None:
            return
        yield earlier
        error = earlier


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
