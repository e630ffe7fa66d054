"""A list of what there is now."""

from netplug_cli.node.stores import CurrentValues


def test_values_are_there_as_long_as_their_context_lasts() -> None:
    tracked: CurrentValues[str] = CurrentValues()
    tracked.add("stays")
    with tracked.including("first"):
        with tracked.including("second") as second:
            assert (second, tracked.all()) == ("second", ("stays", "first", "second"))
        assert tracked.all() == ("stays", "first")
    assert tracked.all() == ("stays",)


def test_of_equal_values_the_one_that_ended_goes() -> None:
    tracked: CurrentValues[list[str]] = CurrentValues()
    first: list[str] = []
    second: list[str] = []
    with tracked.including(first):
        with tracked.including(second):
            assert len(tracked.all()) == 2
        assert tracked.all()[0] is first
