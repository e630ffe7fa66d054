"""Files to mappings: formats, positions, lists, and what is refused in which words."""

import io
import os
from pathlib import Path

import pytest

from netplug_cli.ctl.documents import (
    find_files,
    read_configuration,
    read_documents,
    render_json,
    render_yaml,
)
from netplug_cli.ctl.errors import InputError


def write(folder: Path, text: str) -> str:
    path = folder / "in.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def read(folder: Path, text: str) -> list[tuple[str, object]]:
    file = write(folder, text)
    return [(document.source.removeprefix(file), document.mapping) for document in read_documents([file])]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a: 1", [("#1", {"a": 1})]),
        ("a: 1\n---\n---\nb: 2\n", [("#1", {"a": 1}), ("#3", {"b": 2})]),
        ('{"a": 18446744073709551615}', [("#1", {"a": 2**64 - 1})]),
        ('\t{\t"a":\t1}', [("#1", {"a": 1})]),
        ("{a: 1}", [("#1", {"a": 1})]),
        ("{kind: List, items: [{a: 1}, {b: 2}]}", [("#1[0]", {"a": 1}), ("#1[1]", {"b": 2})]),
        ("kind: IPPoolList\nmetadata: {}\nitems: []", []),
        ("kind: L\nitems: []", [("#1", {"kind": "L", "items": []})]),
        ("kind: AllowList", [("#1", {"kind": "AllowList"})]),
        ("kind: List\nitems: [{kind: XList, items: [{a: 1}]}]", [("#1[0][0]", {"a": 1})]),
        ("t: 2026-08-20T10:00:00Z\nd: 2026-08-20", [("#1", {"t": "2026-08-20T10:00:00Z", "d": "2026-08-20"})]),
        ("a: &x {b: 1}\nc: *x", [("#1", {"a": {"b": 1}, "c": {"b": 1}})]),
        ("", []),
    ],
)
def test_every_object_with_its_place(tmp_path: Path, text: str, expected: object) -> None:
    assert read(tmp_path, text) == expected


@pytest.mark.parametrize(
    "text, words",
    [
        ("a: [", ": neither YAML nor JSON, line 1, column 5: expected the node content"),
        ('{"a": 1,, "b": 2}', ": neither YAML nor JSON, line 1, column 9: "),
        ("a: 1\na: 2", ": neither YAML nor JSON, line 2, column 1: 'a' is given twice"),
        ("a: {b: 1, b: 2}", ": neither YAML nor JSON, line 1, column 11: 'b' is given twice"),
        ("? [x]\n: 1", ": neither YAML nor JSON, line 1, column 3: found unhashable key"),
        (
            "a: !!python/object:os.system x",
            ": neither YAML nor JSON, line 1, column 4: could not determine",
        ),
        ("a: \x01", ": neither YAML nor JSON: unacceptable character #x0001: special characters are not allowed"),
        ("[" * 1200, ": neither YAML nor JSON"),  # deeper than Python recurses; more only takes longer
        (f"a: {'9' * 5000}", ": neither YAML nor JSON: Exceeds the limit"),
        (f"a: 0x{'f' * 5000}", ": neither YAML nor JSON: Exceeds the limit"),
        ("- a", "#1[0]: expected an object, found 'a'"),
        ("- [{kind: IPPool}]", "#1[0]: expected an object, found [{'kind': 'IPPool'}]"),
        ("a: 1\n---\nb", "#2: expected an object, found 'b'"),
        (
            "kind: List\nitems: {}",
            "#1: a List has apiVersion, kind, metadata and a list of items; items are {}",
        ),
        (
            "kind: List\nitems: []\nspec: 1",
            "#1: a List has apiVersion, kind, metadata and a list of items; there is also spec",
        ),
        ("kind: List\nitems: [5]", "#1[0]: expected an object, found 5"),
    ],
)
def test_what_is_no_document_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert str(caught.value).removeprefix(str(tmp_path / "in.yaml")).startswith(words)


@pytest.mark.parametrize(
    "text",
    ["- kind: A\n- kind: List\n  items: [{kind: B}]\n", '[{"kind": "A"}, {"kind": "BList", "items": [{"kind": "B"}]}]'],
)
def test_a_list_of_resources_is_a_list(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == [("#1[0]", {"kind": "A"}), ("#1[1][0]", {"kind": "B"})]
    found = read_documents([write(tmp_path, text)])
    assert [one.path for one in found] == [(0,), (1, "items", 0)]


def test_a_list_is_no_network_configuration(tmp_path: Path) -> None:
    path = tmp_path / "10-net.conflist"
    path.write_text('[{"name": "a"}]')
    with pytest.raises(InputError, match="expected an object"):
        list(read_documents([str(path)]))


@pytest.mark.parametrize("kind", ["pipe", "endless device", "folder"])
def test_a_pipe_is_read_and_what_never_ends_is_refused(tmp_path: Path, kind: str) -> None:
    match kind:
        case "pipe":
            reading, writing = os.pipe()
            os.write(writing, b"kind: A")
            os.close(writing)
            assert [one.mapping for one in read_documents([f"/dev/fd/{reading}"])] == [{"kind": "A"}]
            os.close(reading)
        case "endless device":
            with pytest.raises(InputError, match="a regular file is expected, and it is a device"):
                list(read_documents(["/dev/zero"]))
        case _:
            with pytest.raises(InputError, match="Is a directory"):
                list(read_documents([str(tmp_path)]))


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a: \xff")
    with pytest.raises(InputError, match=r"not UTF-8 text: invalid start byte at byte 3$"):
        list(read_documents([str(path)]))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r": Is a directory$"):
        list(read_documents([str(tmp_path)]))


