"""The files and the index of a bundle: what is kept, what is cut, and what is said of the rest."""

import json

import pytest

from netplug_core.clock import Deadline
from netplug_core.support import (
    INDEX,
    README,
    Bundle,
    DocumentsPart,
    IndexEntry,
    Limits,
    MissingPart,
    Part,
    PartState,
    Redactor,
    TextPart,
    assemble,
)
from netplug_core.testing.clock import ManualClock


def render(_path: str, document: object) -> str:
    return f"{json.dumps(document)}\n"


def make(*parts: Part, limits: Limits | None = None, redactor: Redactor | None = None) -> Bundle:
    return assemble(
        parts,
        redactor or Redactor(),
        header={"client": "v1"},
        render=render,
        limits=limits or Limits(),
        deadline=Deadline.after(ManualClock(), 60),
    )


def contents(bundle: Bundle) -> dict[str, str]:
    return {file.path: file.content.decode() for file in bundle.files}


def entry(bundle: Bundle, path: str) -> IndexEntry:
    return next(entry for entry in bundle.entries if entry.path == path)


def test_each_part_is_a_file_and_a_line_of_the_index() -> None:
    bundle = make(
        TextPart(path="a.txt", text="one\n"),
        DocumentsPart(path="b.yaml", documents=({"x": 1}, {"y": 2})),
        MissingPart(path="c", state=PartState.ABSENT, reason="there is none"),
        MissingPart(path="d", state=PartState.FAILED, reason="no answer"),
    )
    found = contents(bundle)
    assert (found["a.txt"], found["b.yaml"]) == ("one\n", '{"x": 1}\n{"y": 2}\n')
    assert json.loads(found[INDEX]) == {
        "client": "v1",
        "parts": [
            {"path": "a.txt", "state": "written", "bytes": 4},
            {"path": "b.yaml", "state": "written", "bytes": 18},
            {"path": "c", "state": "absent", "bytes": 0, "reason": "there is none"},
            {"path": "d", "state": "failed", "bytes": 0, "reason": "no answer"},
        ],
    }
    assert found[README].splitlines()[-4:] == [
        "written a.txt",
        "written b.yaml",
        "absent  c there is none",
        "failed  d no answer",
    ]
    assert [failed.path for failed in bundle.failed] == ["d"]


def test_a_secret_of_the_last_part_is_hidden_in_the_first_one_and_in_reasons() -> None:
    bundle = make(
        TextPart(path="log", text="got hunter-two\n"),
        DocumentsPart(path="doc", documents=({"note": "is hunter-two"},)),
        MissingPart(path="x", state=PartState.FAILED, reason="hunter-two and password=other1"),
        DocumentsPart(path="conf", documents=({"password": "hunter-two"},)),
    )
    assert all("hunter-two" not in text and "other1" not in text for text in contents(bundle).values())
    assert entry(bundle, "x").reason == "<hidden> and password=<hidden>"


def test_a_text_is_cut_after_a_line() -> None:
    bundle = make(TextPart(path="a", text="1234\n5678\n9"), limits=Limits(file=10))
    assert contents(bundle)["a"] == "1234\n5678\n"
    assert entry(bundle, "a") == IndexEntry(path="a", state=PartState.CUT, size=10, reason="the first 10 of 11 bytes")
    assert contents(make(TextPart(path="a", text="1234"), limits=Limits(file=3)))["a"] == ""


def test_documents_are_kept_whole() -> None:
    bundle = make(DocumentsPart(path="a", documents=(1, 22, 333)), limits=Limits(file=6))
    assert contents(bundle)["a"] == "1\n22\n"
    assert entry(bundle, "a").reason == "the first 2 of 3 documents: there is space for 6 bytes"
    assert bundle.failed == ()


def test_all_files_together_have_a_limit() -> None:
    parts = [TextPart(path=path, text="1234\n") for path in "abc"]
    bundle = make(*parts, limits=Limits(file=100, total=10))
    assert set(contents(bundle)) == {INDEX, README, "a", "b"}
    assert entry(bundle, "c") == IndexEntry(path="c", state=PartState.FAILED, reason="the bundle has its 10 bytes")


@pytest.mark.parametrize("reason", ["the last 5 of 9 bytes"])
def test_a_part_that_was_cut_when_it_was_read_says_so(reason: str) -> None:
    bundle = make(TextPart(path="a", text="12\n34\n", note=reason), limits=Limits(file=3))
    assert entry(bundle, "a").reason == f"{reason}; the first 3 of 6 bytes"
    assert entry(make(DocumentsPart(path="a", documents=(), note=reason)), "a").state is PartState.CUT


def test_what_is_not_rendered_in_time_is_left_out() -> None:
    clock = ManualClock()

    def render_slowly(path: str, document: object) -> str:
        clock.sleep(1)
        return render(path, document)

    bundle = assemble(
        [DocumentsPart(path="a", documents=(1, 2, 3)), DocumentsPart(path="b", documents=(1,))],
        Redactor(),
        header={},
        render=render_slowly,
        limits=Limits(),
        deadline=Deadline.after(clock, 2),
    )
    assert contents(bundle)["a"] == "1\n2\n"
    assert entry(bundle, "a").reason == "the first 2 of 3 documents: the time is over"
    assert entry(bundle, "b").reason == "the first 0 of 1 documents: the time is over"


def test_what_is_nested_too_deep_costs_no_other_part() -> None:
    deep: object = "x"
    for _ in range(20_000):
        deep = [deep]

    def refuse_lists(_path: str, document: object) -> str:
        if isinstance(document, list):
            raise RecursionError
        return "ok\n"

    bundle = make(DocumentsPart(path="deep", documents=(deep,)), TextPart(path="a", text="1\n"))
    assert entry(bundle, "deep").reason == "it is nested too deep"
    assert contents(bundle)["a"] == "1\n"
    rendered = assemble(
        [DocumentsPart(path="a", documents=(1, [1]))],
        Redactor(),
        header={},
        render=refuse_lists,
        limits=Limits(),
        deadline=Deadline.after(ManualClock(), 60),
    )
    assert entry(rendered, "a").reason == "the first 1 of 2 documents: it is nested too deep"


def test_text_that_is_no_utf_8_is_escaped() -> None:
    assert contents(make(TextPart(path="a", text="x\udcff\n")))["a"] == "x\\udcff\n"
