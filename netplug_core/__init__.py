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
    from netplug_core.datastore.interface import Datastore
    from netplug_core.errors import AllocationError, NetplugError, Unavailable
    from netplug_core.ipam.interface import IPAM, NO_ENDPOINT
    from netplug_core.ipam.request import AssignRequest, Automatic, ReleaseItem, ReleaseRequest, Specific
    from netplug_core.netconf.model import DatastoreSettings
    from netplug_core.records import (
        AlreadyExists,
        Change,
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
        WatchExpired,
    )
    from netplug_core.registry import Registry
    from netplug_core.resources.ippool import IPPOOL, AllowedUse, IPPool

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
    "Change",
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
    "WatchExpired",
]

_HOMES = {
    "IPAM": "ipam.interface",
    "IPPOOL": "resources.ippool",
    "NO_ENDPOINT": "ipam.interface",
    "Address": "addressing",
    "AllocationError": "errors",
    "AllowedUse": "resources.ippool",
    "AlreadyExists": "records",
    "AssignRequest": "ipam.request",
    "Automatic": "ipam.request",
    "Change": "records",
    "CommitError": "records",
    "Conflict": "records",
    "Create": "records",
    "Datastore": "datastore.interface",
    "DatastoreSettings": "netconf.model",
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
    "ReleaseItem": "ipam.request",
    "ReleaseRequest": "ipam.request",
    "Snapshot": "records",
    "Specific": "ipam.request",
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
