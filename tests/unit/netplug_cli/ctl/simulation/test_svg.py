"""The same as a picture: XML that can be parsed, with every word and every value at its place."""

from xml.etree import ElementTree as ET

import pytest

from netplug_cli.ctl.simulation_report import Chart, ChartSeries, Plot, render_svg

NAMESPACE = "{http://www.w3.org/2000/svg}"


def plot(*names: str, end_s: int = 600, marks: tuple[tuple[float, str], ...] = ()) -> Plot:
    lines = tuple(ChartSeries(values=(0.25, 0.5), name=name) for name in names)
    charts = (
        Chart(title="Fill", series=lines),
        Chart(title="Borrowed", series=(ChartSeries(values=(0.01, 0.02)),), maximum=0.02),
    )
    return Plot(title="2 nodes", times=(end_s // 2, end_s), charts=charts, markers=marks)


def parsed(made: Plot) -> ET.Element:
    return ET.fromstring(render_svg(made))  # noqa: S314 - our own text


def words(root: ET.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{NAMESPACE}text")]


def paths(root: ET.Element, stroke: str) -> list[str]:
    return [path.attrib["d"] for path in root.iter(f"{NAMESPACE}path") if path.attrib["stroke"] == stroke]


def test_it_is_an_image_with_a_title() -> None:
    root = parsed(plot("main"))
    assert root.tag == f"{NAMESPACE}svg"
    assert root.attrib["role"] == "img"
    assert [element.text for element in root.iter(f"{NAMESPACE}title")] == ["2 nodes"]


def test_axes_titles_and_names_can_be_read() -> None:
    found = words(parsed(plot("main")))
    assert found[:3] == ["2 nodes", "Fill", "Borrowed"]
    assert [word for word in found if word.endswith("%")] == [
        "0%", "25%", "50%", "75%", "100%", "0%", "0.5%", "1%", "1.5%", "2%",
    ]  # fmt: skip
    assert [word for word in found if word in ("0s", "2m", "4m", "10m")] == ["0s", "2m", "4m", "10m"] * 2
    assert found.count("main") == 1


def test_a_line_begins_at_nothing_and_has_a_point_for_each_time() -> None:
    first, _legend, second = paths(parsed(plot("main")), "#0072b2")
    xs, ys = zip(*(map(float, point.split()) for point in first[1:].split("L")), strict=True)
    assert xs == (70, 405, 740)
    assert [round((ys[0] - y) / 200, 2) for y in ys] == [0, 0.25, 0.5]
    ys = tuple(float(point.split()[1]) for point in second[1:].split("L"))
    assert [round((ys[0] - y) / 200, 2) for y in ys] == [0, 0.5, 1]


def test_lines_have_colours_of_their_own() -> None:
    root = parsed(plot("a", "b", "c"))
    for colour in ("#0072b2", "#d55e00", "#009e73"):
        assert paths(root, colour)


def test_more_lines_than_colours_are_drawn_all_the_same() -> None:
    assert len(paths(parsed(plot(*"abcdefgh")), "#d55e00")) == 4


def test_marks_go_through_every_panel_and_say_what_they_are() -> None:
    root = parsed(plot("main", marks=((60, "first borrowed: 1m"), (590, "first refusal: 9m50s"))))
    dashed = [path.attrib["d"] for path in root.iter(f"{NAMESPACE}path") if "stroke-dasharray" in path.attrib]
    assert [path.partition(" ")[0] for path in dashed] == ["M137.0", "M137.0", "M728.8", "M728.8"]
    anchors = {element.text: element.attrib["text-anchor"] for element in root.iter(f"{NAMESPACE}text")}
    assert (anchors["first borrowed: 1m"], anchors["first refusal: 9m50s"]) == ("start", "end")


def test_names_are_cut_and_cannot_break_the_file() -> None:
    found = words(parsed(plot("<&>", "a-name-that-is-longer-than-the-margin-is-wide")))
    assert "<&>" in found
    assert "a-name-that-is-longer-..." in found


@pytest.mark.parametrize("end_s", [1, 59, 3_600, 86_400, 10_000_000, 9_999_999_999])
def test_there_are_never_too_many_times_on_an_axis(end_s: int) -> None:
    found = words(
        parsed(Plot(title="t", times=(end_s,), charts=(Chart(title="c", series=(ChartSeries(values=(0.5,)),)),)))
    )
    assert 2 <= len([word for word in found if word[-1] in "smhd"]) <= 9
