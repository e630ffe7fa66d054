"""JSON text to a JSON object, strictly: the same text means the same to every reader of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NoReturn

from netplug_core.errors import DecodeError

__all__ = ["parse_json_object"]


def parse_json_object(text: str, where: str) -> Mapping[str, object]:
    """The JSON object that a text holds.

    Raises:
        DecodeError: the text is not JSON, an object has a key twice, a number is NaN or infinite, or it is no object.
    """
    try:
        document: object = json.loads(text, object_pairs_hook=_refuse_duplicate_keys, parse_constant=_refuse_constant)
    except RecursionError:
        raise DecodeError(where, "is nested too deeply") from None
    except ValueError as error:
        raise DecodeError(where, f"is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise DecodeError(where, "must be a JSON object")
    return document


def _refuse_duplicate_keys(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"the key {key!r} stands twice in one object")
        members[key] = value
    return members


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")
