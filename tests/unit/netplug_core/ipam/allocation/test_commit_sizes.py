"""Bulk changes in commits of a bounded size."""

import pytest

from netplug_core.ipam.allocation.context import batches


@pytest.mark.parametrize(
    "count, sizes", [(0, []), (1, [1]), (3, [3]), (4, [3, 1]), (6, [3, 3])], ids=["none", "one", "full", "rest", "two"]
)
def test_batches_are_full_but_for_the_last(count: int, sizes: list[int]) -> None:
    items = range(10, 10 + count)
    found = [list(batch) for batch in batches(items, 3)]
    assert [len(batch) for batch in found] == sizes
    assert [item for batch in found for item in batch] == list(items)
