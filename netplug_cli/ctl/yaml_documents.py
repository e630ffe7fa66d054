"""YAML text to values and back, where in a text a member stands, and the manifests that come with the package.

``documents`` imports this module when YAML is read or printed: PyYAML is slow to import. The commands of an
installation read the manifests, and ``tools.manifests`` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files as package_files
from math import inf

import yaml

from netplug_cli.ctl.errors import InputError
from netplug_cli.formatting import escape_unprintable
from netplug_core.errors import excerpt, quote

__all__ = [
    "ADMISSION_MANIFEST", "CRD_BUNDLES", "OPERATOR_MANIFEST", "PROTECTION_MANIFEST",
    "STATIC_FOLDER", "find_node", "find_position", "load_yaml", "read_shipped", "render_manifest", "write_yaml",
]  # fmt: skip


# --- yaml documents --------------------------------------------------------------------------------------------------


# --- yaml loader -----------------------------------------------------------------------------------------------------


_MAX_ALIASED_NODES = 10_000


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
        has_tab = mark is not None and text[mark.index : mark.index + 1] == "\t"
        hint = "; YAML is indented with spaces" if has_tab else ""
        raise InputError(name, None, f"neither YAML nor JSON{place}: {excerpt(error.problem)}{hint}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(name, None, f"neither YAML nor JSON: {excerpt(reason)}") from error


class _Loader(yaml.SafeLoader):
    """Loads plain data only: times stay text, a key that is given twice is an error, and aliases are bounded."""

    def compose_document(self) -> yaml.Node | None:
        document = super().compose_document()
        if document is not None and _count_aliased_nodes(document) > _MAX_ALIASED_NODES:
            problem = f"its aliases stand for more than {_MAX_ALIASED_NODES} values"
            raise yaml.constructor.ConstructorError(None, None, problem, document.start_mark)
        return document

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:  # noqa: FBT001, FBT002 - PyYAML's own signature
        seen: set[tuple[str, str]] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{quote(key.value)} is given twice", key.start_mark
                )
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep=deep)

    def construct_number(self, node: yaml.ScalarNode) -> int:
        number = int(self.construct_yaml_int(node))
        str(number)  # Python reads longer hexadecimal numbers than it can print, and an error message prints the number
        return number


def _count_aliased_nodes(document: yaml.Node) -> float:
    """How many nodes the aliases of a document stand for; without end if an alias is a part of what it names.

    A few hundred characters of aliases of aliases can stand for millions of values, which a message or a table prints.
    """
    sizes: dict[int, float] = {}  # of a node with everything below it; of a node that is not complete, without end
    waiting = [document]
    while waiting:
        node = waiting[-1]
        below = _nodes_below(node)
        if id(node) not in sizes:
            sizes[id(node)] = inf
            waiting.extend(child for child in below if id(child) not in sizes)
        else:
            waiting.pop()
            sizes[id(node)] = 1 + sum(sizes[id(child)] for child in below)
    return sizes[id(document)] - len(sizes)


def _nodes_below(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_number)

_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


# --- positions -------------------------------------------------------------------------------------------------------


_STEP = re.compile(r"""\.?([^.\[\]]+)|\[([0-9]+)\]|\['((?:[^'\\]|\\.)*)'\]|\[([^\]]*)\]""")


def find_node(text: str, number: int, path: Sequence[str | int]) -> tuple[yaml.Node, yaml.Node]:
    """The node of a member's name, and that of its value, in one of the documents, which are counted from 1.

    Raises:
        LookupError, TypeError: there is none.
        yaml.YAMLError: the text is no YAML.
    """
    key = node = _compose(text)[number - 1]
    for step in path:
        key, node = _step_down(node, step) or _raise_lookup(step)
    return key, node


def find_position(
    text: str, number: int, within: Sequence[str | int], path: str, *, name: str = ""
) -> tuple[int, int] | None:
    """The line and column, counted from 1, of what an error calls ``path``, such as ``.spec.pools[0]``.

    ``within`` leads from the document to the object in which the path begins. ``name`` is a member there whose name is
    meant, not its value. Of a path that the text does not have, it is the last step that it has: the member is
    missing in that. None if the text is no YAML.
    """
    try:
        _key, node = find_node(text, number, within)
    except (LookupError, TypeError, yaml.YAMLError, RecursionError):
        return None
    for match in _STEP.finditer(path):
        plain, index, quoted, bracketed = match.groups()
        found = _step_down(node, int(index) if index else plain or quoted or bracketed or "")
        if found is None:
            break
        node = found[1]
    named = _step_down(node, name) if name else None
    mark = named[0].start_mark if named else node.start_mark
    return mark.line + 1, mark.column + 1


@lru_cache(maxsize=1)  # one text is asked for each of its errors
def _compose(text: str) -> list[yaml.Node]:
    return list(yaml.compose_all(text, Loader=yaml.SafeLoader))


def _step_down(node: yaml.Node, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == step), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    return None


def _raise_lookup(step: object) -> tuple[yaml.Node, yaml.Node]:
    raise LookupError(step)


# --- yaml writer -----------------------------------------------------------------------------------------------------


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


# --- manifests -------------------------------------------------------------------------------------------------------


STATIC_FOLDER = "static"
CRD_BUNDLES = {mode: f"{STATIC_FOLDER}/crds-{mode}.yaml" for mode in ("v1", "v3")}
"""The files with all definitions for a cluster, by the version of its CRDs."""

ADMISSION_MANIFEST = f"{STATIC_FOLDER}/admission-v3.yaml"
"""The file with the admission policies for the definitions of v3."""

PROTECTION_MANIFEST = f"{STATIC_FOLDER}/deletion-policy.yaml"
"""The file with the admission policy that refuses to delete definitions."""

OPERATOR_MANIFEST = f"{STATIC_FOLDER}/operator.yaml"
"""The file with the operator: its namespace, account, rights and Deployment."""


class _ManifestDumper(yaml.SafeDumper):
    """Prints no value as a reference to an earlier one."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the signature of PyYAML
        return True


def _represent_template(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    """A text of several lines, such as a template, stays readable."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_ManifestDumper.add_representer(str, _represent_template)


def read_shipped(name: str) -> list[Mapping[str, object]]:
    """The objects of a manifest of the package, by its path in the folder of manifests."""
    text = package_files("netplug_cli").joinpath("manifests", name).read_text(encoding="utf-8")
    return list(yaml.safe_load_all(text))


def render_manifest(objects: Iterable[object]) -> str:
    """YAML documents, each after a line with ``---``; members are in their own order."""
    return str(yaml.dump_all(objects, Dumper=_ManifestDumper, sort_keys=False, width=120, explicit_start=True))
