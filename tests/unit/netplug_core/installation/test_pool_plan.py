"""Which pools are created, changed, deleted and left, and why."""

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.installation.pools import PoolAPI, PoolStep, plan_pools, pools_afterwards
from netplug_core.installation.settings import ClusterFacts
from netplug_core.names import MANAGED_BY
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import AllowedUse, Encapsulation, IPPool, IPPoolSpec
from tests.harness.installations import network, resolved

WANTED = network(ipPools=[{"cidr": "10.1.2.3/16", "encapsulation": "VXLAN"}])
NONE = network(ipPools=[])


def pool(cidr: str = "10.1.0.0/16", *, name: str = "a", is_ours: bool = True, **spec: object) -> IPPool:
    """A pool of the cluster; without ``spec`` as ``WANTED`` asks for it."""
    usual = IPPoolSpec(prefix=Prefix.parse(cidr), vxlan_mode=Encapsulation.ALWAYS, has_outgoing_nat=True)
    metadata = Metadata(name=name, labels=((MANAGED_BY,) if is_ours else ()), uid="1")
    return IPPool(metadata=metadata, spec=evolve(usual, **spec))  # type: ignore[arg-type]


def plan(spec: dict[str, object], *pools: IPPool, api: PoolAPI = PoolAPI.AVAILABLE) -> tuple[PoolStep, ...]:
    return plan_pools(resolved(spec, pools=pools), ClusterFacts(pools=pools), api)


def said(*steps: PoolStep) -> list[tuple[str, str, str]]:
    return [(step.action.value, step.pool.metadata.name, step.reason) for step in steps]


def after(spec: dict[str, object], *pools: IPPool) -> tuple[IPPool, ...]:
    return pools_afterwards(ClusterFacts(pools=pools), plan(spec, *pools))


@pytest.mark.parametrize("api", PoolAPI)
def test_on_an_empty_cluster_pools_are_created_at_once(api: PoolAPI) -> None:
    (step,) = plan(WANTED, api=api)
    assert said(step) == [("create", "default-ipv4-ippool", "the cluster has no pool")]
    assert step.pool.metadata.labels == (MANAGED_BY,)
    assert after(WANTED) == (step.pool,)


def test_beside_other_pools_the_api_has_to_be_there() -> None:
    other = pool("10.9.0.0/16", name="z", is_ours=False)
    assert said(*plan(WANTED, other)) == [
        ("create", "default-ipv4-ippool", "no pool has this CIDR"),
        ("leave", "z", "it is not the operator's"),
    ]
    assert said(plan(WANTED, other, api=PoolAPI.MISSING)[0]) == [
        ("ResourceNotReady", "default-ipv4-ippool", "the API that validates pools is not there yet")
    ]
    assert len(after(WANTED, other)) == 2


def test_check_36_what_is_as_wanted_is_left() -> None:
    """Host bits of the document's CIDR, the order of uses and fields of a newer release make no difference."""
    ours = pool(allowed_uses=(AllowedUse.TUNNEL, AllowedUse.WORKLOAD), unknown_json='{"x":1}')
    assert said(*plan(WANTED, ours)) == [("leave", "a", "it is as the Installation wants it")]
    assert after(WANTED, ours) == (ours,)


def test_an_equal_pool_without_the_label_gets_it_once() -> None:
    (step,) = plan(WANTED, pool(is_ours=False))
    assert said(step) == [("update", "a", "it equals the wanted pool, and gets the label of the operator")]
    assert step.pool == pool()
    assert said(*plan(WANTED, step.pool)) == [("leave", "a", "it is as the Installation wants it")]


def test_a_pool_of_ours_is_changed_and_keeps_what_others_set() -> None:
    ours = pool(node_selector="has(a)", unknown_json='{"x":1}', allowed_uses=(AllowedUse.WORKLOAD,))
    ours = evolve(ours, metadata=evolve(ours.metadata, labels=(MANAGED_BY, ("team", "a"))))
    (step,) = plan(WANTED, ours)
    assert said(step) == [("update", "a", "it differs")]
    assert step.pool.spec == evolve(pool().spec, unknown_json='{"x":1}')
    assert step.pool.metadata == ours.metadata
    assert after(WANTED, ours) == (step.pool,)


def test_check_37_a_pool_of_others_is_never_touched() -> None:
    (step,) = plan(WANTED, pool(is_ours=False, block_length=28))
    assert said(step) == [(
        "ResourceValidationError",
        "a",
        "it is not the operator's and differs; label it app.kubernetes.io/managed-by=netplug-operator to hand it over",
    )]  # fmt: skip
    assert step.pool.spec.block_length == 28


def test_what_cannot_be_changed_is_refused() -> None:
    (step,) = plan(WANTED, pool(block_length=28))
    assert step.action.value == "ResourceValidationError"
    assert "BlockSize cannot be modified; it is 28" in step.reason
    named = network(ipPools=[{"cidr": "10.1.0.0/16", "name": "b", "encapsulation": "VXLAN"}])
    assert said(*plan(named, pool())) == [
        ("ResourceValidationError", "a", "the pool a has this CIDR, and the name of a pool cannot be changed")
    ]


def test_a_pool_of_ours_that_is_gone_from_the_list_is_deleted() -> None:
    assert said(*plan(NONE, pool())) == [("delete", "a", "it is gone from the Installation")]
    assert after(NONE, pool()) == ()
    assert said(*plan(NONE, pool(is_ours=False))) == [("leave", "a", "it is not the operator's")]
    assert said(*plan(NONE, pool(), api=PoolAPI.MISSING)) == [  # check 39
        ("ResourceNotReady", "a", "it is gone from the Installation; the API that deletes pools is not there")
    ]


def test_without_a_list_no_pool_is_deleted() -> None:
    assert said(*plan({}, pool())) == [("leave", "a", "the Installation lists no pools")]


def test_another_cidr_under_the_same_name_comes_after_the_former_one() -> None:
    moved = network(ipPools=[{"cidr": "10.2.0.0/16", "name": "a", "encapsulation": "VXLAN"}])
    assert said(*plan(moved, pool())) == [
        ("ResourceNotReady", "a", "its name is that of the pool with the CIDR 10.1.0.0/16 until it is deleted"),
        ("delete", "a", "it is gone from the Installation"),
    ]
    assert said(plan(moved, pool(is_ours=False))[0]) == [
        (
            "ResourceValidationError",
            "a",
            "its name is that of a pool with the CIDR 10.1.0.0/16, which is not the operator's",
        )
    ]
