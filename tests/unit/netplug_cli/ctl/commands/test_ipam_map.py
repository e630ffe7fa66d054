"""``ipam map``: what it draws on a terminal, as a picture and as a page, and what it writes."""

import io
import os
import re
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.ipam.model import Attribute, Block, block_key
from netplug_core.records import Create
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPReservation, IPReservationSpec, ipreservation_key
from tests.harness.ctl import ToolHarness

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '\x1b]0;<script src="http://x.example/a.js">&\'\u202e\n'
SPACE_EXPECTED = """\
# in use   b borrowed   ~ cooling down   r reserved   . free   _ unclaimed
In [ ] a character is an address; in | | it is a share, and what there is has one at least.

four 10.66.0.0/26
  64 addresses in all, 3 blocks of 2 nodes: 13 in use, 2 borrowed, 1 cooling down, 4 reserved, 28 free, 16 unclaimed
  |#############bb~rrrr............................________________|
  10.66.0.0/28  node-a: 4 in use, 2 borrowed, 1 cooling down, 2 reserved, 7 free; borrowed by node-b (2)
    [~####bb.......rr]
  10.66.0.16/28  node-b: 9 in use, 2 reserved, 5 free
    [#########.....rr]
  10.66.0.32 - 10.66.0.47  16 unclaimed
  10.66.0.48/28  no node: 16 free
    [................]

six fd5f:abcd:64::/48
  1.2089e+24 addresses in all, 1 block of 1 node: 3 in use, 61 free, 1.2089e+24 unclaimed
  |#.______________________________________________________________|
  fd5f:abcd:64::/122  node-a: 3 in use, 61 free
    [###.............................................................]
  fd5f:abcd:64::40 - fd5f:abcd:64:ffff:ffff:ffff:ffff:ffff  1.2089e+24 unclaimed

orphaned allocation blocks (IPv4)
  8 addresses in all, 1 block of 1 node: 2 in use, 6 free
  |################................................................|
  10.70.0.0/29  node-a: 2 in use, 6 free
    [##......]
"""


def block(cidr: str, *held: int, owner: str = "host:node-a", node: str = "node-a") -> Block:
    empty = Block.new(Prefix.parse(cidr), owner=owner, now_ns=1)
    attribute = Attribute(handle="net.4f2a", owner=(("namespace", "shop"), ("node", node), ("pod", "web-0")))
    return empty.assign(tuple(map(Ordinal, held)), attribute) if held else empty


def store(harness: ToolHarness, *blocks: Block) -> None:
    harness.store_records(*(Create(block_key(each.prefix), each) for each in blocks))


@pytest.fixture
def used(harness: ToolHarness) -> ToolHarness:
    """Two pools with every use of an address, and a block in no pool."""
    harness.run_command("create", "-f", harness.write_pools(("four", "10.66.0.0/26"), spec="blockSize: 28"))
    harness.run_command("create", "-f", harness.write_pools(("six", "fd5f:abcd:64::/48")))
    spec = IPReservationSpec(reserved=tuple(map(Prefix.parse, ("10.66.0.14/31", "10.66.0.30/31"))))
    reservation = IPReservation(metadata=Metadata(name="routers"), spec=spec)
    harness.store_records(Create(ipreservation_key("routers"), reservation))
    first = block("10.66.0.0/28", 0, 1, 2, 3, 4)
    first = first.release(frozenset({Ordinal(0)}), cooling_from_ns=harness.clock.now_ns())
    first = first.assign((Ordinal(5), Ordinal(6)), Attribute(handle="net.b", owner=(("node", "node-b"),)))
    store(
        harness,
        first,
        block("10.66.0.16/28", *range(9), owner="host:node-b", node="node-b"),
        block("10.66.0.48/28", owner=""),
        block("fd5f:abcd:64::/122", 0, 1, 2),
        block("10.70.0.0/29", 0, 1),
    )
    return harness


# --- text -------------------------------------------------------------------------------------------------------------


def test_the_whole_space_as_text(used: ToolHarness) -> None:
    assert used.run_command("ipam", "map") == 0
    assert (used.out, used.err) == (SPACE_EXPECTED, "")


