"""Applies known mutants, one at a time, to a copy of the tree, and says which of them a test catches.

``make mutants`` reads ``tests/mutants.diff``: below a line ``@@ package function @@`` stand the lines that a mutant
takes away, and those that it puts there. They are found by their text, wherever in the package the function stands, so
a module may move. Unit tests that import the module are run first; then, on those that survived, more and more of them.
"""

import ast
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from queue import SimpleQueue

from attrs import frozen

ROOT = Path(__file__).parent.parent
LIST = ROOT / "tests" / "mutants.diff"
COPIED = ("netplug_core", "netplug_backends", "netplug_cli", "tests", "tools", "docs", "benchmarks", "changelog.d")
PATIENCE = 10
"""How many times as long as all tests took without a mutant a run may take; then it counts as one that does not end,
which catches the mutant too."""

FAILED = {1, 2}
"""The exit codes of pytest when a test failed, or could not even be imported."""


@frozen
class Mutant:
    """One change of one function, by its text."""

    package: str
    function: str
    removed: tuple[str, ...]
    added: tuple[str, ...]

    @property
    def title(self) -> str:
        """Which it is, for a person."""
        return f"{self.package} {self.function}: {' '.join(map(str.strip, self.added)) or '(nothing)'}"


@frozen
class Place:
    """Where a mutant's lines stand now: the first of them, from 0."""

    path: Path
    line: int


class Reach(Enum):
    """Which tests are tried, the fewest first; each only on what survived those before."""

    MODULE = "the unit tests that import the module"
    NAME = "the unit tests that name the function or its class"
    ROOM = "the unit tests of its room"
    ALL = "all unit tests"


def parse(text: str) -> tuple[Mutant, ...]:
    """The mutants of a list; lines before the first and between blocks that begin with ``#`` are remarks."""
    mutants = []
    for block in text.split("\n@@ ")[1:]:
        head, *lines = block.splitlines()
        package, function = head.removesuffix(" @@").split(" ")
        removed = tuple(line[1:] for line in lines if line.startswith("-"))
        added = tuple(line[1:] for line in lines if line.startswith("+"))
        mutants.append(Mutant(package, function, removed, added))
    return tuple(mutants)


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Each function of a module and each method of its classes, by its qualified name."""
    pending: list[tuple[str, ast.AST]] = [("", tree)]
    while pending:
        prefix, node = pending.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                pending.append((f"{name}.", child))
                if not isinstance(child, ast.ClassDef):
                    yield name, child


def find(root: Path, mutant: Mutant) -> tuple[Place, ...]:
    """Every place of the package where the function has the lines: exactly one, if the list is right."""
    wanted = [line.strip() for line in mutant.removed]
    name = mutant.function.rpartition(".")[2]
    places = []
    for path in sorted((root / mutant.package).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if f"def {name}(" not in source and f"def {name}[" not in source:
            continue
        lines = [line.strip() for line in source.splitlines()]
        if not set(lines).issuperset(wanted):
            continue
        for function, node in functions(ast.parse(source)):
            if function == mutant.function:
                span = range(node.lineno - 1, (node.end_lineno or node.lineno) - len(wanted) + 1)
                places += [Place(path, line) for line in span if lines[line : line + len(wanted)] == wanted]
    return tuple(places)


def apply(place: Place, mutant: Mutant) -> None:
    """Write the changed module, indented as the lines that go."""
    lines = place.path.read_text(encoding="utf-8").splitlines()
    present = lines[place.line]
    indent = present[: len(present) - len(present.lstrip())]
    changed = [f"{indent}{line.strip()}" for line in mutant.added]
    lines[place.line : place.line + len(mutant.removed)] = changed
    source = "\n".join(lines) + "\n"
    ast.parse(source)  # what is no Python would be caught by every test
    place.path.write_text(source, encoding="utf-8")


def find_tests(root: Path, place: Place, mutant: Mutant, reach: Reach) -> list[Path]:
    """The tests to run, those of the folder that mirrors the module's own first."""
    folder, module = root / "tests" / "unit", place.path.relative_to(root).with_suffix("")
    if reach is Reach.ALL:
        return [folder]
    if reach is Reach.ROOM:
        room = folder.joinpath(*module.parts[:2])
        return [room] if room.is_dir() else []
    parent, _, name = ".".join(module.parts).rpartition(".")
    if reach is Reach.MODULE:
        text = rf"\b{re.escape(parent)}\.{name}\b|^from {re.escape(parent)} import .*\b{name}\b"
    else:
        text = rf"\b({'|'.join(map(re.escape, mutant.function.split('.')))})\b"
    wanted = re.compile(text, re.MULTILINE)
    own = folder / module.parent / f"test_{module.name}.py"
    naming = [path for path in folder.rglob("test_*.py") if path == own or wanted.search(path.read_text("utf-8"))]
    return sorted(naming, key=lambda path: (path != own, path.parent != own.parent, path))


