"""Edits of single values in a text of YAML or JSON; everything else stays as it was written, remarks too."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import yaml

from netplug_cli.ctl.documents import parse_text
from netplug_cli.ctl.errors import InputError
from netplug_core.decoding.members import find_at, with_member

__all__ = ["replace_value"]

_GUESSED_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("bool", "float", "int")}
_BY_HAND = "the value cannot be replaced here; change it by hand"


def replace_value(text: str, number: int, path: Sequence[str | int], value: str | float, *, name: str) -> str:
    """The text with another value at a path of one of its documents, which are counted from 1.

    ``name`` is the file's, for messages.

    Raises:
        InputError: the edited text would not be the same documents with that value.
    """
    before = list(parse_text(text, name))
    try:
        edited = _replace(text, _find_node(text, number, path), value)
        after = list(parse_text(edited, name))
    except (InputError, yaml.YAMLError, LookupError, TypeError):
        raise InputError(name, None, _BY_HAND) from None
    whole = before[number - 1]
    wanted = [*before[: number - 1], with_member(whole if isinstance(whole, Mapping) else {}, path, value)]
    if after != [*wanted, *before[number:]] or type(find_at(after[number - 1], path)) is not type(value):
        raise InputError(name, None, _BY_HAND)
    return edited


def _find_node(text: str, number: int, path: Sequence[str | int]) -> tuple[yaml.Node, yaml.Node]:
    """The node of a member's name, and that of its value."""
    key = node = list(yaml.compose_all(text, Loader=yaml.SafeLoader))[number - 1]
    for step in path:
        if isinstance(node, yaml.MappingNode):
            key, node = {name.value: (name, one) for name, one in node.value}[step]
        else:
            key = node = node.value[step]
    return key, node


def _replace(text: str, nodes: tuple[yaml.Node, yaml.Node], value: str | float) -> str:
    key, node = nodes
    start, end = node.start_mark.index, node.end_mark.index
    if isinstance(node, yaml.ScalarNode) and node.style in (None, "'", '"'):
        if node.tag in _GUESSED_TAGS and isinstance(value, str) and value != node.value:
            raise LookupError(value)  # a text that was not written there: YAML has read 010 as 8
        return f"{text[:start]}{_render(value, node.style)}{text[end:]}"
    if isinstance(node, yaml.CollectionNode) and node.flow_style:
        return f"{text[:start]}{_render(value, None)}{text[end:]}"
    # A block begins on a line of its own, and ends where the next member begins.
    end = start + len(text[start:end].rstrip())
    return f"{text[: key.end_mark.index]}: {_render(value, None)}{text[end:]}"


def _render(value: str | float, style: str | None) -> str:
    """The value in the quotes that there were, if it can be written in them."""
    if isinstance(value, str):
        if style == "'" and "'" not in value:
            return f"'{value}'"
        if style is None and "\n" not in value and yaml.safe_load(value) == value:
            return value
    return json.dumps(value, ensure_ascii=False)
