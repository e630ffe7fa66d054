"""Checks manifests without a datastore."""

from __future__ import annotations

from collections.abc import Iterable

from netplug_core.flows.resources.outcome import Effect, Outcome
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.kinds import key_of
from netplug_core.resources.manifest import Manifest
from netplug_core.resources.validation import resource_warnings, validate_pool_overlaps, validate_resource

__all__ = ["validate"]


def validate(manifest: Manifest, earlier: Iterable[Manifest] = ()) -> Outcome:
    """Check a manifest against every rule that concerns the resource alone, and pools against the ``earlier`` ones.

    Raises:
        InvalidResource: it breaks some rules; all of them are named.
    """
    resource = manifest.resource
    validate_resource(resource)
    if isinstance(resource, IPPool):
        validate_pool_overlaps(resource, (one.resource for one in earlier if isinstance(one.resource, IPPool)))
    return Outcome(key=key_of(resource), effect=Effect.VALID, warnings=resource_warnings(resource))
