"""Checks manifests without a datastore."""

from __future__ import annotations

from netplug_core.addressing import PrefixIndex
from netplug_core.flows.resources.outcome import Effect, Outcome
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.kinds import key_of
from netplug_core.resources.manifest import Manifest
from netplug_core.resources.validation import resource_warnings, validate_pool_overlaps, validate_resource

__all__ = ["validate"]


def validate(manifest: Manifest, earlier: PrefixIndex[IPPool] | None = None) -> Outcome:
    """Check a manifest against every rule that concerns the resource alone, and a pool against the ``earlier`` ones.

    The pool is one of them for the next call.

    Raises:
        InvalidResource: it breaks some rules; all of them are named.
    """
    resource, others = manifest.resource, list[IPPool]()
    if isinstance(resource, IPPool) and earlier is not None:
        others = earlier.overlapping(resource.spec.prefix)
        earlier.add(resource.spec.prefix, resource)
    validate_resource(resource)
    if isinstance(resource, IPPool):
        validate_pool_overlaps(resource, others)
    return Outcome(key=key_of(resource), effect=Effect.VALID, warnings=resource_warnings(resource))
