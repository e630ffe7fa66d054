"""What a person reads of a simulation: the answer in sentences, tables, and what the plot shows."""

import pytest
from attrs import evolve

from netplug_cli.ctl.simulation_report import make_plot, report_lines
from netplug_core.addressing import Prefix
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.node import Node
from netplug_core.simulation.scenario import PodLoad, Scenario
from netplug_core.simulation.simulator import (
    DatastoreCallCount,
    Distribution,
    PoolSample,
    RefusedAssignment,
    SimulationResult,
    StepSample,
)

CIDR = "10.0.0.0/24"
POOL = PoolSample(
    name="main",
    prefix=Prefix.parse(CIDR),
    in_use=64,
    cooling=4,
    reserved=2,
    available=190,
    borrowed=0,
    blocks=3,
    max_blocks=4,
    unaffined_blocks=1,
    blocks_per_node=Distribution(minimum=1, median=1, maximum=1),
)
SAMPLE = StepSample(
    at_s=60,
    running=60,
    waiting=0,
    pools=(POOL,),
    blocks_per_node=Distribution(minimum=0, median=1, maximum=2),
    started=60,
    ended=0,
    refusals=(),
    calls=DatastoreCallCount(reads=120, commits=60),
)
STUDY = Scenario(
    nodes=tuple(Node(metadata=Metadata(name=name)) for name in ("a", "b")),
    pools=(IPPool.for_prefix(Prefix.parse(CIDR), name="main"),),
    load=PodLoad(pods_per_node=30),
    steps=2,
)
REFUSAL = RefusedAssignment(
    at_s=95.2, node="b", identifier="pools-exhausted", text="No IPs available in pools: [10.0.0.0/24]"
)


def found(
    *samples: StepSample, refusal: RefusedAssignment | None = None, borrowed_s: float | None = None
) -> SimulationResult:
    return SimulationResult(samples=samples, usages=(), first_refusal=refusal, first_borrowed_s=borrowed_s)


def answer(result_of: SimulationResult, study: Scenario = STUDY) -> list[str]:
    """The sentences between the question and the tables."""
    lines = report_lines(study, result_of)
    return lines[2 : lines.index("At the end:") - 1]


def table(result_of: SimulationResult, title: str) -> list[list[str]]:
    """A table's cells; none of them is empty here and those with blanks are few."""
    lines = report_lines(STUDY, result_of)
    first = next(number for number, line in enumerate(lines) if line.startswith(title)) + 2
    rows = lines[first : lines.index("", first)]
    return [row.split("  ") for row in rows]


def cells(result_of: SimulationResult, title: str) -> list[dict[str, str]]:
    headers, *rows = ([cell.strip() for cell in row if cell.strip()] for row in table(result_of, title))
    return [dict(zip(headers, row, strict=True)) for row in rows]


# --- the question --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "workload, line",
    [
        (
            PodLoad(pods_per_node=30),
            "2 nodes x 30 pods = 60 pods, all there in the first step, placement spread; 2m of simulated time, seed 1.",
        ),
        (
            PodLoad(pods_per_node=30, arrivals_per_s=2 / 3, churn=0.025, lifetime_s=5_400),
            (
                "2 nodes x 30 pods = 60 pods, 0.667 more every second, placement spread, "
                "2.5% of them replaced every 1m, each replaced after 1h30m; 2m of simulated time, seed 1."
            ),
        ),
    ],
)
def test_the_question_is_repeated(workload: PodLoad, line: str) -> None:
    assert report_lines(evolve(STUDY, load=workload), found(SAMPLE))[0] == line


# --- the answer ----------------------------------------------------------------------------------------------------


def test_a_cluster_that_fits_holds() -> None:
    assert answer(found(SAMPLE)) == [
        "It holds: every pod got its addresses, 60 have them at the end.",
        "Nothing was borrowed: every node had blocks of its own for its pods.",
        "The datastore was read 120 times and written 60 times: 2 and 1 for each assignment or release.",
    ]


def test_pods_that_have_not_arrived_yet_are_said() -> None:
    assert answer(found(evolve(SAMPLE, running=50)))[0] == (
        "It holds: every pod got its addresses, 50 have them at the end; 10 more had not arrived yet."
    )


def test_pods_without_addresses_in_the_end_mean_that_it_does_not_hold() -> None:
    refused = evolve(SAMPLE, at_s=120, running=55, waiting=5, refusals=(("pools-exhausted", 7),))
    assert answer(found(SAMPLE, refused, refusal=REFUSAL))[:4] == [
        "It does not hold: 5 of 60 pods have no address at the end.",
        "Refused: pools-exhausted 7; first at 1m35s on b:",
        "  No IPs available in pools: [10.0.0.0/24]",
        "Nothing was borrowed.",
    ]


def test_pods_that_wait_for_a_while_mean_that_it_does_not_hold_all_the_time() -> None:
    first = evolve(SAMPLE, running=55, waiting=5, refusals=(("block-limit-reached", 2), ("pools-exhausted", 1)))
    assert answer(found(first, evolve(SAMPLE, at_s=120), refusal=REFUSAL))[:2] == [
        "It does not hold all the time: at 1m 5 pods had no address.",
        "Refused: block-limit-reached 2, pools-exhausted 1; first at 1m35s on b:",
    ]


