"""The simulated clock."""

from netplug_core.simulation.simulator import SimulatedClock


def test_time_passes_only_by_sleeping() -> None:
    clock = SimulatedClock()
    began_ns = clock.now_ns()
    assert clock.now_ns() == began_ns
    clock.sleep(1.5)
    assert (clock.now_ns() - began_ns, clock.monotonic()) == (1_500_000_000, 1.5)
