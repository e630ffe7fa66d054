"""What was refused, as an error of ours: in the words of resource documents, or in those of CNI documents."""

from __future__ import annotations

from attrs import frozen

from netplug_core.decoding.codecs import Refused, WrongType
from netplug_core.decoding.tables import UnknownKeys, Unreadable
from netplug_core.errors import ConfigurationError, DecodeError, NetplugError, excerpt, quote, redact_url_credentials

__all__ = ["MalformedField", "UnknownField", "cni_error", "document_error", "path_in_document"]


@frozen
class MalformedField(ConfigurationError):
    """A field whose value cannot be read; ``accepted`` is what was expected, ``reason`` what is wrong, if known."""

    reason: str = ""

    def __str__(self) -> str:
        found = "nothing" if self.value is None else quote(self.value)
        because = f": {self.reason}" if self.reason else ""
        return f"expected {self.accepted} @ {excerpt(self.where)}, found {found}{because}"


class UnknownField(ConfigurationError):
    """A field of a user's document that the kind does not have."""

    def __str__(self) -> str:
        return (
            f"field in document is not recognized or is in the wrong location: {excerpt(self.value)} @ "
            f"{excerpt(self.where)}; "
            f"there are {self.accepted}"
        )


def path_in_document(source: str, path: str) -> str:
    """A place in a document, such as ``pool.yaml#1 $.spec``; ``source`` may be empty."""
    return f"{source} ${path}" if source else f"${path}"


def document_error(refused: Refused, source: str) -> NetplugError:
    """The error about a resource, or about the file of the tool."""
    where = path_in_document(source, refused.path)
    if isinstance(refused, UnknownKeys):
        return UnknownField(where, refused.value, refused.accepted)
    return MalformedField(where, refused.value, refused.accepted, refused.reason)


def cni_error(refused: Refused, where: str) -> NetplugError:
    """The error about a document of a runtime: code 6 for a wrong type, code 7 for a value that is not accepted."""
    at = f"{where}{refused.path}"
    if isinstance(refused, WrongType):
        return DecodeError(at, refused.expected.value[1])
    if isinstance(refused, Unreadable):
        return DecodeError(at, refused.accepted)
    # A value in the wrong place may be a URL with a password.
    return ConfigurationError(at, redact_url_credentials(refused.value), refused.accepted)
