"""Replacement of what is stored."""

import pytest

from netplug_core.flows.resources.outcome import (
    Effect,
    ResourceMissing,
    ResourceOutdated,
)
from netplug_core.resources.validation import InvalidResource
from tests.harness.resources import ResourceHarness, make_pool


def test_replace_changes_what_is_there_as_apply_does(bench: ResourceHarness) -> None:
    """S-40 of the catalogue."""
    bench.create(make_pool())
    first = bench.stored().revision
    assert bench.replace(make_pool(is_disabled=True)).effect is Effect.UPDATED
    assert bench.replace(make_pool(is_disabled=True)).effect is Effect.UNCHANGED
    with pytest.raises(ResourceOutdated, match=r"^update conflict: IPPool\(p\): resource version"):
        bench.replace(make_pool(), revision=first)
    assert bench.replace(make_pool(), revision=bench.stored().revision).effect is Effect.UPDATED
    with pytest.raises(InvalidResource, match="IPPool CIDR cannot be modified"):
        bench.replace(make_pool("10.9.0.0/16"))


def test_replace_creates_nothing(bench: ResourceHarness) -> None:
    """S-40 of the catalogue."""
    with pytest.raises(ResourceMissing, match=r"^resource does not exist: IPPool\(p\)$"):
        bench.replace(make_pool())
    assert bench.store.calls.commits == 0
