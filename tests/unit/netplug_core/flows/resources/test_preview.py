"""What ``apply`` would do, without doing it."""

import pytest
from attrs import evolve

from netplug_core.flows.resources.outcome import KindNotWritable, ResourceMissing, ResourceOutdated
from netplug_core.flows.resources.write import Preview, preview
from netplug_core.records import Create, Malformed
from netplug_core.resources.codec import Manifest
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import ippool_key
from netplug_core.resources.kinds import Resource, key_of
from netplug_core.resources.validation import InvalidResource
from netplug_core.testing.faults import DamagedDatastore
from tests.harness.resources import ENDPOINT, NODE, ResourceHarness, make_pool


def previewed(harness: ResourceHarness, resource: Resource, revision: str = "") -> Preview:
    commits = harness.store.calls.commits
    found = preview(harness.store, Manifest(resource=resource, revision=revision), pace=harness.pace)
    assert harness.store.calls.commits == commits
    return found


@pytest.mark.parametrize("resource", [make_pool(), NODE], ids=["pool", "node"])
def test_a_new_resource_is_shown_as_it_was_written(harness: ResourceHarness, resource: Resource) -> None:
    expected = Preview(key=key_of(resource), before=None, after=resource)
    assert previewed(harness, resource) == expected


def test_a_change_is_shown_as_apply_would_store_it(harness: ResourceHarness) -> None:
    harness.create(make_pool())
    wanted = evolve(make_pool(is_disabled=True), metadata=Metadata(name="p", labels=(("tier", "gold"),)))
    found = previewed(harness, wanted)
    assert found.before == harness.stored().value
    harness.apply(wanted)
    assert found.after == harness.stored().value


def test_what_would_stay_as_it_is_is_shown_so(harness: ResourceHarness) -> None:
    harness.create(make_pool())
    found = previewed(harness, make_pool())
    assert found.before == found.after == harness.stored().value


def test_what_apply_would_refuse_is_refused(harness: ResourceHarness) -> None:
    harness.create(make_pool())
    with pytest.raises(InvalidResource, match="cannot be modified"):
        previewed(harness, make_pool("10.1.0.0/16"))
    with pytest.raises(InvalidResource, match="CIDR overlaps"):
        previewed(harness, make_pool(name="other"))
    with pytest.raises(ResourceOutdated):
        previewed(harness, make_pool(), revision="7")
    with pytest.raises(ResourceMissing):
        previewed(harness, NODE, revision="7")
    with pytest.raises(KindNotWritable):
        previewed(harness, ENDPOINT)


def test_a_damaged_record_would_be_replaced_whole(harness: ResourceHarness) -> None:
    harness.create(make_pool())
    damaged = DamagedDatastore(harness.store, damage={ippool_key("p"): b"7"})
    found = preview(damaged, Manifest(resource=make_pool()), pace=harness.pace)
    assert found == Preview(key=ippool_key("p"), before=None, after=make_pool(), is_damaged=True)
    with pytest.raises(Malformed):
        preview(damaged, Manifest(resource=make_pool("10.9.0.0/16", "other")), pace=harness.pace)


def test_a_node_beside_a_damaged_pool_is_shown(harness: ResourceHarness) -> None:
    harness.put(Create(key_of(NODE), NODE))
    damaged = DamagedDatastore(harness.store, damage={ippool_key("p"): b"7"})
    labelled = evolve(NODE, metadata=evolve(NODE.metadata, labels=(("rack", "b"),)))
    assert preview(damaged, Manifest(resource=labelled), pace=harness.pace).after == labelled
