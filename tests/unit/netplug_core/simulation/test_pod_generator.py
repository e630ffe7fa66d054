"""Pods that come and go: where they are placed, which of them end, and chance that is the same in every run."""

from collections import Counter

import pytest

from netplug_core.simulation.scenario import Placement, PodGenerator, PodLoad, SeededRandom, SimulatedPod

NODES = ("a", "b", "c")


def make_generator(workload: PodLoad, seed: str = "1") -> PodGenerator:
    return PodGenerator(NODES, workload, SeededRandom(seed))


def arrive(pods: PodGenerator, count: int, at_s: float = 0) -> list[SimulatedPod]:
    """So many pods that get their addresses at once."""
    placed = [pods.schedule() for _ in range(count)]
    for pod in placed:
        pods.mark_running(pod, at_s)
    return placed


# --- chance --------------------------------------------------------------------------------------------------------


def test_the_numbers_of_a_seed_never_change() -> None:
    """Known answers: another release must not answer another study under an old seed."""
    chance = SeededRandom("1 pods")
    assert [round(chance(), 6) for _ in range(9)] == [
        0.540962, 0.565867, 0.166513, 0.603477, 0.927305, 0.683292, 0.568932, 0.792537, 0.872543,
    ]  # fmt: skip


def test_numbers_lie_between_0_and_1_and_spread() -> None:
    chance = SeededRandom("any")
    drawn = [chance() for _ in range(4000)]
    assert all(0 <= number < 1 for number in drawn)
    tenths = Counter(int(number * 10) for number in drawn)
    assert all(300 < tenths[tenth] < 500 for tenth in range(10))


def test_a_number_below_another_reaches_all_of_them() -> None:
    chance = SeededRandom("any")
    assert {chance.below(3) for _ in range(50)} == {0, 1, 2}


# --- placement -----------------------------------------------------------------------------------------------------


def test_spread_gives_every_node_its_next_pod_before_any_has_two_more() -> None:
    pods = make_generator(PodLoad(pods_per_node=4))
    placed: list[SimulatedPod] = []
    for level in range(1, 5):
        placed.extend(arrive(pods, 3))
        assert Counter(pod.node for pod in placed) == dict.fromkeys(NODES, level)


def test_pack_fills_one_node_after_the_other() -> None:
    pods = make_generator(PodLoad(pods_per_node=2, placement=Placement.PACK))
    assert [pod.node for pod in arrive(pods, 6)] == ["a", "a", "b", "b", "c", "c"]


def test_random_places_differ_with_the_seed_and_only_with_it() -> None:
    work = PodLoad(pods_per_node=4, max_per_node=8, placement=Placement.RANDOM)
    orders = [[pod.node for pod in arrive(make_generator(work, seed), 12)] for seed in ("1", "1", "2")]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert set(Counter(orders[0]).values()) != {4}, "and some nodes get more than others"


def test_no_node_gets_more_pods_than_it_has_places() -> None:
    pods = make_generator(PodLoad(pods_per_node=3, placement=Placement.RANDOM))
    assert Counter(pod.node for pod in arrive(pods, 9)) == dict.fromkeys(NODES, 3)


def test_every_pod_has_a_handle_of_its_own() -> None:
    pods = make_generator(PodLoad(pods_per_node=1))
    (first,) = arrive(pods, 1)
    pods.terminate(first)
    assert pods.schedule().handle != first.handle


# --- arriving ------------------------------------------------------------------------------------------------------


def test_without_a_rate_all_pods_are_missing_at_once() -> None:
    pods = make_generator(PodLoad(pods_per_node=4))
    assert pods.arrivals_due(0) == 12
    arrive(pods, 5)
    assert pods.arrivals_due(0) == 7


def test_with_a_rate_they_come_in_time_and_not_more_than_all() -> None:
    pods = make_generator(PodLoad(pods_per_node=4, arrivals_per_s=0.1))
    assert [pods.arrivals_due(at_s) for at_s in (5, 10, 30, 119, 120, 10_000)] == [0, 1, 3, 11, 12, 12]


def test_a_pod_that_waits_has_arrived() -> None:
    pods = make_generator(PodLoad(pods_per_node=1))
    pods.schedule()
    assert (pods.arrivals_due(0), pods.running, pods.waiting) == (2, 0, 1)


# --- ending --------------------------------------------------------------------------------------------------------


def test_churn_ends_its_share_of_the_pods_that_run_each_once() -> None:
    pods = make_generator(PodLoad(pods_per_node=10, churn=0.2))
    arrive(pods, 30)
    ending = pods.due_for_replacement(60)
    assert len(ending) == len(set(ending)) == 6
    for pod in ending:
        pods.terminate(pod)
    assert (pods.running, pods.arrivals_due(60)) == (24, 6)


def test_what_is_less_than_a_pod_is_not_forgotten() -> None:
    pods = make_generator(PodLoad(pods_per_node=5, churn=0.1))
    arrive(pods, 15)
    assert [len(pods.due_for_replacement(0)) for _ in range(4)] == [1, 2, 1, 2]


def test_a_churn_of_everything_ends_every_pod() -> None:
    pods = make_generator(PodLoad(pods_per_node=5, churn=1))
    everybody = arrive(pods, 15)
    assert set(pods.due_for_replacement(0)) == set(everybody)


def test_a_pod_ends_when_its_time_is_over() -> None:
    pods = make_generator(PodLoad(pods_per_node=5, lifetime_s=100))
    early, late = arrive(pods, 2, at_s=10), arrive(pods, 1, at_s=50)
    assert pods.due_for_replacement(109) == ()
    assert pods.due_for_replacement(110) == tuple(early)
    assert pods.due_for_replacement(150) == tuple(late)


def test_a_pod_that_is_gone_does_not_end_again() -> None:
    pods = make_generator(PodLoad(pods_per_node=5, lifetime_s=100))
    first, second = arrive(pods, 2)
    pods.terminate(first)
    assert pods.due_for_replacement(100) == (second,)


def test_a_pod_whose_time_is_over_may_be_drawn_too_and_ends_once() -> None:
    pods = make_generator(PodLoad(pods_per_node=1, churn=1, lifetime_s=60))
    everybody = arrive(pods, 3)
    assert sorted(pod.serial for pod in pods.due_for_replacement(60)) == [pod.serial for pod in everybody]


@pytest.mark.parametrize("placement", [Placement.SPREAD, Placement.PACK])
def test_the_place_of_a_pod_that_ended_is_the_next_to_be_taken(placement: Placement) -> None:
    pods = make_generator(PodLoad(pods_per_node=4, placement=placement))
    placed = arrive(pods, 9)
    pods.terminate(placed[0])
    assert pods.schedule().node == placed[0].node