def is_caught(root: Path, tests: Sequence[Path], longest_s: float | None = None) -> bool:
    """True if a test of these fails, or does not end. None of them writes what the next run would read."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *map(str, tests)]
    environment = {**os.environ, "PYTHONPATH": str(root), "NETPLUG_HYPOTHESIS_PROFILE": "ci"}
    try:
        ran = subprocess.run(command, cwd=root, env=environment, capture_output=True, timeout=longest_s, check=False)
    except subprocess.TimeoutExpired:
        return True
    return ran.returncode in FAILED


def judge(root: Path, mutant: Mutant, reach: Reach, longest_s: float) -> str:
    """What becomes of a mutant in a copy of the tree: whether tests within this reach catch it."""
    places = find(root, mutant)
    if len(places) != 1:
        return f"stands at {len(places)} places"
    (place,) = places
    before = place.path.read_bytes()
    try:
        apply(place, mutant)
        tests = find_tests(root, place, mutant, reach)
        return "caught" if tests and is_caught(root, tests, longest_s) else "survived"
    finally:
        place.path.write_bytes(before)


def copy(root: Path) -> None:
    """Make a copy of the tree, with all that unit tests read."""
    for name in COPIED:
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".coverage":
            shutil.copy(path, root)
    for name in (".ci", "constraints", ".venv", ".cache"):
        if (ROOT / name).exists():
            (root / name).symlink_to(ROOT / name)


@contextmanager
def open_copies() -> Iterator[SimpleQueue[Path]]:
    """As many copies of the tree as there are cores."""
    copies: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(os.cpu_count() or 1):
            root = Path(folder) / str(number)
            root.mkdir()
            copy(root)
            copies.put(root)
        yield copies


def judge_all(
    mutants: Sequence[Mutant], copies: SimpleQueue[Path], reach: Reach, longest_s: float
) -> dict[Mutant, str]:
    """Judge as many at a time as there are copies; each is printed with its outcome."""

    def judge_in_a_copy(mutant: Mutant) -> str:
        root = copies.get()
        try:
            outcome = judge(root, mutant, reach, longest_s)
        finally:
            copies.put(root)
        print(f"{outcome}: {mutant.title}", flush=True)
        return outcome

    with ThreadPoolExecutor(copies.qsize()) as pool:
        return dict(zip(mutants, pool.map(judge_in_a_copy, mutants), strict=True))


def main(pattern: str = "*") -> str:
    """Judge the mutants whose title matches; the complaint, empty if all are caught."""
    chosen = [mutant for mutant in parse(LIST.read_text(encoding="utf-8")) if fnmatch.fnmatch(mutant.title, pattern)]
    with open_copies() as copies:
        unchanged, started_s = copies.get(), time.monotonic()
        if is_caught(unchanged, [unchanged / "tests" / "unit"]):
            return "the tests fail without any mutant"
        longest_s = PATIENCE * (time.monotonic() - started_s)
        copies.put(unchanged)
        outcomes = dict.fromkeys(chosen, "survived")
        for reach in Reach:
            print(f"with {reach.value}:")
            left = [mutant for mutant, outcome in outcomes.items() if outcome == "survived"]
            outcomes |= judge_all(left, copies, reach, longest_s)
    missed = sum(outcome != "caught" for outcome in outcomes.values())
    print(f"{len(outcomes) - missed} of {len(outcomes)} mutants are caught")
    return f"{missed} are not" if missed or not chosen else ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) or 0)
