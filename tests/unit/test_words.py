"""Names, docstrings and comments of what ships use the words of the field (docs/glossary.md)."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("netplug_core", "netplug_backends", "netplug_cli")
# Words for which readers of Calico, Kubernetes or etcd code have another word.
BANNED_IN_NAMES = frozenset(
    re.findall(
        r"[a-z]+",
        """
    asker askers basket bench birth born census desk doubt draws ending findings gauge heard holdings keeper laws lender
    lenders loan loans meddler mend mending mended mishap mishaps papers passing person population presumed recall
    remark remarks rested silence somebody stranded study supply survey suspect suspects told tells warm whoever wish
    wished wishes witness
    """,
    )
)
OF_LIBRARIES = {"GaugeMetricFamily"}  # of prometheus_client
BANNED_IN_TEXT = frozenset(
    re.findall(
        r"[a-z]+",
        """
    basket bench census desk gauge heard hears keeper lender lenders lent loan loans mend mended mends mishap mishaps
    nobody papers riddle ripe somebody spoil spoilt stranded survey suspect suspects tells told whoever wish
    wished wishes witness
    """,
    )
)
# Names of tests and fixtures; tests of the cache may be warm, and those of invariants are called laws.
BANNED_IN_TESTS = BANNED_IN_NAMES - {"laws", "warm"}


def modules() -> list[Path]:
    return sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))


def words_of(name: str) -> set[str]:
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def find_names(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if (
            token.type == tokenize.NAME
            and words_of(token.string) & BANNED_IN_NAMES
            and token.string not in OF_LIBRARIES
        ):
            yield f"{token.start[0]}: {token.string}"


def find_texts(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_docstring = token.type == tokenize.STRING and token.string.lstrip("rR").startswith('"""')
        if is_docstring or token.type == tokenize.COMMENT:
            found = set(re.findall(r"[a-z]+", token.string.lower())) & BANNED_IN_TEXT
            if found:
                yield f"{token.start[0]}: {', '.join(sorted(found))}"


def test_modules_are_named_in_the_fields_words() -> None:
    assert [str(file.relative_to(ROOT)) for file in modules() if words_of(file.stem) & BANNED_IN_NAMES] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_names_and_texts_are_in_the_fields_words(package: str) -> None:
    files = [file for file in modules() if file.is_relative_to(ROOT / package)]
    assert len(files) > 20
    found = {str(file.relative_to(ROOT)): [*find_names(text), *find_texts(text)] for file, text in _read(files)}
    assert {file: problems for file, problems in found.items() if problems} == {}


def test_tests_and_fixtures_are_named_in_the_fields_words() -> None:
    files = [*(ROOT / "tests").rglob("*.py")]
    found = {str(file.relative_to(ROOT)): list(_find_functions(text)) for file, text in _read(files)}
    assert {file: problems for file, problems in found.items() if problems} == {}


def test_a_banned_word_is_found() -> None:
    assert list(find_names("def wishFor(a_loan): pass\n")) == ["1: wishFor", "1: a_loan"]
    assert list(find_texts('"""A witness said so."""\n')) == ["1: witness"]
    assert list(find_texts("x = 1  # whoever reads\n")) == ["1: whoever"]
    assert list(find_names("allowed = forbidden = 1\n")) == []


def _find_functions(source: str) -> Iterator[str]:
    for name in re.findall(r"^ *def (\w+)", source, re.MULTILINE):
        if words_of(name) & BANNED_IN_TESTS:
            yield name


def _read(files: list[Path]) -> Iterator[tuple[Path, str]]:
    return ((file, file.read_text(encoding="utf-8")) for file in files)
