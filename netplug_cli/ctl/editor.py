"""A text in a person's editor. The text is in a file of their own, which stays until it is no longer needed."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from attrs import define

from netplug_backends.host.atomic_files import PRIVATE_FILE_MODE, create_file, read_file, remove_file, replace_file
from netplug_cli.ctl.documents import MAX_INPUT_BYTES
from netplug_cli.ctl.errors import InputError

__all__ = ["EditedFile"]

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
