"""How the values of a network configuration are decoded, beyond plain texts, numbers and booleans."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, cast

from netplug_core.addressing import Prefix
from netplug_core.decoding.codecs import (
    BOOLEAN,
    INTEGER,
    OBJECT,
    STRING,
    Codec,
    Refused,
    WrongType,
    checked,
    choice_of,
    exactly,
    number_in,
)
from netplug_core.decoding.tables import find_member
from netplug_core.log import Level
from netplug_core.names import HOST_MAC, RESOURCE_DOMAIN, label_value
from netplug_core.netconf.model import LINUX_DATAPLANE, MAX_MTU, MAX_QUEUES

__all__ = [
    "AT_LEAST_ZERO", "BOOLEAN_OR_TEXT", "DATAPLANE_TYPE", "DEVICE_TYPE", "GATE", "LABEL_NAME", "LABEL_VALUE", "LEVEL",
    "MAC", "MAC_ACCEPTED", "MTU", "PLUGIN_NAME", "POLICY_TYPE", "QUEUES", "ROUTE", "STRING_BOOLEAN", "parse_mac",
]  # fmt: skip

_LEVELS: Final = {
    "ERROR": Level.ERROR,
    "WARNING": Level.WARNING,
    "WARN": Level.WARNING,
    "INFO": Level.INFO,
    "DEBUG": Level.DEBUG,
}

# Loader and schema have one pattern, so that they agree: user and password, host, port and the rest. No space and no
# control character is in it.
_HTTP_URL: Final = (
    r"[Hh][Tt][Tt][Pp][Ss]?://(?:[^/?#\s\u0000-\u001f\u007f]*@)?"
    r"(?:\[[0-9A-Fa-f:.]+\]|[^/?#@:\[\]\s\u0000-\u001f\u007f]+)"
    r"(?::(?:0*(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?)?"
    r"(?:[/?#][^\s\u0000-\u001f\u007f]*)?"
)


_NAMESPACE_LABEL: Final = f"{RESOURCE_DOMAIN}/namespace"


def _read_level(value: object) -> Level | None:
    text = cast("str", STRING.decode(value))
    level = _LEVELS.get(text.upper()) if text.isascii() else None
    if text and level is None:
        raise Refused("ERROR, WARNING, INFO and DEBUG are accepted")
    return level


def _read_string_boolean(value: object) -> bool | None:
    """A key whose value is the *string* true or false (spec 2.2)."""
    text = cast("str", STRING.decode(value))
    if text not in ("", "true", "false"):
        raise Refused('the string "true" or "false" is expected')
    return text == "true" if text else None


def _read_boolean_or_text(value: object) -> bool:
    """A key of the list, which runtimes take as a boolean or as its text in any case."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return cast("bool", BOOLEAN.decode(value))


def _read_plugin_name(value: object) -> str:
    name = "" if value is None else cast("str", STRING.decode(value))
    if not name or "/" in name or name == "netplug":
        raise Refused("the name of an IPAM plugin is expected, such as netplug-ipam", value=name)
    return name


def _read_queues(value: object) -> int:
    queues = max(cast("int", INTEGER.decode(value)), 1)
    if queues > MAX_QUEUES:
        raise Refused(f"at most {MAX_QUEUES} are possible")
    return queues


def _is_url(text: str) -> bool:
    return re.fullmatch(_HTTP_URL, text) is not None


def _read_route(value: object) -> Prefix | None:
    """The destination of a route; its gateway is ignored, as the next hop is always the same."""
    text = find_member(cast("Mapping[str, object]", OBJECT.decode(value)), "dst")
    try:
        return Prefix.parse(cast("str", STRING.decode(text))) if text else None
    except WrongType:
        raise
    except ValueError as error:
        raise Refused(f"{error}; a CIDR such as 10.0.0.0/8 is expected", path=".dst", value=text) from None


def _read_label_name(value: object) -> str:
    """The name of a label that an orchestrator of plain containers sends.

    One of these labels would move the endpoint to a namespace. A DEL finds the endpoint by container and interface
    alone, and the labels may have changed since the ADD; so all endpoints of such containers are in one namespace.
    """
    text = cast("str", STRING.decode(value))
    if text == _NAMESPACE_LABEL:
        raise Refused("endpoints of containers without a pod are in the namespace default; leave this label out")
    name = _without_foreign_characters(text)
    if not name:
        raise Refused("a text with a letter, a digit or '_' is expected")
    return label_value(name)


