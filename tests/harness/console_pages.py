"""The console blocks of a page: the commands that it shows, and what they print.

A block shows commands if it begins with a prompt. ``run_block`` runs each command of a block and puts together what the
page ought to show: the command, and what it printed on both outputs. A command of ``netplugctl`` runs in this process,
on the real datastore that the environment names; every other one runs in a shell.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from attrs import evolve, frozen

from netplug_cli.ctl.main import run
from netplug_cli.wiring.ctl import make_session

__all__ = ["PAGES", "ROOT", "ConsoleBlock", "comparable", "console_blocks", "in_folder", "read_listed", "run_block"]

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
_FENCED = re.compile(r"^```(sh|console|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PROMPTS = {"text": re.compile(r"^\$ (?=\S)"), "console": re.compile(r"^[$#] (?=\S)")}  # "#" is root's
_CUT = "…"

# What differs from run to run, and what stands for it in both texts.
_VARIABLE = (
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
    (r"\b\d{8}T\d{6}Z", "TIME"),
    (r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (\[\w+\])\[\d+\]", r"TIME \1[PID]"),
    (r"\bin \d+\.\d ms", "in N ms"),
    (r"\b\d+ bytes", "N bytes"),
    (r"/\S+/(netplugctl-edit-ippool)-\w+", r"FOLDER/\1-NAME"),
)


@frozen
class ConsoleBlock:
    """A block of a page in which commands are shown: where it is, and its text."""

    page: str
    language: str
    text: str
    number: int = 1

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands, without their prompts; those of a script (``sh``) are its lines without comments."""
        if self.language == "sh":
            return tuple(line for line in self.text.splitlines() if line and not line.startswith("#"))
        return tuple(line[2:] for line in self.text.splitlines() if _PROMPTS[self.language].match(line))

    @property
    def name(self) -> str:
        """The page, and the first command; the second block of a page that begins with a command has a number."""
        return f"{self.page}: {self.commands[0]}{'' if self.number == 1 else f' ({self.number})'}"


def console_blocks(page: Path) -> Iterator[ConsoleBlock]:
    """The blocks of a page that show commands: scripts, and consoles with prompts."""
    seen = Counter[str]()
    for language, text in _FENCED.findall(page.read_text()):
        if language == "sh" or _PROMPTS[language].match(text):
            block = ConsoleBlock(str(page.relative_to(ROOT)), language, text)
            seen[block.name] += 1
            yield evolve(block, number=seen[block.name])


def read_listed(path: Path) -> dict[str, tuple[str, str]]:
    """The blocks that a list has, by page and name: which test reads them, or ``-`` and the reason why none does."""
    rows = dict[str, tuple[str, str]]()
    page = ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            page = line.strip("[]")
        elif line and not line.startswith("#"):
            block, _bar, told = line.rpartition(" | ")
            test, _colon, reason = told.partition(": ")
            rows[f"{page}: {block}"] = (test, reason)
    return rows


def run_block(block: ConsoleBlock) -> str:
    """The text of a block as it would be shown now, after running its commands."""
    prompt = block.text[:2]
    return "".join(f"{prompt}{command}\n{_printed(command)}" for command in block.commands)


def comparable(shown: str, printed: str) -> tuple[list[str], list[str]]:
    """Both texts by their lines, where what differs from run to run is the same, and a cut of the page is cut."""
    wanted, found = ([_without_variable(line) for line in text.splitlines()] for text in (shown, printed))
    if _CUT not in wanted:
        return wanted, found
    kept = list[str]()
    position = 0
    for number, line in enumerate(wanted):
        if line != _CUT:
            kept.extend(found[position : position + 1])
            position += 1
            continue
        after = wanted[number + 1 :]
        kept.append(_CUT)
        position = len(found) if not after else _index_of(after[0], found, position)
    return wanted, [*kept, *found[position:]]


def _index_of(line: str, found: list[str], position: int) -> int:
    return next((index for index in range(position, len(found)) if found[index] == line), position)


def _without_variable(line: str) -> str:
    for pattern, replacement in _VARIABLE:
        line = re.sub(pattern, replacement, line)
    return line


def _printed(command: str) -> str:
    words = shlex.split(command)
    variables = dict[str, str]()
    while words and re.fullmatch(r"\w+=\S*", words[0]):
        name, _equals, value = words.pop(0).partition("=")
        variables[name] = value
    if words[0] != "netplugctl" or "|" in words:
        done = subprocess.run(
            ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        return done.stdout
    target = words[words.index(">") + 1] if ">" in words else None
    argv = words[1 : words.index(">")] if target is not None else words[1:]
    both, file = io.StringIO(), io.StringIO()
    with _variables(variables), redirect_stdout(both if target is None else file), redirect_stderr(both):
        run(argv, make_session)
    if target is not None:
        Path(target).write_text(file.getvalue())
    return both.getvalue()


@contextmanager
def in_folder(folder: Path, environ: Mapping[str, str]) -> Iterator[None]:
    """A folder as the current one and for temporary files, and variables of the environment, until the context ends."""
    before = os.getcwd(), tempfile.tempdir
    os.chdir(folder)
    tempfile.tempdir = str(folder)
    try:
        with _variables(environ):
            yield
    finally:
        os.chdir(before[0])
        tempfile.tempdir = before[1]


@contextmanager
def _variables(environ: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
