"""What breaks a rule for resources: the errors, and the rules that fields of several kinds have in common.

``validation`` and the rules of each kind make them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from attrs import frozen

from netplug_core.errors import ConfigurationError, excerpt
from netplug_core.names import is_resource_name
from netplug_core.selectors.grammar import Everything, SelectorError, leaf_terms, parse

__all__ = [
    "WORD_PATTERN",
    "FieldError",
    "InvalidResource",
    "find_label_name_problems",
    "find_label_problems",
    "validate_regular_expression",
    "validate_selector",
    "validate_word",
]

_MAX_SELECTOR_LENGTH: Final = 1024

_LABEL_WORD: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_RULE: Final = "at most 63 letters, digits, '-', '_' and '.', between letters or digits"

WORD_PATTERN: Final = "[A-Za-z0-9_.-]{1,128}"
"""A name within a resource, such as that of a port."""


@frozen
class FieldError:
    """One field that cannot be accepted, what it holds, and the rule it breaks."""

    field: str
    value: object
    reason: str

    def __str__(self) -> str:
        return f"error with field {excerpt(self.field)} = '{excerpt(self.value)}' ({self.reason})"


@frozen
class InvalidResource(ConfigurationError):
    """A resource that breaks rules; ``where`` names it, ``problems`` has every rule it breaks."""

    field_errors: tuple[FieldError, ...]

    @classmethod
    def from_field_errors(cls, where: str, problems: Iterable[FieldError]) -> InvalidResource:
        """The error for one problem or several."""
        found = tuple(problems)
        return cls(where, found[0].value, found[0].reason, found)

    def __str__(self) -> str:
        return f"{excerpt(self.where)}: {'; '.join(map(str, self.field_errors))}"


def find_label_problems(field: str, labels: Iterable[tuple[str, str]]) -> Iterator[FieldError]:
    """Names and texts that no label can have. Source: the Kubernetes page on labels and selectors."""
    pairs = tuple(labels)
    yield from find_label_name_problems(field, (name for name, _text in pairs))
    for name, text in pairs:
        if text and not _LABEL_WORD.fullmatch(text):
            yield FieldError(f"{field}[{name}]", text, f"a label's text is {_LABEL_RULE}, or empty")


def find_label_name_problems(field: str, names: Iterable[str]) -> Iterator[FieldError]:
    """Names that no label and no annotation can have."""
    for name in names:
        domain, slash, last = name.rpartition("/")
        if not _LABEL_WORD.fullmatch(last) or (slash and not is_resource_name(domain)):
            yield FieldError(field, name, f"a name is {_LABEL_RULE}, and may have a DNS name and '/' before it")


def validate_selector(field: str, text: str) -> Iterator[FieldError]:
    """What is wrong with the selector of nodes or namespaces that a field holds."""
    if len(text) > _MAX_SELECTOR_LENGTH:
        yield FieldError(field, text, f"at most {_MAX_SELECTOR_LENGTH} characters")
        return
    try:
        selector = parse(text)
    except SelectorError as error:
        yield FieldError(field, text, str(error))
        return
    if Everything.GLOBAL in leaf_terms(selector):
        yield FieldError(field, text, "global() cannot be used: it selects neither nodes nor namespaces")


def validate_regular_expression(field: str, text: str) -> Iterator[FieldError]:
    """What is wrong with a regular expression."""
    try:
        re.compile(text)
    except (re.error, OverflowError) as error:
        yield FieldError(field, text, f"no regular expression: {error}")


def validate_word(field: str, text: str) -> Iterator[FieldError]:
    """What is wrong with a name within a resource."""
    if not re.fullmatch(WORD_PATTERN, text):
        yield FieldError(field, text, "must be 1 to 128 letters, digits, '_', '.' and '-'")