def _read_label_value(value: object) -> str:
    return label_value(_without_foreign_characters(cast("str", STRING.decode(value))))


def _without_foreign_characters(text: str) -> str:
    """A text such as a path, of the characters that a label may have: ``/a/b/c`` becomes ``a.b.c``."""
    dashed = re.sub("[^-_.a-zA-Z0-9]+", "-", text.replace("/", "."))
    return re.sub("[-.]+", lambda run: "." if "." in run[0] else run[0], dashed).strip("-.")


def _any_case(text: str) -> str:
    """A pattern of JSON Schema, which has no flags, for a text in upper and lower case."""
    return "".join(f"[{letter}{letter.lower()}]" for letter in text)


def parse_mac(text: str) -> str:
    """The MAC that a text is, in lower case with colons.

    Raises:
        ValueError: it is none that an interface of a container can have. The kernel gives no interface a multicast
            address or 0, and the host end has its own.
    """
    octets = bytes.fromhex(re.sub("[:.-]", "", text)) if re.fullmatch(_MAC, text) else b""
    mac = octets.hex(":")
    if not any(octets) or octets[0] & 1 or mac == HOST_MAC:
        raise ValueError(MAC_ACCEPTED)
    return mac


def _read_mac(value: object) -> str:
    text = cast("str", STRING.decode(value))
    try:
        return parse_mac(text) if text else ""
    except ValueError as error:
        raise Refused(str(error), value=text) from None


MAC_ACCEPTED: Final = "the 6 bytes of a unicast address are expected, such as 02:00:5e:10:00:01"
"""What an error about a MAC says would be accepted."""

# The three ways to write one. Loader and schema have one pattern; in it, the host end's MAC is left out in each.
_MAC: Final = (
    "[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}|[0-9A-Fa-f]{2}(?:-[0-9A-Fa-f]{2}){5}|[0-9A-Fa-f]{4}(?:[.][0-9A-Fa-f]{4}){2}"
)
_UNICAST: Final = f"(?![0:.-]*$)(?!(?:[eE]{{2}}[:.-]?){{6}}$)(?![0-9A-Fa-f][13579bdfBDF])(?:{_MAC})"
MAC: Final = Codec(_read_mac, schema={"type": "string", "pattern": exactly(f"|{_UNICAST}")})
LEVEL: Final = Codec(
    _read_level,
    schema={
        "anyOf": [
            {"enum": ["", *_LEVELS]},  # what an editor offers
            {"type": "string", "pattern": exactly("|".join(map(_any_case, _LEVELS)))},
        ]
    },
)
LABEL_NAME: Final = Codec(
    _read_label_name,
    schema={
        "type": "string",
        "pattern": exactly(
            rf"(?!{re.escape(_NAMESPACE_LABEL)}(?![\s\S]))[^\u0000]*[A-Za-z0-9_][^\u0000]*",
        ),
    },
)
LABEL_VALUE: Final = Codec(_read_label_value, schema=STRING.schema)
STRING_BOOLEAN: Final = Codec(_read_string_boolean, schema={"enum": ["", "true", "false"]})
BOOLEAN_OR_TEXT: Final = Codec(
    _read_boolean_or_text,
    schema={
        "anyOf": [{"type": "boolean"}, {"type": "string", "pattern": exactly("[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]")}]
    },
)
PLUGIN_NAME: Final = Codec(
    _read_plugin_name, schema={"type": "string", "pattern": "^(?!netplug(?![\\s\\S]))[^/\\u0000]+$"}
)
QUEUES: Final = Codec(_read_queues, schema={"type": "integer", "maximum": MAX_QUEUES})
ROUTE: Final = Codec(_read_route, schema={"type": "object", "properties": {"dst": {"type": ["string", "null"]}}})
AT_LEAST_ZERO: Final = number_in(0, None, "a number of at least 0 is expected")
MTU: Final = number_in(0, MAX_MTU, f"a number from 0 to {MAX_MTU} is expected")
GATE: Final = checked(
    STRING,
    _is_url,
    "an http or https URL with a host is expected",
    is_empty_accepted=False,
    schema={"pattern": exactly(_HTTP_URL)},
)
POLICY_TYPE: Final = choice_of(("k8s",), '"k8s" is the one policy type there is')
DEVICE_TYPE: Final = choice_of(("veth",), 'supported: "veth"; "netkit" comes with a later release')
DATAPLANE_TYPE: Final = choice_of(
    (LINUX_DATAPLANE,), f'invalid dataplane type: "{LINUX_DATAPLANE}" is the one there is'
)
