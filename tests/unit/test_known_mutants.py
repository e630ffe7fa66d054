"""`make mutants`: it finds a change by its text wherever the module is, and tells a caught one from others."""

from pathlib import Path

import pytest

from tools.known_mutants import LIST, ROOT, Mutant, Place, Reach, apply, find, find_tests, judge, parse

SOURCE = """\
def first(limit: int) -> bool:
    return limit > 1


class Pool:
    def is_large(self, limit: int) -> bool:
        return limit > 1
"""
LARGE = Mutant("netplug_core", "Pool.is_large", ("return limit > 1",), ("return limit > 0",))
LONGEST_S = 3_600
CALL = """\
from netplug_core.pools.model import Pool


def test_it() -> None:
    assert Pool().is_large({limit}) is {large}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("netplug_core/pools", "tests/unit/netplug_core/pools", "tests/unit/netplug_cli"):
        (tmp_path / name).mkdir(parents=True)
    for folder in ("netplug_core", "netplug_core/pools"):
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "netplug_core" / "pools" / "model.py").write_text(SOURCE)
    (tmp_path / "tests/unit/netplug_cli/test_other.py").write_text("def test_it() -> None:\n    assert True\n")
    return tmp_path


def test_a_list_has_the_lines_that_go_and_those_that_come() -> None:
    text = "# A remark.\n\n@@ netplug_core Pool.is_large @@\n-return limit > 1\n+return limit > 0\n"
    assert parse(text) == (LARGE,)


def test_a_change_is_found_by_its_function_and_made_there_alone(tree: Path) -> None:
    (place,) = find(tree, LARGE)
    assert place == Place(tree / "netplug_core" / "pools" / "model.py", 6)
    apply(place, LARGE)
    assert place.path.read_text() == SOURCE.replace("        return limit > 1", "        return limit > 0")


def test_tests_are_those_that_import_the_module_then_more(tree: Path) -> None:
    own, other = tree / "tests/unit/netplug_core/pools/test_model.py", tree / "tests/unit/netplug_cli/test_other.py"
    own.write_text(CALL.format(limit=1, large=False))
    (place,) = find(tree, LARGE)
    assert find_tests(tree, place, LARGE, Reach.MODULE) == find_tests(tree, place, LARGE, Reach.NAME) == [own]
    assert find_tests(tree, place, LARGE, Reach.ROOM) == [own.parent]
    assert find_tests(tree, place, LARGE, Reach.ALL) == [tree / "tests" / "unit"]
    other.write_text("# Pool\n")
    assert find_tests(tree, place, LARGE, Reach.NAME) == [own, other]


@pytest.mark.parametrize("limit, large, outcome", [(1, False, "caught"), (2, True, "survived")])
def test_a_mutant_is_caught_by_a_test_that_fails(tree: Path, limit: int, large: object, outcome: str) -> None:
    (tree / "tests/unit/netplug_core/pools/test_model.py").write_text(CALL.format(limit=limit, large=large))
    assert judge(tree, LARGE, Reach.MODULE, LONGEST_S) == outcome
    assert (tree / "netplug_core" / "pools" / "model.py").read_text() == SOURCE


def test_what_is_gone_is_not_caught(tree: Path) -> None:
    gone = Mutant("netplug_core", "second", ("return limit > 1",), ("return limit > 0",))
    assert judge(tree, gone, Reach.MODULE, LONGEST_S) == "stands at 0 places"


def test_the_list_has_mutants_of_every_package() -> None:
    assert {mutant.package for mutant in parse(LIST.read_text())} == {"netplug_backends", "netplug_cli", "netplug_core"}


def test_each_of_the_list_stands_at_one_place() -> None:
    places = {mutant.title: len(find(ROOT, mutant)) for mutant in parse(LIST.read_text())}
    assert {title for title, count in places.items() if count != 1} == set()
