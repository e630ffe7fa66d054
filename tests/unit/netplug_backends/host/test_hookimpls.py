"""The machine's time, chance and identifiers, through the host hook."""

import pytest

from netplug_backends.host import hookimpls


def test_the_host_has_a_clock_chance_and_identifiers() -> None:
    opened = hookimpls.netplug_open_host("host")
    assert opened is not None
    with opened as services:
        assert services.clock.now_ns() > 1_700_000_000_000_000_000
        assert 0 <= services.chance() < 1
        assert len({services.new_uid(), services.new_uid()}) == 2


@pytest.mark.parametrize("name", ["", "linux", "localhost"])
def test_another_name_is_not_its_own(name: str) -> None:
    assert hookimpls.netplug_open_host(name) is None
