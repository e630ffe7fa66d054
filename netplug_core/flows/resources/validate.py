"""Checks a manifest without a datastore."""

from __future__ import annotations

from netplug_core.flows.resources.outcome import Effect, Outcome
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.kinds import key_of
from netplug_core.resources.manifest import Manifest
from netplug_core.resources.validation import pool_warnings, validate_resource

__all__ = ["validate"]


def validate(manifest: Manifest) -> Outcome:
    """Check a manifest against every rule that concerns the resource alone.

    Raises:
        InvalidResource: it breaks some rules; all of them are named.
    """
    resource = manifest.resource
    validate_resource(resource)
    warnings = pool_warnings(resource) if isinstance(resource, IPPool) else ()
    return Outcome(key=key_of(resource), effect=Effect.VALID, warnings=warnings)
