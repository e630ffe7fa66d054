"""What a pool says of itself."""

from typing import Any, cast

import pytest

from netplug_core.addressing import Prefix
from netplug_core.errors import InvalidArgument
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPool, IPPoolSpec, IPPoolStatus, PoolCondition


def pool(*conditions: PoolCondition) -> IPPool:
    spec = IPPoolSpec(prefix=Prefix.parse("10.0.0.0/16"), block_length=26)
    return IPPool(metadata=Metadata(name="p"), spec=spec, status=IPPoolStatus(conditions=conditions))


@pytest.mark.parametrize("type_, status", [("Allocatable", "True"), ("Allocatable", "Unknown"), ("Ready", "False")])
def test_only_an_explicit_false_of_allocatable_refuses(type_: str, status: str) -> None:
    assert pool(PoolCondition(type=type_, status=status)).not_allocatable_condition is None
    assert pool().not_allocatable_condition is None


def test_the_refusing_condition_is_named() -> None:
    refusing = PoolCondition(type="Allocatable", status="False", reason="CIDROverlap")
    assert pool(PoolCondition(type="Ready", status="False"), refusing).not_allocatable_condition is refusing


@pytest.mark.parametrize("cidr, block_length", [
    ("10.0.0.0/16", 26), ("10.0.0.0/26", 26), ("10.0.0.0/27", 27), ("10.0.0.7/32", 32), ("fd00::/48", 122),
    ("fd00::/126", 126),
])  # fmt: skip
def test_a_pool_over_a_prefix_has_the_defaults_of_its_family(cidr: str, block_length: int) -> None:
    made = IPPool.for_prefix(Prefix.parse(cidr), name="p")
    assert str(made.key) == "IPPool(p)"
    assert made.spec == IPPoolSpec(prefix=Prefix.parse(cidr), block_length=block_length)


@pytest.mark.parametrize("prefix", ["10.0.0.0/24", None, 24])
def test_a_pool_is_made_of_a_prefix_alone(prefix: object) -> None:
    with pytest.raises(InvalidArgument, match=r"^IPPool\.for_prefix: .* is not accepted; a Prefix is expected; "):
        IPPool.for_prefix(cast("Prefix", prefix), name="p")


def test_a_spec_has_a_prefix_and_a_number() -> None:
    text: Any = "10.0.0.0/24"
    with pytest.raises(
        InvalidArgument, match=r"^IPPoolSpec\.prefix: '10\.0\.0\.0/24' is not accepted; a Prefix is expected"
    ):
        IPPoolSpec(prefix=text, block_length=26)
    with pytest.raises(
        InvalidArgument, match=r"^IPPoolSpec\.block_length: '10\.0\.0\.0/24' is not accepted; a whole number"
    ):
        IPPoolSpec(prefix=Prefix.parse("10.0.0.0/24"), block_length=text)
