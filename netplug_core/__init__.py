"""The pure core of netplug: values, rules and flows, against abstract datastores and dataplanes.

What a user of the library needs is offered here by name and loaded when it is asked for (PEP 562), so importing the
package costs nothing: addresses, pools, the requests of address assignment, and what opens a backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netplug_core.addressing import Address, Family, Prefix
    from netplug_core.clock import Deadline
    from netplug_core.errors import NetplugError
    from netplug_core.ipam.interface import NO_ENDPOINT
    from netplug_core.ipam.request import AssignRequest, Automatic, ReleaseItem, ReleaseRequest, Specific
    from netplug_core.netconf.model import DatastoreSettings
    from netplug_core.records import Create
    from netplug_core.registry import Registry
    from netplug_core.resources.ippool import AllowedUse, IPPool

__all__ = [
    "NO_ENDPOINT",
    "Address",
    "AllowedUse",
    "AssignRequest",
    "Automatic",
    "Create",
    "DatastoreSettings",
    "Deadline",
    "Family",
    "IPPool",
    "NetplugError",
    "Prefix",
    "Registry",
    "ReleaseItem",
    "ReleaseRequest",
    "Specific",
]

_HOMES = {
    "NO_ENDPOINT": "ipam.interface",
    "Address": "addressing",
    "AllowedUse": "resources.ippool",
    "AssignRequest": "ipam.request",
    "Automatic": "ipam.request",
    "Create": "records",
    "DatastoreSettings": "netconf.model",
    "Deadline": "clock",
    "Family": "addressing",
    "IPPool": "resources.ippool",
    "NetplugError": "errors",
    "Prefix": "addressing",
    "Registry": "registry",
    "ReleaseItem": "ipam.request",
    "ReleaseRequest": "ipam.request",
    "Specific": "ipam.request",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
