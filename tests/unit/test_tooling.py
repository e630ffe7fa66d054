"""The size rules that ruff cannot count, and promises of the packaging that nothing else would notice."""

import ast
import importlib.util
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder

ROOT = Path(__file__).parents[2]
PACKAGES = ("netplug_core", "netplug_backends", "netplug_cli")
MODULE_LINES = 800
FUNCTION_LINES = 60
PARAMETERS = 6
CASTS = 10

Function = ast.FunctionDef | ast.AsyncFunctionDef


def package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None, package
    assert spec.origin is not None, f"{package} has no __init__.py"
    return Path(spec.origin).parent


def modules() -> list[tuple[str, Path]]:
    """Every module of the three packages: a name to show, and the file."""
    return [
        (f"{package}/{path.relative_to(folder)}", path)
        for package in PACKAGES
        for folder in [package_folder(package)]
        for path in sorted(folder.rglob("*.py"))
    ]


@cache
def functions(path: Path) -> tuple[Function, ...]:
    return tuple(node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, Function))


def lines_of(function: Function) -> int:
    """From `def` to the last line; decorators are not counted."""
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def parameters_of(function: Function) -> int:
    """All that a caller may pass; `self` and `cls` are not passed."""
    named = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    starred = [arg for arg in (function.args.vararg, function.args.kwarg) if arg is not None]
    return len([arg for arg in named if arg.arg not in {"self", "cls"}]) + len(starred)


def test_no_module_is_longer_than_a_reader_can_hold() -> None:
    lengths = {name: len(path.read_text().splitlines()) for name, path in modules()}
    assert {name: length for name, length in lengths.items() if length > MODULE_LINES} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    lengths = {f"{name}:{f.lineno} {f.name}": lines_of(f) for name, path in modules() for f in functions(path)}
    assert {name: length for name, length in lengths.items() if length > FUNCTION_LINES} == {}


def test_no_function_takes_more_parameters_than_fit_in_a_head() -> None:
    counts = {f"{name}:{f.lineno} {f.name}": parameters_of(f) for name, path in modules() for f in functions(path)}
    assert {name: count for name, count in counts.items() if count > PARAMETERS} == {}


def test_few_casts_are_left_and_each_has_its_reason() -> None:
    """A wrong cast is no error of any checker. A reason stands behind it, or in one of the two lines above."""
    lines = {name: path.read_text(encoding="utf-8").splitlines() for name, path in modules()}
    near = {
        f"{name}:{number + 1}": "".join(text[max(number - 2, 0) : number + 1])
        for name, text in lines.items()
        for number, line in enumerate(text)
        if re.search(r"\bcast\(\"", line)
    }
    assert len(near) <= CASTS
    assert [place for place, text in near.items() if "# " not in text] == []


def test_a_module_that_is_run_ends_with_that() -> None:
    """What stands below is not defined yet where `python -m` runs the module."""
    texts = {name: path.read_text().partition('\nif __name__ == "__main__":\n')[2] for name, path in modules()}
    assert [name for name, text in texts.items() if re.search(r"^\S", text, re.MULTILINE)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_types_are_published(package: str) -> None:
    assert (package_folder(package) / "py.typed").is_file()


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_is_created_empty(package: str) -> None:
    """A package's `__init__` is a map, so it has a docstring at least."""
    empty = [name for name, path in modules() if name.startswith(package) and not path.read_text().strip()]
    assert empty == []


def test_the_source_distribution_has_its_tests_and_what_they_read() -> None:
    """`nox -s dist` runs them from there."""
    packed = {file.relative_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    read = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "changelog.d").iterdir()]
    named = {"CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "noxfile.py", "tools/manifests.py", ".ci/run"}
    assert {str(path.relative_to(ROOT)) for path in read} | named <= packed


def test_every_news_fragment_has_a_number_of_its_own() -> None:
    """`towncrier build` fails if an issue has two fragments of a type without different numbers."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
    types = "|".join(entry["directory"] for entry in settings["type"])
    names = [path.name for path in (ROOT / "changelog.d").glob("*.md")]
    assert names
    assert [name for name in names if not re.fullmatch(rf"\d+\.({types})\.\d+\.md", name)] == []