def test_standard_input_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a: 1"))
    assert [document.source for document in read_documents(["-"])] == ["standard input#1"]


def test_what_a_terminal_would_obey_is_escaped() -> None:
    value = {"a\x9b": "\x85", "b": ["\x7f\xa0ä\u202e\U000e0001", "two\nlines"]}
    assert render_json(value) == (
        '{\n  "a\\u009b": "\\u0085",\n'
        '  "b": [\n    "\\u007f\\u00a0ä\\u202e\\udb40\\udc01",\n    "two\\nlines"\n  ]\n}\n'
    )
    assert render_yaml(value) == ('"a\\x9B": "\\N"\nb:\n- "\\x7F\\xa0ä\\u202e\\U000E0001"\n- \'two\n\n  lines\'\n')


def test_objects_are_printed_in_their_own_order() -> None:
    value = {"kind": "x", "a": ["ä", None]}
    assert render_yaml(value) == "kind: x\na:\n- ä\n- null\n"
    assert render_json(value) == '{\n  "kind": "x",\n  "a": [\n    "ä",\n    null\n  ]\n}\n'


# --- configuration -------------------------------------------------------------------------------------------------

SECRET = "hunter2"  # noqa: S105 - planted, to be searched for


@pytest.mark.parametrize("text", ["a: {b: 1}", '{"a": {"b": 1}}', "---\n---\na: {b: 1}\n---\n"])
def test_a_configuration_is_one_object(tmp_path: Path, text: str) -> None:
    assert read_configuration(write(tmp_path, text)).mapping == {"a": {"b": 1}}


@pytest.mark.parametrize(
    "text, words",
    [
        ("", ": one object is expected"),
        (f"- {SECRET}", ": one object is expected"),
        (f"{SECRET}", ": one object is expected"),
        (f"a: 1\n---\nb: {SECRET}", ": one object is expected"),
        (f"a: 1\nb: *{SECRET}", ": neither YAML nor JSON, line 2, column 4"),
        (f"b: !{SECRET} x", ": neither YAML nor JSON, line 1, column 4"),
        (f"{SECRET}: 1\n{SECRET}: 2", ": neither YAML nor JSON, line 2, column 1"),
        (f"b: [{SECRET}", ": neither YAML nor JSON, line 1, column 12"),
        (f"b: {SECRET}\x00", ": neither YAML nor JSON"),
        (f"b: -0x{'f' * 5000}", ": neither YAML nor JSON"),
    ],
)
def test_what_is_no_configuration_is_refused_and_nothing_of_it_is_quoted(tmp_path: Path, text: str, words: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_configuration(file)
    assert str(caught.value) == f"{file}{words}"
    assert SECRET not in f"{caught.value!r}"


def test_a_configuration_that_is_not_there_or_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"No such file or directory$"):
        read_configuration(str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"Is a directory$"):
        read_configuration(str(tmp_path))
    (tmp_path / "bytes").write_bytes(b"a: \xff")
    with pytest.raises(InputError, match=r"neither YAML nor JSON$"):
        read_configuration(str(tmp_path / "bytes"))


def test_a_folder_stands_for_its_files_of_yaml_and_json(tmp_path: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    for file in ("b.yaml", "a.json", "c.yml", "readme.md", "below/d.yaml"):
        (tmp_path / file).write_text("{}")
    own = [str(tmp_path / name) for name in ("a.json", "b.yaml", "c.yml")]
    assert list(find_files(str(tmp_path))) == own
    assert list(find_files(str(tmp_path), is_recursive=True)) == sorted([*own, str(below / "d.yaml")])
    assert list(find_files(own[0])) == own[:1]
    assert list(find_files("-")) == ["-"]


def test_a_folder_without_such_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    with pytest.raises(InputError, match=r"no file that ends in \.yaml, \.yml, \.json is in it; -R looks below too$"):
        list(find_files(str(tmp_path)))
    with pytest.raises(InputError, match=r"is in it or below$"):
        list(find_files(str(tmp_path), is_recursive=True))
