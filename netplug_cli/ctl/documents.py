"""Files of YAML and JSON to mappings, and values to YAML and JSON: the one place where the tool knows YAML.

It says where every mapping stood (``pool.yaml#2`` is the second document of a file, ``pool.yaml#2[0]`` the first item
of a list in it) and understands none of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path

import yaml
from attrs import frozen

from netplug_core.errors import ConfigurationError

__all__ = ["Document", "UnreadableFile", "read_configuration", "read_documents", "render_json", "render_yaml"]

STDIN = "-"


@frozen(kw_only=True)
class Document:
    """One object of a file, and where it stood."""

    source: str
    mapping: Mapping[str, object]


class UnreadableFile(ConfigurationError):
    """A file that cannot be read or is not what it should be; ``accepted`` is the reason."""

    def __str__(self) -> str:
        return f"{self.where}: {self.accepted}"


def read_documents(files: Sequence[str]) -> Iterator[Document]:
    """Every object of some files, in order; ``-`` is standard input.

    Empty documents are skipped; an object whose kind ends in ``List`` stands for its items.

    Raises:
        UnreadableFile: a file cannot be read, is neither YAML nor JSON, or holds something other than objects.
    """
    for file in files:
        name = "standard input" if file == STDIN else file
        for number, value in enumerate(_parse(_read_text(file, name), name), start=1):
            if value is not None:
                yield from _documents_of(value, f"{name}#{number}")


def read_configuration(file: str) -> Mapping[str, object]:
    """The one object of a file that may hold secrets: no error quotes anything of it.

    Raises:
        UnreadableFile: it cannot be read, is neither YAML nor JSON, or does not hold exactly one object.
    """
    try:
        values = list(_parse(_read_text(file, file), file))
    except UnreadableFile as error:
        if isinstance(error.__cause__, OSError):
            raise
        mark = getattr(error.__cause__, "problem_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UnreadableFile(file, None, f"neither YAML nor JSON{place}") from None
    objects = [value for value in values if value is not None]
    if len(objects) != 1 or not isinstance(objects[0], dict):
        raise UnreadableFile(file, None, "one object is expected")
    return objects[0]


def render_yaml(value: object) -> str:
    """A value as YAML, with its members in their own order."""
    return str(yaml.safe_dump(value, sort_keys=False, default_flow_style=False, allow_unicode=True))


def render_json(value: object) -> str:
    """A value as JSON, indented, with its members in their own order."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _read_text(file: str, name: str) -> str:
    try:
        return sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise UnreadableFile(name, file, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise UnreadableFile(name, file, f"not UTF-8 text: {error.reason} at byte {error.start}") from error


def _parse(text: str, name: str) -> Iterator[object]:
    if text.lstrip().startswith(("{", "[")):
        # YAML takes most JSON, but not its tabs.
        try:
            value: object = json.loads(text)
        except (ValueError, RecursionError):
            pass  # then it may still be YAML in JSON's clothes, and that parser has the better messages
        else:
            yield value
            return
    try:
        yield from yaml.load_all(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UnreadableFile(name, None, f"neither YAML nor JSON{place}: {error.problem}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnreadableFile(name, None, f"neither YAML nor JSON: {reason}") from error


def _documents_of(value: object, source: str) -> Iterator[Document]:
    if not isinstance(value, dict):
        raise UnreadableFile(source, value, f"expected an object, found {value!r}")
    kind = value.get("kind")
    if not isinstance(kind, str) or not kind.endswith("List") or "items" not in value:
        yield Document(source=source, mapping=value)
        return
    items = value["items"]
    unknown = sorted(str(name) for name in value if name not in ("apiVersion", "kind", "metadata", "items"))
    if unknown or not isinstance(items, list):
        problem = f"there is also {', '.join(unknown)}" if unknown else f"items are {items!r}"
        accepted = f"a {kind} has apiVersion, kind, metadata and a list of items; {problem}"
        raise UnreadableFile(source, items, accepted)
    for index, item in enumerate(items):
        yield from _documents_of(item, f"{source}[{index}]")


class _Loader(yaml.SafeLoader):
    """Plain data only, and less of it guessed: times stay text, and no key is given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:  # noqa: FBT001, FBT002 - PyYAML's own signature
        seen: set[tuple[str, str]] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep=deep)

    def construct_number(self, node: yaml.ScalarNode) -> int:
        number = int(self.construct_yaml_int(node))
        str(number)  # of hexadecimal digits Python takes more than it can show; a refusal has to show them
        return number


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_number)

_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
