"""Parts of OpenAPI schemas: one value, an object, and a whole resource. ``schemas`` puts them together."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

from netplug_core.decoding.schema import Schema
from netplug_core.selectors.grammar import SELECTOR_PARENTHESES, SELECTOR_PATTERN

__all__ = [
    "MAX_CIDR_LENGTH", "NAME_IS_DEFAULT", "NAME_IS_DEFAULT_OR_OF_NODE", "NO_HOST_BITS", "choice",
    "flag", "list_of", "map_of", "number", "object_of", "preserve_unknown", "resource", "selector", "text",
    "validations",
]  # fmt: skip

MAX_CIDR_LENGTH = 43

_MAX_SELECTOR_LENGTH = 1024

_SELECTOR_EXAMPLE = "a selector is expected, such as zone == 'a' && has(gpu)"
_PARENTHESES = f"self.findAll(r'''{SELECTOR_PARENTHESES}''')"


def text(description: str = "", **more: object) -> Schema:
    """A text."""
    return {"type": "string", **({"description": description} if description else {}), **more}


def selector(description: str = "") -> Schema:
    """A selector, as far as expressions can judge it: the rest is refused by who reads it."""
    rules = (
        (f"self.matches(r'''{SELECTOR_PATTERN}''')", _SELECTOR_EXAMPLE),
        (
            f"{_PARENTHESES}.filter(one, one == '(').size() == {_PARENTHESES}.filter(one, one == ')').size()",
            "a selector has as many ')' as '('",
        ),
    )
    return text(description, maxLength=_MAX_SELECTOR_LENGTH, **validations(*rules))


def flag(description: str) -> Schema:
    """True or false."""
    return {"type": "boolean", "description": description}


def number(description: str = "", **more: object) -> Schema:
    """A whole number of 64 bits."""
    return {"type": "integer", "format": "int64", **({"description": description} if description else {}), **more}


def choice(description: str, choices: type[enum.Enum]) -> Schema:
    """One of the values of an enumeration."""
    return text(description, enum=[choice.value for choice in choices])


def list_of(description: str, items: Schema, max_items: int) -> Schema:
    """A list with a bound, without which the server would reckon rules on its items too costly."""
    return {"type": "array", "description": description, "items": items, "maxItems": max_items}


def map_of(values: Schema, description: str = "") -> Schema:
    """An object with any members of one kind."""
    schema: Schema = {"type": "object", "additionalProperties": values}
    if description:
        schema["description"] = description
    return schema


def object_of(
    description: str,
    members: Mapping[str, Schema],
    *,
    required: Sequence[str] = (),
    rules: Sequence[tuple[str, str]] = (),
) -> Schema:
    """An object with these members and no others; a rule is an expression and its message."""
    schema: Schema = {"type": "object", "description": description, "properties": dict(members)}
    if required:
        schema["required"] = list(required)
    return schema | validations(*rules)


def validations(*rules: tuple[str, str]) -> Schema:
    """The member of a schema that holds rules, each an expression and its message."""
    listed = [{"rule": rule, "message": message} for rule, message in rules]
    return {"x-kubernetes-validations": listed} if rules else {}


def preserve_unknown(schema: Schema) -> Schema:
    """The schema with unknown members allowed."""
    return {**schema, "x-kubernetes-preserve-unknown-fields": True}


def resource(description: str, spec: Schema, *, rules: Sequence[tuple[str, str]] = (), **members: Schema) -> Schema:
    """A whole resource: its envelope, a spec, and further members."""
    envelope: dict[str, Schema] = {"apiVersion": text(), "kind": text(), "metadata": {"type": "object"}}
    return object_of(description, {**envelope, "spec": spec, **members}, required=["spec"], rules=rules)


NO_HOST_BITS = {
    "rule": "!isCIDR(self) || cidr(self) == cidr(self).masked()",
    "message": "a CIDR without host bits is expected",
}
NAME_IS_DEFAULT = ("self.metadata.name == 'default'", "there is one, and its name is default")
NAME_IS_DEFAULT_OR_OF_NODE = (
    "self.metadata.name == 'default' || self.metadata.name.startsWith('node.')",
    "must be default, or node. and the name of a node",
)