def test_pods_that_wait_within_a_step_alone_are_said_too() -> None:
    refused = evolve(SAMPLE, refusals=(("pools-exhausted", 1),))
    assert answer(found(refused, refusal=REFUSAL))[0] == (
        "It hardly holds: pods were refused addresses, and got some within the same step."
    )


def test_borrowing_says_when_it_began_and_how_far_it_went() -> None:
    most = evolve(SAMPLE, at_s=120, pools=(evolve(POOL, borrowed=12),))
    last = evolve(SAMPLE, at_s=180, pools=(evolve(POOL, borrowed=6),))
    assert answer(found(SAMPLE, most, last, borrowed_s=64.9))[1] == (
        "Borrowing began at 1m5s; most was borrowed at 2m, 12 addresses (20% of those held), and 6 (10%) at the end."
    )


def test_a_pool_that_was_full_is_named_with_the_time() -> None:
    full = evolve(SAMPLE, at_s=120, pools=(evolve(POOL, available=0),))
    assert answer(found(SAMPLE, full, full))[2] == "Pool main had no address left to give by 2m."


def test_where_nothing_happened_nothing_is_divided() -> None:
    quiet = evolve(SAMPLE, running=0, started=0, calls=DatastoreCallCount())
    assert answer(found(quiet))[-1] == (
        "The datastore was read 0 times and written 0 times: 0 and 0 for each assignment or release."
    )


# --- tables --------------------------------------------------------------------------------------------------------


def test_the_table_of_pools() -> None:
    assert cells(found(SAMPLE), "At the end:") == [
        {
            "POOL": "main",
            "CIDR": CIDR,
            "IPS TOTAL": "256",
            "IPS IN USE": "64 (25%)",
            "IPS COOLING": "4",
            "IPS RESERVED": "2",
            "IPS FREE": "190",
            "BORROWED": "0",
            "BLOCKS": "3 of 4",
            "BLOCKS/NODE": "1",
        }
    ]


def test_the_table_of_steps() -> None:
    assert cells(found(SAMPLE), "Over time:") == [
        {
            "TIME": "1m",
            "PODS": "60",
            "WAITING": "0",
            "FILL": "25%",
            "BORROWED": "0%",
            "BLOCKS": "3",
            "BLOCKS/NODE": "0/1/2",
            "UNOWNED": "1",
            "STARTED": "60",
            "ENDED": "0",
            "REFUSED": "0",
            "READS": "120",
            "COMMITS": "60",
        }
    ]


def test_of_many_steps_some_are_shown_and_the_last_in_any_case() -> None:
    samples = [evolve(SAMPLE, at_s=60 * number) for number in range(1, 72)]
    shown = cells(found(*samples), "Over time, every 4 steps (-o csv has all of them):")
    assert [row["TIME"] for row in shown[:2]] == ["3m", "7m"]
    assert shown[-1]["TIME"] == "1h11m"
    assert len(shown) == 18


def test_several_pools_have_columns_of_their_own_and_large_numbers_are_short() -> None:
    six = evolve(POOL, name="six", prefix=Prefix.parse("fd00::/64"), available=2**64 - 64, max_blocks=2**58)
    result_of = found(evolve(SAMPLE, pools=(POOL, six)))
    assert [cells(result_of, "Over time:")[0][name] for name in ("FILL main", "FILL six")] == ["25%", "<0.01%"]
    row = cells(result_of, "At the end:")[1]
    assert (row["IPS TOTAL"], row["IPS FREE"], row["BLOCKS"]) == ("1.8447e+19", "1.8447e+19", "3 of 2.8823e+17")


# --- the plot ------------------------------------------------------------------------------------------------------


def test_the_plot_shows_utilization_borrowed_addresses_and_waiting_pods_if_there_are_any() -> None:
    borrowing = evolve(SAMPLE, at_s=120, pools=(evolve(POOL, borrowed=6),))
    plot = make_plot(STUDY, found(SAMPLE, borrowing, borrowed_s=70))
    assert plot.title == "2 nodes, 30 pods each"
    assert plot.times == (60, 120)
    assert [chart.title for chart in plot.charts] == [
        "Addresses in use, share of the pool",
        "Borrowed, share of the addresses held",
    ]
    assert [(line.name, line.values) for line in plot.charts[0].series] == [("main", (0.25, 0.25))]
    assert plot.charts[1].series[0].values == (0.0, 0.1)
    assert plot.charts[1].maximum == 0.1
    assert plot.markers == ((70.0, "first borrowed: 1m10s"),)
    waiting = evolve(borrowing, waiting=12)
    plot = make_plot(STUDY, found(SAMPLE, waiting, refusal=REFUSAL))
    assert plot.charts[2].title == "Pods without an address, share of all"
    assert plot.charts[2].series[0].values == (0.0, 0.2)
    assert plot.markers == ((95.2, "first refusal: 1m35s"),)


def test_the_plot_is_drawn_under_the_tables() -> None:
    lines = report_lines(STUDY, found(SAMPLE))
    first = lines.index("Addresses in use, share of the pool: main")
    assert lines[first + 1].startswith("100% |")
    assert lines[-1] == "Borrowed, share of the addresses held: 0 all the time"
