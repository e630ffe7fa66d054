"""The pure core of netplug: values, rules and flows, against abstract datastores and dataplanes.

What a user of the library needs is offered here by name and loaded at its first use (PEP 562), so that importing the
package costs nothing. ``open`` opens a datastore by its URL; ``docs/library.md`` shows everything else.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as ``typing`` has it, which costs more to load than all that stands here
if TYPE_CHECKING:
    from netplug_core.addressing import Address, Family, Prefix
    from netplug_core.clock import Deadline
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.errors import (
        AllocationError,
        ConfigurationError,
        ContentionExhausted,
        InvalidArgument,
        NetplugError,
        Unavailable,
    )
    from netplug_core.hookspecs import HostServices
    from netplug_core.ipam.allocation.request import (
        AssignRequest,
        Automatic,
        ReleaseItem,
        ReleaseRequest,
        Shortfall,
        Specific,
    )
    from netplug_core.ipam.protocol import IPAM, NO_ENDPOINT
    from netplug_core.keys import Get, List, Record
    from netplug_core.library import (
        AssignOptions,
        Network,
        OpenOptions,
        PoolOptions,
        open,  # noqa: A004  as its users write it: netplug_core.open
    )
    from netplug_core.records import (
        AlreadyExists,
        CommitError,
        Conflict,
        Create,
        Decision,
        Delete,
        NeedMore,
        NotFound,
        OutcomeUnknown,
        Snapshot,
        Update,
        WatchEvent,
        WatchExpired,
    )
    from netplug_core.resources.ippool import IPPOOL, AllowedUse, AssignmentMode, IPPool
    from netplug_core.settings.model import DatastoreSettings

__all__ = [
    "IPAM", "IPPOOL", "NO_ENDPOINT", "Address", "AllocationError", "AllowedUse", "AlreadyExists", "AssignOptions",
    "AssignRequest", "AssignmentMode", "Automatic", "CommitError", "ConfigurationError", "Conflict",
    "ContentionExhausted", "Create", "Datastore", "DatastoreSettings", "Deadline", "Decision", "Delete", "Family",
    "Get", "HostServices", "IPPool", "InvalidArgument", "List", "NeedMore", "NetplugError", "Network", "NotFound",
    "OpenOptions", "OutcomeUnknown", "PoolOptions", "Prefix", "Record", "ReleaseItem", "ReleaseRequest", "Shortfall",
    "Snapshot", "Specific", "Unavailable", "Update", "WatchEvent", "WatchExpired", "open",
]  # fmt: skip

__version__ = "3.33.0"
"""The release. A build reads it here."""

_HOMES = {
    "addressing": ("Address", "Family", "Prefix"),
    "clock": ("Deadline",),
    "datastore.protocol": ("Datastore",),
    "errors": (
        "AllocationError",
        "ConfigurationError",
        "ContentionExhausted",
        "InvalidArgument",
        "NetplugError",
        "Unavailable",
    ),
    "hookspecs": ("HostServices",),
    "ipam.allocation.request": ("AssignRequest", "Automatic", "ReleaseItem", "ReleaseRequest", "Shortfall", "Specific"),
    "ipam.protocol": ("IPAM", "NO_ENDPOINT"),
    "keys": ("Get", "List", "Record"),
    "library": ("AssignOptions", "Network", "OpenOptions", "PoolOptions", "open"),
    "records": (
        "AlreadyExists",
        "CommitError",
        "Conflict",
        "Create",
        "Decision",
        "Delete",
        "NeedMore",
        "NotFound",
        "OutcomeUnknown",
        "Snapshot",
        "Update",
        "WatchEvent",
        "WatchExpired",
    ),
    "resources.ippool": ("IPPOOL", "AllowedUse", "AssignmentMode", "IPPool"),
    "settings.model": ("DatastoreSettings",),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            found = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
