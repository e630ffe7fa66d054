"""Offers the datastore ``kubernetes`` and the orchestrator ``kubernetes``."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING

from netplug_core import __version__
from netplug_core.hookspecs import BackendDescription, hookimpl

if TYPE_CHECKING:
    from netplug_core.clock import Clock
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.orchestrator.model import Orchestrator
    from netplug_core.settings.model import DatastoreSettings

__all__ = ["netplug_describe", "netplug_open_datastore", "netplug_open_orchestrator"]


@hookimpl
def netplug_open_datastore(
    name: str, settings: DatastoreSettings, clock: Clock
) -> AbstractContextManager[Datastore] | None:
    """The datastore on the API server; nothing is sent before the first call."""
    if name != "kubernetes":
        return None
    import os

    from netplug_backends.kubernetes.client.apiclient import open_api_client
    from netplug_backends.kubernetes.datastore import KubernetesDatastore
    from netplug_backends.kubernetes.names import CrdMode

    store = KubernetesDatastore(
        open_api_client(settings, os.environ, clock=clock),
        mode=CrdMode.configured(settings.api_group),
        uses_pod_cidr=settings.kubernetes.uses_pod_cidr,
        annotation_prefix=settings.annotation_prefix,
    )
    return closing(store)


@hookimpl
def netplug_open_orchestrator(
    name: str, settings: DatastoreSettings, clock: Clock
) -> AbstractContextManager[Orchestrator] | None:
    """Lookups on the API server; nothing is sent before the first call."""
    if name != "kubernetes":
        return None
    import os

    from netplug_backends.kubernetes.client.apiclient import open_api_client
    from netplug_backends.kubernetes.orchestrator import KubernetesOrchestrator

    return closing(KubernetesOrchestrator(open_api_client(settings, os.environ, clock=clock)))


@hookimpl
def netplug_describe() -> BackendDescription:
    """A datastore and an orchestrator."""
    return BackendDescription(
        version=__version__, names={"datastore": ("kubernetes",), "orchestrator": ("kubernetes",)}
    )
