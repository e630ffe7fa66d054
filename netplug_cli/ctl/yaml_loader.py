"""YAML text to plain values. ``documents`` imports this module when a file is not JSON: PyYAML is slow to import."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import yaml

from netplug_cli.ctl.errors import InputError

__all__ = ["load_yaml"]


def load_yaml(text: str, name: str) -> Iterator[object]:
    """The documents of a text; ``name`` is the file's, for messages.

    Raises:
        InputError: it is not YAML; a parser's error with a position is the cause.
    """
    try:
        yield from yaml.load_all(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(name, None, f"neither YAML nor JSON{place}: {error.problem}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(name, None, f"neither YAML nor JSON: {reason}") from error


class _Loader(yaml.SafeLoader):
    """Loads plain data only: times stay text, and a key that is given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:  # noqa: FBT001, FBT002 - PyYAML's own signature
        seen: set[tuple[str, str]] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep=deep)

    def construct_number(self, node: yaml.ScalarNode) -> int:
        number = int(self.construct_yaml_int(node))
        str(number)  # Python reads longer hexadecimal numbers than it can print, and an error message prints the number
        return number


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_number)

_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
