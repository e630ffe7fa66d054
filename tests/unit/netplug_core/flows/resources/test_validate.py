"""Rules that need no datastore."""

import pytest

from netplug_core.addressing import PrefixIndex
from netplug_core.flows.resources.outcome import Effect
from netplug_core.flows.resources.write import validate
from netplug_core.resources.codec import Manifest
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.node import Node
from netplug_core.resources.validation import InvalidResource
from tests.harness.resources import make_pool


def test_a_manifest_is_judged_without_a_store() -> None:
    """S-49 of the catalogue."""
    outcome = validate(Manifest(resource=make_pool(block_length=22)))
    assert (outcome.effect, len(outcome.warnings)) == (Effect.VALID, 1)
    assert validate(Manifest(resource=Node(metadata=Metadata(name="n")))).warnings == ()
    with pytest.raises(InvalidResource):
        validate(Manifest(resource=make_pool(node_selector="(")))


def test_pools_of_one_run_are_judged_beside_each_other() -> None:
    earlier = PrefixIndex[IPPool]()
    assert validate(Manifest(resource=make_pool()), earlier).effect is Effect.VALID
    assert validate(Manifest(resource=Node(metadata=Metadata(name="n"))), earlier).effect is Effect.VALID
    with pytest.raises(InvalidResource, match=r"IPPool\(other\) CIDR overlaps with IPPool\(p\) CIDR"):
        validate(Manifest(resource=make_pool("10.0.4.0/22", "other")), earlier)
