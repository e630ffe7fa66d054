"""Values to YAML text. ``documents`` imports this module when YAML is printed: PyYAML is slow to import."""

from __future__ import annotations

import yaml

from netplug_cli.formatting import escape_unprintable

__all__ = ["write_yaml"]


def write_yaml(value: object) -> str:
    """A value as YAML, with its members in their own order.

    What :func:`escape_unprintable` writes out is escaped, which PyYAML does with less; who reads it gets the value as
    it is.
    """
    text = str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True))
    # Such a character is in a text in double quotes, where these escapes mean the same.
    return "\n".join(map(escape_unprintable, text.split("\n")))


class _Dumper(yaml.SafeDumper):
    """Puts texts that are not printable in double quotes, where YAML knows escapes."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    is_printable = text.replace("\n", "").isprintable()
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_printable else '"')


_Dumper.add_representer(str, _represent_text)