def test_pools_are_selected_by_name_or_cidr(used: ToolHarness) -> None:
    assert used.run_command("ipam", "map", "fd5f:abcd:64::/48", "four") == 0
    heads = [line for line in used.out.splitlines()[3:] if line and not line.startswith(" ")]
    assert heads == ["six fd5f:abcd:64::/48", "four 10.66.0.0/26"]
    assert used.run_command("ipam", "map", "five") == 1
    assert (used.out, used.err) == ("", "netplugctl: resource does not exist: IPPool(five)\n")


def test_without_pools_that_is_said(harness: ToolHarness) -> None:
    assert harness.run_command("ipam", "map") == 0
    assert (harness.out, harness.err) == ("", "netplugctl: no IPPool found\n")
    for output in ("svg", "html"):
        assert harness.run_command("ipam", "map", "-o", output) == 0
        assert "There is no IPPool, and no block." in harness.out


def test_many_blocks_share_rows(harness: ToolHarness) -> None:
    harness.run_command("create", "-f", harness.write_pools(("big", "10.64.0.0/14")))
    store(harness, *(block(f"10.{64 + n // 1024}.{n // 4 % 256}.{n % 4 * 64}/26", 0) for n in range(3000)))
    assert harness.run_command("ipam", "map") == 0
    lines = harness.out.splitlines()
    assert "  The 3000 blocks are drawn in 47 rows, neighbours together; --max-rows changes that." in lines
    assert "  10.64.0.0/20  64 blocks of node-a (64): 64 in use, 4032 free" in lines
    assert len(lines) < 150
    harness.run_command("ipam", "map", "--max-rows", "3")
    assert len(harness.out.splitlines()) < 20
    for output, most in (("svg", 100_000), ("html", 100_000)):
        harness.run_command("ipam", "map", "-o", output)
        assert 10_000 < len(harness.out) < most


def test_a_damaged_record_is_named_and_nothing_is_drawn(used: ToolHarness, tmp_path: Path) -> None:
    used.damage[block_key(Prefix.parse("10.66.0.0/28"))] = b"{"
    assert used.run_command("ipam", "map", "-f", str(tmp_path / "map.svg")) == 1
    assert used.err.startswith("netplugctl: the stored record ")
    assert "10.66.0.0/28" in used.err
    assert not (tmp_path / "map.svg").exists()


@pytest.mark.parametrize("rows", ["0", "4097", "many"])
def test_a_number_of_rows_has_limits(harness: ToolHarness, rows: str) -> None:
    assert harness.run_command("ipam", "map", "--max-rows", rows) == 2
    assert "Invalid value for '--max-rows'" in harness.err


# --- colours ----------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A standard output that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "environ, options, is_coloured",
    [
        ({}, (), True),
        ({"NO_COLOR": ""}, (), True),
        ({"NO_COLOR": "1"}, (), False),
        ({"TERM": "dumb"}, (), False),
        ({}, ("--no-color",), False),
    ],
)
def test_a_terminal_gets_colours_unless_there_should_be_none(
    used: ToolHarness,
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
    options: tuple[str, ...],
    is_coloured: object,
) -> None:
    used.environ.update(environ)
    with monkeypatch.context() as patched:
        terminal = Terminal()
        patched.setattr(sys, "stdout", terminal)
        used.run_command("ipam", "map", *options)
    assert ("\x1b[" in terminal.getvalue()) is is_coloured
    assert re.sub(r"\x1b\[\d+m", "", terminal.getvalue()) == SPACE_EXPECTED


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, options, begin",
    [
        ("map.svg", (), "<svg "),
        ("map.HTML", (), "<!DOCTYPE html>"),
        ("map.htm", (), "<!DOCTYPE html>"),
        ("map.txt", (), "# in use"),
        ("map", ("-o", "svg"), "<svg "),
        ("map.svg", ("-o", "text"), "# in use"),
    ],
)
def test_a_file_is_written_as_its_name_or_the_option_says(
    used: ToolHarness, tmp_path: Path, name: str, options: tuple[str, ...], begin: str
) -> None:
    (tmp_path / name).write_text("old")
    (tmp_path / f"{name}.tmp").write_text("of another")
    assert used.run_command("ipam", "map", "--file", str(tmp_path / name), *options) == 0
    assert (used.out, used.err) == ("", "")
    assert (tmp_path / name).read_text().startswith(begin)
    assert {path.name: path.read_text() for path in tmp_path.glob("map*.tmp")} == {f"{name}.tmp": "of another"}


