"""Files of YAML and JSON to mappings and manifests, and values to YAML and JSON.

Each mapping comes with its source: ``pool.yaml#2`` is the second document of a file, ``pool.yaml#2[0]`` the first item
of a list in it. An error about a member shows its line and column in place of that: ``pool.yaml:14:9``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from attrs import evolve, field, frozen

from netplug_backends.host.atomic_files import TooLarge, read_input
from netplug_cli.ctl.errors import InputError
from netplug_cli.formatting import format_json
from netplug_core.decoding.tables import UnknownField, split_path
from netplug_core.errors import ConfigurationError, excerpt, quote, redact_url_credentials
from netplug_core.resources.codec import Manifest, manifest_from_mapping
from netplug_core.resources.fields import InvalidResource

__all__ = [
    "MANIFEST_SUFFIXES", "MAX_INPUT_BYTES", "NETWORK_SUFFIXES", "STDIN", "Document", "find_files", "parse_json",
    "parse_text", "read_configuration", "read_documents", "read_manifests", "read_text", "render_json",
    "render_json_line", "render_yaml", "require_manifests",
]  # fmt: skip

MAX_INPUT_BYTES = 1 << 28
"""How much of a file, a pipe or standard input is read."""

STDIN = "-"
"""The name of standard input."""

NETWORK_SUFFIXES = (".conf", ".conflist")
"""What the names of network configurations end in. Every runtime reads them as JSON, and refuses YAML."""

MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")
"""What the names of the files in a folder end in."""


@frozen(kw_only=True)
class Document:
    """One object of a file, and its source.

    ``number`` counts the documents of the ``file`` from 1; ``path`` leads to the object if it is an item of a list.
    ``text`` is that of the whole file.
    """

    source: str
    mapping: Mapping[str, object]
    file: str
    number: int
    path: tuple[str | int, ...] = ()
    text: str = field(default="", repr=False, eq=False)

    def find_place(self, path: str, name: str = "") -> str:
        """File, line and column of a member, or of the ``name`` of one in it; the source if they cannot be found."""
        from netplug_cli.ctl.yaml_documents import find_position

        position = find_position(self.text, self.number, self.path, path, name=name)
        file = _shown_name(self.file)
        return self.source if position is None else f"{file}:{position[0]}:{position[1]}"

    def locate(self, error: ConfigurationError) -> ConfigurationError:
        """The error with the place of the member it is about, if it is about one of this document."""
        path = split_path(error.where, self.source)
        if path is None:
            return error
        name = error.first_name if isinstance(error, UnknownField) else ""
        return evolve(error, where=f"{self.find_place(path, name)} ${path}")


def find_files(
    named: str, *, is_recursive: bool = False, suffixes: tuple[str, ...] = MANIFEST_SUFFIXES
) -> Iterator[str]:
    """The files that a name stands for: itself, or what a folder has with these suffixes, in the order of the names.

    Raises:
        InputError: a folder cannot be read, or has no such file.
    """
    if named == STDIN or not os.path.isdir(named):
        yield named
        return
    found = sorted(_walk(named, suffixes, is_recursive=is_recursive))
    if not found:
        where = "in it or below" if is_recursive else "in it; -R looks below too"
        raise InputError(named, named, f"no file that ends in {', '.join(suffixes)} is {where}")
    yield from found


def read_documents(files: Sequence[str]) -> Iterator[Document]:
    """Every object of some files, in order; ``-`` is standard input.

    Empty documents are skipped. An object whose kind ends in ``List`` is replaced by its items, and so is a document
    that is a list. A file with one of ``NETWORK_SUFFIXES`` is one document of JSON.

    Raises:
        InputError: a file cannot be read, is not in its format, or holds something other than objects.
    """
    for file in files:
        parse = parse_json if file.endswith(NETWORK_SUFFIXES) else parse_text
        text = read_text(file)
        for number, value in enumerate(parse(text, _shown_name(file)), start=1):
            if value is None:
                continue
            whole = Document(source=f"{_shown_name(file)}#{number}", mapping={}, file=file, number=number, text=text)
            if isinstance(value, list) and parse is parse_text:
                yield from _items_of(value, whole, ())
            else:
                yield from _documents_of(value, whole, ())


def read_manifests(
    files: Sequence[str], accept: Callable[[Manifest], None] = lambda _manifest: None
) -> tuple[tuple[Manifest, ...], tuple[str, ...]]:
    """The manifests of some files that ``accept`` does not refuse by raising, and every problem with the others."""
    manifests, problems = list[Manifest](), list[str]()
    try:
        for document in read_documents(files):
            try:
                manifest = manifest_from_mapping(document.mapping, source=document.source)
                manifest = evolve(manifest, find_place=document.find_place)
                accept(manifest)
            except InvalidResource as error:
                problems.append(f"{document.find_place(error.field_errors[0].field)}: {error}")
            except ConfigurationError as error:
                problems.append(str(document.locate(error)))
            else:
                manifests.append(manifest)
    except InputError as error:
        problems.append(str(error))
    return tuple(manifests), tuple(problems)


def require_manifests(files: Sequence[str], *, may_be_empty: bool = False) -> tuple[Manifest, ...]:
    """The manifests of some files, once all of them have been read.

    Raises:
        InputError: some of them cannot be read, or there is none; every problem is named.
    """
    manifests, problems = read_manifests(files)
    if problems:
        raise InputError("", None, f"{'; '.join(problems)}; nothing was done")
    if not manifests and not may_be_empty:
        raise InputError(", ".join(map(_shown_name, files)), None, f"no resources specified in file; {_EMPTY}")
    return manifests


def read_configuration(file: str) -> Document:
    """The one object of a file that may hold secrets, so no error quotes its content.

    Raises:
        InputError: it cannot be read, is neither YAML nor JSON, or does not hold exactly one object.
    """
    try:
        text = read_text(file)
        values = list(parse_text(text, file))
    except InputError as error:
        if isinstance(error.__cause__, OSError):
            raise
        mark = getattr(error.__cause__, "problem_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(file, None, f"neither YAML nor JSON{place}") from None
    numbers = [number for number, value in enumerate(values, start=1) if value is not None]
    mapping = values[numbers[0] - 1] if len(numbers) == 1 else None
    if not isinstance(mapping, dict):
        raise InputError(file, None, "one object is expected")
    return Document(source=file, mapping=mapping, file=file, number=numbers[0], text=text)


_EMPTY = "it is empty, or has only comments: a resource has apiVersion, kind, metadata and spec"
_URL_START = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def _shown_name(file: str) -> str:
    return "standard input" if file == STDIN else file


def read_text(file: str) -> str:
    """The text of a file, with its own line endings; ``-`` is standard input.

    Raises:
        InputError: it cannot be read, is not UTF-8, or is a URL.
    """
    name = _shown_name(file)
    if _URL_START.match(file):
        ways = f"curl -fsSL {redact_url_credentials(file)} | netplugctl … -f -"
        raise InputError(str(redact_url_credentials(file)), None, f"a URL is not fetched; pipe it: {ways}")
    try:
        return _read_stdin() if file == STDIN else read_input(file, MAX_INPUT_BYTES).decode()
    except OSError as error:
        raise InputError(name, file, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise InputError(name, file, f"not UTF-8 text: {error.reason} at byte {error.start}") from error


def _read_stdin() -> str:
    text = sys.stdin.read(MAX_INPUT_BYTES + 1)
    if len(text) > MAX_INPUT_BYTES:
        raise TooLarge("standard input", MAX_INPUT_BYTES)
    return text


def parse_text(text: str, name: str) -> Iterator[object]:
    """Every document of a text of YAML or JSON; ``name`` is the file's, for messages.

    Raises:
        InputError: it is neither.
    """
    if text.lstrip().startswith(("{", "[")):
        # The YAML parser reads most JSON, but not with tabs.
        try:
            value: object = json.loads(text)
        except (ValueError, RecursionError):
            pass  # it may still be YAML that begins like JSON; the YAML parser has the better messages
        else:
            yield value
            return
    from netplug_cli.ctl.yaml_documents import load_yaml

    yield from load_yaml(text, name)


def parse_json(text: str, name: str) -> Iterator[object]:
    """The one document of a text of JSON as runtimes read it: without remarks, NaN and a byte order mark.

    Raises:
        InputError: it is no JSON.
    """
    try:
        yield json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InputError(name, None, f"no JSON, {place}: {error.msg}; {_RUNTIMES_READ_JSON}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(name, None, f"no JSON: {excerpt(error)}; {_RUNTIMES_READ_JSON}") from error


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")


_RUNTIMES_READ_JSON = "runtimes read a network configuration as JSON only"


def render_yaml(value: object) -> str:
    """A value as YAML, with its members in their own order; what is not printable is escaped."""
    from netplug_cli.ctl.yaml_documents import write_yaml

    return write_yaml(value)


def render_json(value: object) -> str:
    """A value as JSON, indented, with its members in their own order; what is not printable is escaped."""
    return f"{format_json(value, indent=2)}\n"


def render_json_line(value: object) -> str:
    """The same on one line."""
    return f"{format_json(value)}\n"


def _walk(folder: str, suffixes: tuple[str, ...], *, is_recursive: bool) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise InputError(str(error.filename), folder, error.strerror or str(error)) from error

    for place, folders, files in os.walk(folder, onerror=refuse):
        if not is_recursive:
            folders.clear()
        yield from (os.path.join(place, name) for name in files if name.endswith(suffixes))


def _documents_of(value: object, found: Document, path: tuple[str | int, ...]) -> Iterator[Document]:
    """The objects that a value stands for; ``found`` is where it was found, except for the path."""
    source = found.source
    if not isinstance(value, dict):
        raise InputError(source, value, f"expected an object, found {quote(value)}")
    kind = value.get("kind")
    if not isinstance(kind, str) or not kind.endswith("List") or "items" not in value:
        yield evolve(found, mapping=value, path=path)
        return
    items = value["items"]
    unknown = sorted(str(name) for name in value if name not in ("apiVersion", "kind", "metadata", "items"))
    if unknown or not isinstance(items, list):
        problem = f"there is also {excerpt(', '.join(unknown))}" if unknown else f"items are {quote(items)}"
        accepted = f"a {kind} has apiVersion, kind, metadata and a list of items; {problem}"
        raise InputError(source, items, accepted)
    yield from _items_of(items, found, (*path, "items"))


def _items_of(items: Sequence[object], found: Document, path: tuple[str | int, ...]) -> Iterator[Document]:
    for index, item in enumerate(items):
        yield from _documents_of(item, evolve(found, source=f"{found.source}[{index}]"), (*path, index))
