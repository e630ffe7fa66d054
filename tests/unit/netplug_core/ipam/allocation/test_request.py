"""What a request refuses: arguments of a wrong type or value are named, for every caller."""

from typing import Any

import pytest

from netplug_core.addressing import Address, Family
from netplug_core.errors import InvalidArgument
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, Specific

ONE = Automatic(family=Family.IPV4)


@pytest.mark.parametrize("arguments, message", [
    ({"family": 4}, "Automatic.family: 4 is not accepted; Family.IPV4 or Family.IPV6 is expected"),
    ({"family": "IPv4"}, "Automatic.family: 'IPv4' is not accepted; Family.IPV4 or Family.IPV6 is expected"),
    ({"count": 0}, "Automatic.count: 0 is not accepted; a whole number of at least 1 is expected"),
    ({"count": -1}, "Automatic.count: -1 is not accepted; a whole number of at least 1 is expected"),
    ({"pools": "main"}, "Automatic.pools: 'main' is not accepted; a tuple of pools' names or prefixes is expected"),
    ({"pools": (1,)}, "Automatic.pools: (1,) is not accepted; a tuple of pools' names or prefixes is expected"),
])  # fmt: skip
def test_a_number_of_addresses_is_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        Automatic(**{"family": Family.IPV4, **arguments})
    assert str(refusal.value) == message


@pytest.mark.parametrize("arguments, argument", [
    ({"address": "10.0.0.1"}, "Specific.address"),
    ({"address": Address.parse("10.0.0.1"), "pools": ["main"]}, "Specific.pools"),
])  # fmt: skip
def test_one_address_is_checked(arguments: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{argument}: "):
        Specific(**arguments)


@pytest.mark.parametrize("arguments, message", [
    ({"use": "Workload"}, "AssignRequest.use: 'Workload' is not accepted; one of AllowedUse.WORKLOAD, "),
    ({"wanted": [ONE]}, "AssignRequest.wanted: "),
    ({"wanted": (4,)}, "AssignRequest.wanted: (4,) is not accepted; a tuple of Automatic and Specific is expected"),
    ({"node": None}, "AssignRequest.node: None is not accepted; the name of a node is expected"),
    ({"shortfall": "return"}, "AssignRequest.shortfall: 'return' is not accepted; Shortfall.REFUSE or "),
])  # fmt: skip
def test_a_request_is_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        AssignRequest(**{"handle": "h", "node": "n", "wanted": (ONE,), **arguments})
    assert str(refusal.value).startswith(message)