@pytest.mark.parametrize("name", ["map.png", "map.PDF", "map.svg.gz"])
def test_an_extension_of_no_format_is_refused(used: ToolHarness, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("old")
    path = str(tmp_path / name)
    assert used.run_command("ipam", "map", "-f", path) == 2
    expected = f"{path!r} ends like no format of a map; .txt, .text, .svg, .html, .htm are accepted, or -o with one of"
    assert expected in used.err
    assert (tmp_path / name).read_text() == "old"
    assert used.run_command("ipam", "map", "-f", path, "-o", "svg") == 0
    assert (tmp_path / name).read_text().startswith("<svg ")


def test_a_dash_is_standard_output(used: ToolHarness) -> None:
    assert used.run_command("ipam", "map", "-f", "-") == 0
    assert used.out == SPACE_EXPECTED


def test_a_link_stays_a_link(used: ToolHarness, tmp_path: Path) -> None:
    (tmp_path / "link.svg").symlink_to(tmp_path / "real.svg")
    assert used.run_command("ipam", "map", "-f", str(tmp_path / "link.svg")) == 0
    assert (tmp_path / "link.svg").is_symlink()
    assert (tmp_path / "real.svg").read_text().startswith("<svg ")


def test_what_is_no_file_is_left_alone(used: ToolHarness, tmp_path: Path) -> None:
    (tmp_path / "folder.svg").mkdir()
    os.mkfifo(tmp_path / "pipe.svg")
    for name in ("folder.svg", "pipe.svg"):
        path = str(tmp_path / name)
        assert used.run_command("ipam", "map", "-f", path) == 1
        expected = f"netplugctl: {path}: it is not a file; leave -f out to write to standard output\n"
        assert (used.out, used.err) == ("", expected)


def test_a_file_that_cannot_be_written_is_named(used: ToolHarness, tmp_path: Path) -> None:
    path = str(tmp_path / "missing" / "map.svg")
    assert used.run_command("ipam", "map", "-f", path) == 1
    assert used.err == f"netplugctl: {path}: No such file or directory; nothing was written\n"


# --- pictures and pages -----------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """A page as a parser of HTML sees it: each element's name and attributes, and all texts."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def count(self, tag: str, **attributes: str) -> int:
        return sum(name == tag and attributes.items() <= found.items() for name, found in self.elements)


def read_page(text: str) -> Page:
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    return page


def assert_refers_nowhere(elements: list[tuple[str, dict[str, str]]], style: str) -> None:
    """No element loads, links or runs anything, and no style does."""
    assert {tag for tag, _ in elements}.isdisjoint({"script", "link", "a", "img", "iframe", "object", "image", "use"})
    for _tag, attributes in elements:
        assert not {"href", "src", "srcset", "xlink:href", "data"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
        assert not any("url(" in value for value in attributes.values())
    assert "url(" not in style
    assert "@import" not in style


def test_a_page_has_every_pool_and_row_and_refers_nowhere(used: ToolHarness) -> None:
    assert used.run_command("ipam", "map", "-o", "html") == 0
    page = read_page(used.out)
    assert page.count("section") == 3
    assert page.count("svg", role="img") == 3 + 5
    assert page.count("ul", **{"class": "rows"}) == 3
    assert page.count("li") == 6 + 4 + 2 + 1
    assert page.count("meta", name="viewport") == 1
    assert_refers_nowhere(page.elements, "".join(text for text in page.texts if "{" in text))
    assert "prefers-color-scheme: dark" in used.out
    assert {"10.66.0.1 - 10.66.0.4: in use", "10.66.0.5 - 10.66.0.6: borrowed", "10.66.0.0: cooling down"} <= {
        *page.texts
    }
    shown = "".join(page.texts)
    for line in SPACE_EXPECTED.splitlines()[3:]:
        if line and line.strip()[0] not in "[|":
            assert " ".join(line.split()) in " ".join(shown.split())


def test_every_bar_of_a_page_is_described_in_words(used: ToolHarness) -> None:
    used.run_command("ipam", "map", "-o", "html")
    labels = [found["aria-label"] for tag, found in read_page(used.out).elements if tag == "svg" and "role" in found]
    assert "10.66.0.16/28 node-b: 9 in use, 2 reserved, 5 free" in labels
    assert len(labels) == len({*labels}) == 8


def test_a_picture_has_every_pool_and_row_and_refers_nowhere(used: ToolHarness) -> None:
    assert used.run_command("ipam", "map", "-o", "svg") == 0
    root = ET.fromstring(used.out)  # noqa: S314 - our own text
    assert (root.tag, root.attrib["role"]) == (f"{SVG}svg", "img")
    ids = {element.attrib["id"]: element.text for element in root if "id" in element.attrib}
    assert root.attrib["aria-labelledby"].split() == [*ids] == ["map-title", "map-description"]
    assert all(ids.values())
    elements = [(element.tag.removeprefix(SVG), dict(element.attrib)) for element in root.iter()]
    assert_refers_nowhere(elements, "".join(element.text or "" for element in root.iter(f"{SVG}style")))
    words = [element.text or "" for element in root.iter(f"{SVG}text")]
    for text in ("four 10.66.0.0/26", "10.66.0.16/28", "node-b: 9 in use, 2 reserved, 5 free", "borrowed", "unclaimed"):
        assert text in words
    titles = [element.text for element in root.iter(f"{SVG}title")]
    assert {"10.66.0.1 - 10.66.0.4: in use", "10.66.0.7 - 10.66.0.13: free"} <= {*titles}
    bottoms = [float(element.attrib["y"]) for element in root.iter(f"{SVG}text")]
    assert bottoms[-1] < float(root.attrib["height"])
    assert max(map(len, words)) <= 66


def test_the_bars_of_a_picture_fill_their_width(used: ToolHarness) -> None:
    used.run_command("ipam", "map", "four", "-o", "svg")
    root = ET.fromstring(used.out)  # noqa: S314 - our own text
    runs = [group.findall(f"{SVG}rect")[0] for group in root.iter(f"{SVG}g") if group.find(f"{SVG}title") is not None]
    ends = [(float(run.attrib["x"]), float(run.attrib["x"]) + float(run.attrib["width"])) for run in runs]
    for (_start, end), (following, _end) in pairwise([*ends, (16.0, 0.0)]):
        assert following == pytest.approx(16.0 if end > 463.999 else end)
    assert sum(start == 16.0 for start, _end in ends) == 4


@pytest.mark.parametrize("output", ["text", "svg", "html"])
def test_a_hostile_name_is_a_text_and_nothing_else(harness: ToolHarness, output: str) -> None:
    harness.run_command("create", "-f", harness.write_pools(("four", "10.66.0.0/26")))
    store(harness, block("10.66.0.0/26", 0, owner=f"host:{HOSTILE}", node=f"{HOSTILE}2"))
    assert harness.run_command("ipam", "map", "-o", output) == 0
    assert all(char.isprintable() or char == "\n" for char in harness.out)
    shown = r"""\x1b]0;<script src="http://x.example/..."""
    if output == "html":
        page = read_page(harness.out)
        assert_refers_nowhere(page.elements, "")
        assert any(shown in text for text in page.texts)
    elif output == "svg":
        root = ET.fromstring(harness.out)  # noqa: S314 - our own text
        assert any(element.tag == f"{SVG}text" and "<script" in (element.text or "") for element in root.iter())
        assert not any("script" in element.tag for element in root.iter())
    else:
        assert f"  10.66.0.0/26  {shown}: 1 borrowed" in harness.out
