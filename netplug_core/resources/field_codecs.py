"""Codecs of fields that several kinds have: durations, ports, addresses, switches. The tables of the kinds use them."""

from __future__ import annotations

import re
from typing import Final, cast

from netplug_core.decoding.codecs import ADDRESS, INTEGER, PREFIX, TEXT, Codec, checked, enum_codec
from netplug_core.resources.switch import Switch

__all__ = ["CIDR", "DURATION", "IP_ADDRESS", "MAX_PORT", "PORT", "PORT_OR_NONE", "SWITCH", "integer_between"]

MAX_PORT: Final = 65_535
_DURATION: Final = r"0|([0-9]+(\.[0-9]+)?(h|m|s|ms|us|ns))+"


def _is_duration(text: str) -> bool:
    return re.fullmatch(_DURATION, text, re.ASCII) is not None


DURATION: Final = checked(
    TEXT, _is_duration, "a duration such as 90s or 15m0s, or 0", schema={"pattern": f"^({_DURATION})?$"}
)
"""A duration as Go writes it. The text is kept, so that it stays as a person wrote it."""


def integer_between(lowest: int, highest: int, what: str = "a whole number") -> Codec:
    """A number between two, which are included; both have 32 bits."""
    return checked(
        INTEGER,
        lambda number: lowest <= cast("int", number) <= highest,
        f"{what} from {lowest} to {highest}",
        is_empty_accepted=False,
        schema={"format": "int32", "minimum": lowest, "maximum": highest},
    )


PORT: Final = integer_between(1, MAX_PORT, "a port")
PORT_OR_NONE: Final = checked(
    INTEGER,
    lambda port: 0 <= cast("int", port) <= MAX_PORT,
    f"a port up to {MAX_PORT}, or 0",
    schema={"format": "int32", "minimum": 0, "maximum": MAX_PORT},
)
"""A port that something listens on; 0: it does not."""

IP_ADDRESS: Final = Codec(ADDRESS.decode, ADDRESS.encode, schema={"type": "string"})
CIDR: Final = Codec(PREFIX.decode, PREFIX.encode, schema={"type": "string", "format": "cidr"})
SWITCH: Final = enum_codec(Switch)
