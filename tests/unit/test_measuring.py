"""What keeps the measured coverage from depending on which test a worker runs first."""

from netplug_core.addressing import Prefix
from netplug_core.ipam.model import block_query
from tests.conftest import forget_results


def test_what_an_unmeasured_test_has_computed_is_computed_again() -> None:
    block_query(Prefix.parse("10.0.0.0/26"))
    assert block_query.cache_info().currsize > 0
    forget_results()
    assert block_query.cache_info().currsize == 0
