"""Every block of a page that shows no command is judged here, or stands in one list with the test that reads its page.

Documents of YAML and JSON are what they seem to be: resources, Installations and network configurations in which lint
finds no error. A script of Python prints what stands below it. Blocks with commands are in ``test_console_blocks``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import jsonschema
import pytest
import yaml
from attrs import frozen

from netplug_cli.ctl.yaml_documents import load_yaml
from netplug_core.lint.check import check
from netplug_core.lint.clusters import Surroundings
from netplug_core.lint.documents import Document, find_sort
from netplug_core.lint.rules import Severity
from tests.harness.console_pages import PAGES, ROOT, console_blocks, read_listed

LISTED = read_listed(ROOT / "tests" / "unit" / "page_blocks.txt")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$(?=(?:\n+```text\n(.*?)^```$)?)", re.DOTALL | re.MULTILINE)
_WITH_ERRORS = {"docs/lint.md"}  # the page shows what lint finds in them
_OF_THE_CHART = {"docs/install-helm.md"}


@frozen
class PageBlock:
    """A block without commands: where it is, its text, and the output that stands right below it."""

    page: str
    language: str
    text: str
    shown: str = ""

    @property
    def first_line(self) -> str:
        return next((line.strip() for line in self.text.splitlines() if line.strip()), "")


def page_blocks() -> dict[str, PageBlock]:
    """The blocks by their names: page, language, first line, and a number where that is not the first one so."""
    found = dict[str, PageBlock]()
    for page in PAGES:
        name, seen = str(page.relative_to(ROOT)), Counter[str]()
        commands = {block.text for block in console_blocks(page)}
        for language, text, shown in _BLOCK.findall(page.read_text()):
            if text in commands or (language == "text" and found and text == list(found.values())[-1].shown):
                continue
            block = PageBlock(name, language, text, shown if language == "python" else "")
            title = f"{name}: {language}: {block.first_line}"
            seen[title] += 1
            found[title if seen[title] == 1 else f"{title} ({seen[title]})"] = block
    return found


BLOCKS = page_blocks()


def is_listed(name: str) -> bool:
    return name in LISTED or f"{BLOCKS[name].page}: *" in LISTED


def judged(*languages: str) -> list[str]:
    return [name for name, block in BLOCKS.items() if block.language in languages and not is_listed(name)]


def errors_in(block: PageBlock, mapping: Mapping[str, object]) -> Iterator[str]:
    """What lint finds in a document; one of no sort that it knows is only read."""
    is_network = block.language == "json"
    document = Document(source=block.page, mapping=mapping, file="a.conflist" if "plugins" in mapping else "")
    assert find_sort(document) is not None or is_network or "apiVersion" in mapping, block.first_line
    for finding in check([document], Surroundings()).found:
        if finding.rule.severity is Severity.ERROR:
            yield f"{finding.field}: {finding.accepted}"


def documents_of(block: PageBlock) -> list[Mapping[str, object]]:
    found = [json.loads(block.text)] if block.language == "json" else list(load_yaml(block.text, block.page))
    assert all(isinstance(one, dict) for one in found)
    return cast("list[Mapping[str, object]]", found)


@pytest.mark.parametrize("name", judged("yaml", "json"))
def test_a_document_is_what_it_seems_to_be(name: str) -> None:
    block = BLOCKS[name]
    documents = documents_of(block)
    assert documents
    if block.page in _OF_THE_CHART:
        chart = ROOT / "netplug_cli" / "manifests" / "charts" / "netplug-operator"
        values = yaml.safe_load((chart / "values.yaml").read_text())
        schema = json.loads((chart / "values.schema.json").read_text())
        jsonschema.Draft7Validator(schema).validate({**values, **documents[0]})
        return
    found = [problem for mapping in documents for problem in errors_in(block, mapping)]
    assert bool(found) is (block.page in _WITH_ERRORS and block.language == "json"), found


@pytest.mark.parametrize("name", judged("python"))
def test_a_script_prints_what_stands_below_it(name: str, tmp_path: Path) -> None:
    block = BLOCKS[name]
    ran = subprocess.run([sys.executable, "-c", block.text], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.stderr == ""
    assert ran.stdout == block.shown


def test_every_block_is_judged_or_listed() -> None:
    """A new block of another language needs a line in the list: the test that reads it, or the reason why none does."""
    here = {*judged("yaml", "json", "python")}
    assert sorted(name for name in BLOCKS if name not in here and not is_listed(name)) == []
    pages = {f"{block.page}: *" for block in BLOCKS.values()}
    assert sorted(set(LISTED) - set(BLOCKS) - pages) == [], "these are in no page any more"


def test_the_list_names_tests_that_read_the_page() -> None:
    for name, (test, reason) in LISTED.items():
        if test == "-":
            assert len(reason.split()) >= 4, f"{name}: a reason in words is expected"
            assert all((ROOT / named).exists() for named in re.findall(r"tests/\S+\.py", reason)), name
        else:
            assert (ROOT / test).is_file(), f"{name}: {test} does not exist"
