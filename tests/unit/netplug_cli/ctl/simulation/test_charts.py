"""Shares over time in plain characters."""

import pytest

from netplug_cli.ctl.simulation_report import Chart, ChartSeries, Plot, axis_maximum, format_axis_percent, render_text


def drawn(*values: float, ceiling: float = 1.0, name: str = "", step_s: int = 60) -> list[str]:
    times = tuple(step_s * number for number in range(1, len(values) + 1))
    chart = Chart(title="Fill", series=(ChartSeries(values=values, name=name),), maximum=ceiling)
    return render_text(Plot(title="", times=times, charts=(chart,)))


def columns_of(lines: list[str]) -> list[str]:
    """The picture column by column, from the bottom up."""
    rows = [line.partition("|")[2] for line in lines if "|" in line]
    width = next(len(line.partition("+")[2]) for line in lines if "+-" in line)
    return ["".join(row.ljust(width)[column] for row in reversed(rows)).rstrip() for column in range(width)]


def test_a_picture_has_a_title_an_axis_of_shares_and_an_axis_of_time() -> None:
    stairs = [f"{'######' * step:>54}" for step in range(1, 9)]
    labels = ["100% |", "     |", "     |", "     |", " 50% |", "     |", "     |", "     |"]
    assert drawn(*[n / 8 for n in range(9)]) == [
        "Fill",
        *(label + stair for label, stair in zip(labels, stairs, strict=True)),
        "  0% +------------------------------------------------------",
        "      0s                                                  9m",
    ]


@pytest.mark.parametrize("count", [1, 7, 60])
def test_few_values_share_the_width_evenly(count: int) -> None:
    (height,) = set(columns_of(drawn(*[0.5] * count)))
    assert height == "####"
    assert len(columns_of(drawn(*[0.5] * count))) == 60 // count * count


def test_of_many_values_the_highest_of_a_column_is_shown() -> None:
    values = [0.0] * 1000
    values[500] = 1.0
    shown = columns_of(drawn(*values))
    assert len(shown) == 60
    assert shown.count("########") == 1
    assert shown.count("") == 59


def test_what_is_more_than_nothing_shows_something() -> None:
    assert set(columns_of(drawn(0.02, 0.02))) == {"."}


def test_an_axis_may_end_below_the_whole() -> None:
    lines = drawn(0.01, 0.02, ceiling=0.02)
    assert lines[1].startswith("2% |")
    assert lines[5].startswith("1% |")
    assert columns_of(lines)[-1] == "########"


@pytest.mark.parametrize(
    "values, line", [((0.0, 0.0), "Fill: main: 0 all the time"), ((0.0, 0.009), "Fill: main: below 1% all the time")]
)
def test_a_picture_of_hardly_anything_is_a_line(values: tuple[float, ...], line: str) -> None:
    assert drawn(*values, name="main") == [line]


def test_every_line_of_every_chart_has_a_picture_of_its_own() -> None:
    charts = (
        Chart(title="Fill", series=(ChartSeries(values=(0.5,), name="a"), ChartSeries(values=(0.1,), name="b"))),
        Chart(title="Borrowed", series=(ChartSeries(values=(0.1,)),), maximum=0.1),
    )
    lines = render_text(Plot(title="", times=(60,), charts=charts))
    assert [line for line in lines if line and not line.startswith(" ") and "|" not in line and "+" not in line] == [
        "Fill: a",
        "Fill: b",
        "Borrowed",
    ]
    assert lines.count("") == 2


@pytest.mark.parametrize(
    "highest, ceiling", [(0, 0.01), (0.01, 0.01), (0.011, 0.02), (0.3, 0.5), (0.51, 1), (1, 1), (1.5, 1)]
)
def test_an_axis_ends_at_the_next_round_share(highest: float, ceiling: float) -> None:
    assert axis_maximum([0.0, highest]) == ceiling


@pytest.mark.parametrize("share, label", [(0, "0%"), (0.005, "0.5%"), (0.07, "7%"), (1, "100%")])
def test_a_label_has_no_digits_that_mean_nothing(share: float, label: str) -> None:
    assert format_axis_percent(share) == label
