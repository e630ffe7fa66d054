"""What the node process does besides serving calls: its controllers on this machine.

``netplug_cli.wiring.node`` imports it once the process listens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from random import random

from attrs import evolve

from netplug_backends.host.machine import HostMachine, SystemClock
from netplug_backends.host.placing import RunInContainer, run_here
from netplug_backends.linux.nftables import NftablesFilter
from netplug_cli.node.credentials import KnownCredentials
from netplug_cli.node.tasks import NodeRegistration, packet_filter_controller
from netplug_cli.runtime.controllers import Reconciler
from netplug_cli.wiring.backends import open_registry
from netplug_cli.wiring.node_token import find_token_refresh
from netplug_core import __version__
from netplug_core.errors import ConfigurationError
from netplug_core.flows.node.registration import NodeWorld, store_release
from netplug_core.log import Log
from netplug_core.netconf.model import NetConf
from netplug_core.settings.apiconfig import datastore_settings_from_environment, has_datastore
from netplug_core.settings.model import MEMORY_DATASTORE, DatastoreSettings

__all__ = ["node_tasks"]


def node_tasks(
    environ: Mapping[str, str],
    config_file: str,
    log: Log,
    credentials: KnownCredentials,
    in_container: RunInContainer | None = None,
) -> tuple[Reconciler, ...]:
    """The controllers that need no call. ``config_file`` names the datastore of the node; empty: the environment does.

    ``credentials`` gets those that one of them renews. ``in_container`` reads the files of a container that this
    process has left; None: it has left none.
    """
    host, clock, in_pod = HostMachine(), SystemClock(), in_container or run_here
    registration = NodeRegistration(
        names=_names(environ),
        read_datastore=partial(_read_datastore, environ, config_file),
        open_world=partial(_open_world, host, clock, log),
        store_release=partial(_store_release, environ, in_pod),
        host=host,
        clock=clock,
        log=log,
    )
    refresh = find_token_refresh(environ, log, in_pod)
    controllers: tuple[Reconciler, ...] = (
        packet_filter_controller(NftablesFilter(), log=log),
        *registration.controllers(),
    )
    if refresh is None:
        return controllers
    credentials.add(refresh.credentials_in_use)
    return (*controllers, refresh.controller())


def _names(environ: Mapping[str, str]) -> NetConf:
    """The configured name of the node, and the paths of its files: keys of a network configuration, in upper case."""
    usual = NetConf()
    return NetConf(
        nodename=_variable(environ, "NODENAME"),
        nodename_file=_variable(environ, "NODENAME_FILE") or usual.nodename_file,
        endpoint_status_dir=_variable(environ, "ENDPOINT_STATUS_DIR") or usual.endpoint_status_dir,
    )


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(f"NETPLUG_{name}") or environ.get(name, "")


def _read_datastore(environ: Mapping[str, str], config_file: str) -> DatastoreSettings | None:
    """The datastore that the file, or else the environment names; None if neither does.

    Raises:
        ConfigurationError: it cannot be read or understood, or it names a datastore that ends with this process.
    """
    if config_file:
        from netplug_cli.ctl.session import read_settings  # loads the library that reads YAML

        settings = read_settings(environ, config_file=config_file, default_file="")
    elif has_datastore(environ):
        settings = datastore_settings_from_environment(environ)
    else:
        return None
    if settings.type == MEMORY_DATASTORE:
        raise ConfigurationError("datastore", settings.type, "it ends with this process; name one that stays")
    return settings


@contextmanager
def _open_world(host: HostMachine, clock: SystemClock, log: Log, netconf: NetConf) -> Iterator[NodeWorld]:
    """A datastore that is opened for one look, and so with the credentials that there are by then."""
    registry, settings = open_registry(), netconf.datastore
    open_orchestrator = partial(registry.open_orchestrator, "kubernetes", settings, clock)
    # Where the datastore is the orchestrator's own, its nodes have their labels.
    has_labels_elsewhere = netconf.has_orchestrator and not settings.is_kubernetes
    with registry.open_datastore(settings.type, settings, clock) as datastore:
        yield NodeWorld(
            datastore=datastore,
            host=host,
            clock=clock,
            chance=random,
            log=log,
            open_orchestrator=open_orchestrator if has_labels_elsewhere else None,
        )


def _store_release(
    environ: Mapping[str, str],
    in_pod: RunInContainer,
    world: NodeWorld,
    settings: DatastoreSettings,
    *,
    has_just_started: bool,
    account_folder: str = "",
) -> bool:
    """Store this release, in a Kubernetes datastore with the account of the pod: the plugin's may not do that.

    ``account_folder`` has the files of the account; empty: the usual one.
    """
    release = f"v{__version__}"
    if not settings.is_kubernetes or not environ.get("KUBERNETES_SERVICE_HOST"):
        return store_release(world, release, has_just_started=has_just_started)
    # Loads the client of the API server, which no other process needs for this.
    from netplug_backends.kubernetes.client.access import SERVICE_ACCOUNT_FOLDER
    from netplug_backends.kubernetes.datastore import KubernetesDatastore
    from netplug_backends.kubernetes.names import CrdMode
    from netplug_backends.kubernetes.service_account import find_account_client

    def store_in_pod() -> bool:
        folder = account_folder or SERVICE_ACCOUNT_FOLDER
        client = find_account_client(environ, clock=world.clock, folder=folder)
        if client is None:
            return store_release(world, release, has_just_started=has_just_started)
        with closing(KubernetesDatastore(client, mode=CrdMode.configured(settings.api_group))) as datastore:
            return store_release(evolve(world, datastore=datastore), release, has_just_started=has_just_started)

    return in_pod(store_in_pod)
