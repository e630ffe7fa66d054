"""The mutation pass changes every module of the rules, and its page names functions that are there."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.mutants import parse_accepted

ROOT = Path(__file__).parents[2]
RULES = ROOT / "netplug_core" / "ipam"
ACCEPTED = parse_accepted((ROOT / "docs" / "design" / "mutants.md").read_text())
LEFT_OUT = {
    "__init__": "a map of the package, without code",
    "request": "values, and checks of the types of their fields",
}
"""Modules that the pass leaves alone, and why."""


def only_mutate() -> list[Path]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [ROOT / path for path in settings["tool"]["mutmut"]["only_mutate"]]


def functions(tree: ast.AST, prefix: str) -> Iterator[str]:
    """The functions and methods of a module, as the page names them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield f"{prefix}.{node.name}"
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}.{node.name}")


def test_the_pass_changes_all_modules_of_the_model_and_the_allocation_but_a_few() -> None:
    modules = {RULES / "model.py", *(RULES / "allocation").glob("*.py")}
    assert {path.stem for path in modules} > set(LEFT_OUT)
    listed = only_mutate()
    assert sorted(listed) == sorted(path for path in modules if path.stem not in LEFT_OUT)
    assert len({path.stem for path in listed}) == len(listed), "the page tells modules apart by their names alone"


@pytest.mark.parametrize("name", sorted({function for function, _, _ in ACCEPTED}))
def test_what_a_mutant_is_accepted_in_exists(name: str) -> None:
    (path,) = (path for path in only_mutate() if path.stem == name.partition(".")[0])
    assert name in set(functions(ast.parse(path.read_text()), path.stem))
