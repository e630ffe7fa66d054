"""The pure core of netplug: values, rules and flows, against abstract datastores and dataplanes.

What a user of the library needs is offered here by name and loaded when it is asked for (PEP 562), so importing the
package costs nothing: addresses, pools, what a datastore is asked and told and how it refuses, the requests of address
assignment, and what opens a backend. ``docs/library.md`` shows all of it at work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netplug_core.addressing import Address, Family, Prefix
    from netplug_core.clock import Deadline
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.errors import AllocationError, NetplugError, Unavailable
    from netplug_core.ipam.allocation.request import AssignRequest, Automatic, ReleaseItem, ReleaseRequest, Specific
    from netplug_core.ipam.protocol import IPAM, NO_ENDPOINT
    from netplug_core.records import (
        AlreadyExists,
        CommitError,
        Conflict,
        Create,
        Delete,
        Get,
        List,
        NotFound,
        OutcomeUnknown,
        Record,
        Snapshot,
        Update,
        WatchEvent,
        WatchExpired,
    )
    from netplug_core.registry import Registry
    from netplug_core.resources.ippool import IPPOOL, AllowedUse, IPPool
    from netplug_core.settings.model import DatastoreSettings

__all__ = [
    "IPAM",
    "IPPOOL",
    "NO_ENDPOINT",
    "Address",
    "AllocationError",
    "AllowedUse",
    "AlreadyExists",
    "AssignRequest",
    "Automatic",
    "CommitError",
    "Conflict",
    "Create",
    "Datastore",
    "DatastoreSettings",
    "Deadline",
    "Delete",
    "Family",
    "Get",
    "IPPool",
    "List",
    "NetplugError",
    "NotFound",
    "OutcomeUnknown",
    "Prefix",
    "Record",
    "Registry",
    "ReleaseItem",
    "ReleaseRequest",
    "Snapshot",
    "Specific",
    "Unavailable",
    "Update",
    "WatchEvent",
    "WatchExpired",
]

_HOMES = {
    "IPAM": "ipam.protocol",
    "IPPOOL": "resources.ippool",
    "NO_ENDPOINT": "ipam.protocol",
    "Address": "addressing",
    "AllocationError": "errors",
    "AllowedUse": "resources.ippool",
    "AlreadyExists": "records",
    "AssignRequest": "ipam.allocation.request",
    "Automatic": "ipam.allocation.request",
    "WatchEvent": "records",
    "CommitError": "records",
    "Conflict": "records",
    "Create": "records",
    "Datastore": "datastore.protocol",
    "DatastoreSettings": "settings.model",
    "Deadline": "clock",
    "Delete": "records",
    "Family": "addressing",
    "Get": "records",
    "IPPool": "resources.ippool",
    "List": "records",
    "NetplugError": "errors",
    "NotFound": "records",
    "OutcomeUnknown": "records",
    "Prefix": "addressing",
    "Record": "records",
    "Registry": "registry",
    "ReleaseItem": "ipam.allocation.request",
    "ReleaseRequest": "ipam.allocation.request",
    "Snapshot": "records",
    "Specific": "ipam.allocation.request",
    "Unavailable": "errors",
    "Update": "records",
    "WatchExpired": "records",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
