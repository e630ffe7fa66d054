"""The options of ``lab up`` as a store; refuses settings that the plugins of a lab cannot use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from attrs import evolve, frozen

from netplug_cli.lab.model import LabError
from netplug_cli.lab.relays import parse_server_address
from netplug_cli.lab.stores import ExternalServers, LabStore, OwnServers, SqliteStore, StoreKind
from netplug_core.settings.model import DatastoreSettings

__all__ = ["ServerLookup", "StoreOptions", "resolve_store"]

ServerLookup = Callable[[DatastoreSettings], tuple[tuple[str, int], ...]]
"""Returns host and port of each server that settings name."""

_ADVICE = {
    StoreKind.ETCD: "--server URL names one that runs, and ETCD_CA_CERT_FILE, ETCD_CERT_FILE and ETCD_KEY_FILE the "
    "files that it takes; with --servers DIR the lab starts one",
    StoreKind.KUBERNETES: "KUBECONFIG names the file that leads to one; with --servers DIR the lab starts one",
}


@frozen(kw_only=True)
class StoreOptions:
    """The options: a datastore, a folder with the programs of servers (or empty), and the URLs of running servers."""

    kind: StoreKind
    programs_dir: str = ""
    urls: tuple[str, ...] = ()


def resolve_store(options: StoreOptions, settings: DatastoreSettings, lookup: ServerLookup) -> LabStore:
    """The store that the options select; a running server is taken from them or from the settings of ``netplugctl``.

    Raises:
        NetplugError: the options contradict each other, a program is missing, or a setting cannot be used.
    """
    if options.kind is StoreKind.SQLITE:
        if options.programs_dir or options.urls:
            raise LabError("a lab on sqlite has no server: choose one with --datastore etcdv3 or kubernetes")
        return SqliteStore()
    if options.programs_dir and options.urls:
        raise LabError("--server names servers that run, --servers those that the lab starts: give one of the two")
    if options.programs_dir:
        return _own_servers(options)
    if options.kind is StoreKind.ETCD:
        etcd_settings = evolve(
            settings, type=options.kind.value, etcd_endpoints=options.urls or settings.etcd_endpoints
        )
        return _running_etcd(etcd_settings, lookup)
    if options.urls:
        raise LabError(f"--server is for etcd: {_ADVICE[options.kind]}")
    return _running_cluster(evolve(settings, type=options.kind.value), lookup)


def _own_servers(options: StoreOptions) -> OwnServers:
    etcd = _program_path(options.programs_dir, "etcd")
    if options.kind is StoreKind.ETCD:
        return OwnServers(etcd=etcd)
    return OwnServers(etcd=etcd, apiserver=_program_path(options.programs_dir, "kube-apiserver"))


def _program_path(folder: str, name: str) -> str:
    path = os.path.join(os.path.realpath(folder), name)
    if not (os.path.isfile(path) and os.access(path, os.X_OK)):
        raise LabError(f"{path} is missing, or no program: --servers names the folder where the servers' programs are")
    return path


def _running_etcd(settings: DatastoreSettings, lookup: ServerLookup) -> ExternalServers:
    """A running etcd. The plugin's configuration has no key for a user, and SRV records need a name service."""
    unusable: dict[str, object] = {
        "SRV records": settings.etcd_discovery_srv,
        "a user and a password": settings.etcd_username or settings.etcd_password,
        "texts in place of files": settings.etcd_key or settings.etcd_cert or settings.etcd_ca_cert,
    }
    _reject_unusable(StoreKind.ETCD, unusable)
    files = {
        "ETCD_CA_CERT_FILE": settings.etcd_ca_cert_file,
        "ETCD_CERT_FILE": settings.etcd_cert_file,
        "ETCD_KEY_FILE": settings.etcd_key_file,
    }
    named = {"ETCD_ENDPOINTS": ",".join(settings.etcd_endpoints)}
    return ExternalServers(
        kind=StoreKind.ETCD,
        environment=(*named.items(), *_absolute_paths(files)),
        addresses=_server_addresses(settings, lookup),
    )


def _running_cluster(settings: DatastoreSettings, lookup: ServerLookup) -> ExternalServers:
    """A running API server. Tokens and inline texts are refused: they would be written into the lab's configuration."""
    access = settings.kubernetes
    unusable: dict[str, object] = {
        "a text in place of a file": access.kubeconfig_inline,
        "an API root or a token": access.api_root or access.token,
        "another context": access.context,
        "several kubeconfigs": os.pathsep in access.kubeconfig,
    }
    _reject_unusable(StoreKind.KUBERNETES, unusable)
    if not access.kubeconfig:
        raise LabError(f"which API server? {_ADVICE[StoreKind.KUBERNETES]}")
    group = {"NETPLUG_API_GROUP": settings.api_group} if settings.api_group else {}
    variables = (*_absolute_paths({"KUBECONFIG": access.kubeconfig}), *group.items())
    return ExternalServers(
        kind=StoreKind.KUBERNETES, environment=variables, addresses=_server_addresses(settings, lookup)
    )


def _reject_unusable(kind: StoreKind, values: dict[str, object]) -> None:
    for what, value in values.items():
        if value:
            raise LabError(f"the plugins of a lab cannot be given {what}: {_ADVICE[kind]}")


def _server_addresses(settings: DatastoreSettings, lookup: ServerLookup) -> tuple[tuple[str, int], ...]:
    found = lookup(settings)
    for host, _ in found:
        parse_server_address(host)
    return found


def _absolute_paths(files: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Absolute paths, because plugins and later commands run in other folders."""
    return ((name, os.path.abspath(path)) for name, path in files.items() if path)
