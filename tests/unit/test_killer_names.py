"""The programs that kill a process at its n-th effect name functions of the product as text: those functions exist.

A name that is outdated would make a kill test count fewer effects, without a failure.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROCESSES = ROOT / "tests" / "harness" / "processes"


def qualified_names(tree: ast.AST, prefix: str = "") -> Iterator[str]:
    """Every function and method, as ``__qualname__`` has it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from qualified_names(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield f"{prefix}{node.name}"
            yield from qualified_names(node, f"{prefix}{node.name}.<locals>.")


@cache
def product_names() -> set[str]:
    paths = [
        path
        for package in ("netplug_core", "netplug_backends", "netplug_cli")
        for path in ROOT.glob(f"{package}/**/*.py")
    ]
    return {name for path in paths for name in qualified_names(ast.parse(path.read_text()))}


def constants(program: str) -> dict[str, object]:
    """The constants of a program, which would run if it were imported."""
    found: dict[str, object] = {}
    for node in ast.parse((PROCESSES / program).read_text()).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.isupper():
                found[name] = ast.literal_eval(value)
            case _:
                pass
    return found


def test_the_functions_that_the_killer_of_a_plugin_counts_exist() -> None:
    found = constants("plugin_killer.py")
    effects, server_calls = found["EFFECTS"], found["SERVER_CALLS"]
    assert isinstance(effects, dict)
    assert isinstance(server_calls, set)
    assert set().union(*effects.values(), server_calls) - product_names() == set()
    module = str(found["FIRST_MODULE"])
    assert ROOT.joinpath(*module.split(".")).with_suffix(".py").is_file()


def test_the_functions_that_the_killer_of_the_tool_counts_exist() -> None:
    calls = constants("tool_killer.py")["PYTHON_CALLS"]
    assert isinstance(calls, set)
    assert calls - {name.rpartition(".")[2] for name in product_names()} == set()


COMMIT_FUNCTIONS = re.findall(r'commit_function="([^"]+)"', (PROCESSES.parent / "plugin_datastores.py").read_text())


@pytest.mark.parametrize("name", COMMIT_FUNCTIONS)
def test_the_function_that_commits_to_a_store_exists(name: str) -> None:
    assert name in product_names()
