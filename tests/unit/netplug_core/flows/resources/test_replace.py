"""Replacement of what is stored."""

import pytest

from netplug_core.flows.resources.outcome import (
    Effect,
    ResourceMissing,
    ResourceOutdated,
)
from netplug_core.resources.validation import InvalidResource
from tests.harness.resources import ResourceHarness, make_pool


def test_replace_changes_what_is_there_as_apply_does(harness: ResourceHarness) -> None:
    """S-40 of the catalogue."""
    harness.create(make_pool())
    first = harness.stored().revision
    assert harness.replace(make_pool(is_disabled=True)).effect is Effect.UPDATED
    assert harness.replace(make_pool(is_disabled=True)).effect is Effect.UNCHANGED
    with pytest.raises(ResourceOutdated, match=r"^update conflict: IPPool\(p\): resource version"):
        harness.replace(make_pool(), revision=first)
    assert harness.replace(make_pool(), revision=harness.stored().revision).effect is Effect.UPDATED
    with pytest.raises(InvalidResource, match="IPPool CIDR cannot be modified"):
        harness.replace(make_pool("10.9.0.0/16"))


def test_replace_creates_nothing(harness: ResourceHarness) -> None:
    """S-40 of the catalogue."""
    with pytest.raises(ResourceMissing, match=r"^resource does not exist: IPPool\(p\)$"):
        harness.replace(make_pool())
    assert harness.store.calls.commits == 0
