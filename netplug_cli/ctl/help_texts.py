"""The help of each command as it was written by ``python -m tools.reference``, so that showing it imports no command.

A command's own module imports what the command works with, which takes ten times as long as to print its help. A test
compares the files with what click prints.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from netplug_backends.host.atomic_files import read_file

__all__ = ["FOLDER", "HELP_WIDTH", "file_name", "find_help"]

FOLDER = os.path.join(os.path.dirname(__file__), "help")
"""Where the files are: one for each command and for each group of commands."""

HELP_WIDTH = 80
"""The width of the terminal that the files are written for; click never uses more."""

_OPTIONS = ("-h", "--help")


def file_name(words: Sequence[str]) -> str:
    """The name of the file with the help of a command; a word of a command has no dot."""
    return f"{'.'.join(words)}.txt"


def find_help(argv: Sequence[str]) -> str | None:
    """The help that a command line asks for, if it is words of a command and the option for help, and nothing else.

    None for any other command line, for a command without a file, and on a narrow terminal, for which click breaks
    the lines.
    """
    *words, last = argv or ("",)
    if last not in _OPTIONS or not all(word.replace("-", "").isalpha() for word in words):
        return None
    if shutil.get_terminal_size().columns < HELP_WIDTH:
        return None
    try:
        return read_file(os.path.join(FOLDER, file_name(words))).decode()
    except FileNotFoundError:
        return None
