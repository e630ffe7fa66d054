"""Edits of a resource in the user's editor, with private files, and what has changed in the text."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import yaml
from attrs import define

from netplug_backends.host.atomic_files import (
    OPEN_FILE_MODE,
    PRIVATE_FILE_MODE,
    create_file,
    read_file,
    remove_file,
    replace_file,
)
from netplug_cli.ctl.documents import MAX_INPUT_BYTES, parse_text
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.yaml_documents import find_node
from netplug_core.decoding.members import find_at, with_member

__all__ = [
    "EditedFile", "find_target", "replace_value", "require_free", "write_open_file", "write_private_file",
]  # fmt: skip


# --- text edits ------------------------------------------------------------------------------------------------------


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
        edited = _replace(text, find_node(text, number, path), value)
        after = list(parse_text(edited, name))
    except (InputError, yaml.YAMLError, LookupError, TypeError):
        raise InputError(name, None, _BY_HAND) from None
    whole = before[number - 1]
    wanted = [*before[: number - 1], with_member(whole if isinstance(whole, Mapping) else {}, path, value)]
    if after != [*wanted, *before[number:]] or type(find_at(after[number - 1], path)) is not type(value):
        raise InputError(name, None, _BY_HAND)
    return edited


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


# --- private files ---------------------------------------------------------------------------------------------------


def require_free(path: str, *, is_replacing: bool) -> None:
    """Refuse a name that is taken before any work is done.

    Raises:
        InputError: something has that name, and is not to be replaced or is no file.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # os.replace would put a file in the place of a device
        raise InputError(path, path, "Is a directory" if os.path.isdir(path) else "it is not a file")
    if os.path.lexists(path) and not is_replacing:
        raise _taken(path)


def write_private_file(path: str, content: Iterable[bytes], *, is_replacing: bool) -> None:
    """Write a file that is whole and on the disk, with mode 0600.

    Raises:
        InputError: a file has that name and is not to be replaced, or it cannot be written; nothing is left behind.
    """
    require_free(path, is_replacing=is_replacing)
    write = replace_file if is_replacing else create_file  # the second refuses a name that was taken meanwhile, too
    try:
        write(path, content, PRIVATE_FILE_MODE)
    except FileExistsError as error:
        raise _taken(path) from error
    except OSError as error:
        raise InputError(path, path, error.strerror or str(error)) from error


def find_target(path: str) -> str:
    """The file to which a path leads, over links: it is replaced, and a link stays one.

    Raises:
        InputError: the path leads to something that is no file, such as a device.
    """
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):
        raise InputError(path, None, "it is not a file")
    return target


def write_open_file(path: str, text: str) -> None:
    """Write a file that everybody may read, in the place of one that is there.

    Raises:
        InputError: the path leads to no file, or it cannot be written; nothing is left behind.
    """
    try:
        replace_file(find_target(path), text, OPEN_FILE_MODE)
    except OSError as error:
        raise InputError(path, None, error.strerror or str(error)) from error


def _taken(path: str) -> InputError:
    return InputError(path, path, "there is such a file; name another one, or use --overwrite")


# --- editor ----------------------------------------------------------------------------------------------------------


_DEFAULT_EDITOR = "vi"


@define
class EditedFile:
    """A file that is edited, perhaps several times; only its owner may read it."""

    path: str
    _editor: tuple[str, ...]

    @classmethod
    def create(cls, environ: Mapping[str, str], *, prefix: str) -> EditedFile:
        """An empty file in the folder for temporary files, for the editor that VISUAL or EDITOR names, otherwise vi.

        Raises:
            InputError: the variable cannot be split into words, or no file can be made.
        """
        name = "VISUAL" if environ.get("VISUAL") else "EDITOR"
        command = environ.get(name) or _DEFAULT_EDITOR
        try:
            words = tuple(shlex.split(command))
        except ValueError as error:
            raise InputError(name, command, f"{error}: {command}") from error
        try:
            path = os.path.join(tempfile.gettempdir(), f"{prefix}{os.urandom(8).hex()}.yaml")
            create_file(path, "", PRIVATE_FILE_MODE)
        except OSError as error:
            raise InputError(tempfile.gettempdir(), None, error.strerror or str(error)) from error
        return cls(path, words)

    def edit(self, text: str) -> str:
        """The text after the person has edited this one.

        Raises:
            InputError: the editor cannot be run, or failed; the file has what it left.
        """
        shown = " ".join(self._editor)
        try:
            replace_file(self.path, text, PRIVATE_FILE_MODE)
            with _interrupts_left_to_editor():
                status = subprocess.run([*self._editor, self.path], check=False).returncode
            if status:
                raise InputError("editor", shown, f"{shown} ended with status {status}")
            return read_file(self.path, MAX_INPUT_BYTES).decode()
        except OSError as error:
            problem = error.strerror or str(error)
            raise InputError("editor", shown, f"{shown} cannot edit {self.path}: {problem}; EDITOR names it") from error
        except UnicodeDecodeError as error:
            raise InputError(self.path, None, f"not UTF-8 text: {error.reason} at byte {error.start}") from error

    def remove(self) -> None:
        """Remove the file, which an editor may have removed already."""
        remove_file(self.path)


@contextmanager
def _interrupts_left_to_editor() -> Iterator[None]:
    """Ctrl-C reaches every program of the terminal; while the editor runs, it is the editor's."""
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
