"""Composition root of the operator: the console script ``netplug-operator`` calls ``main``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from importlib.util import find_spec
from threading import Event
from typing import TYPE_CHECKING

from netplug_backends.host.machine import HostMachine, SystemClock
from netplug_backends.kubernetes.cluster_objects import Login, log_in, open_cluster_objects
from netplug_backends.kubernetes.manifests import definitions, node_role, operator_definitions, plugin_role
from netplug_backends.kubernetes.names import CrdMode
from netplug_cli.logs import Logger
from netplug_cli.operator.acting import Actor
from netplug_cli.operator.arguments import OperatorArguments, parse_arguments
from netplug_cli.operator.election import Election
from netplug_cli.operator.observing import Observer
from netplug_cli.operator.process import OperatorLoop
from netplug_cli.wiring.cni import open_log_file
from netplug_cli.wiring.operator_pools import StoredPools
from netplug_core import __version__
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError
from netplug_core.installation.render import SYSTEM_NAMESPACE
from netplug_core.log import Level
from netplug_core.names import API_VERSION
from netplug_core.operator.cluster import OperatorSettings, Shipped
from netplug_core.operator.components import COMPONENT_REFS
from netplug_core.operator.crd_mode import ClusterMode
from netplug_core.operator.objects import ref_of
from netplug_core.operator.wanted import installed_refs
from netplug_core.resources.installation import INSTALLATION_API_VERSION
from netplug_core.settings.model import KubernetesAccess

if TYPE_CHECKING:
    from netplug_cli.operator.watching import Watched

__all__ = ["main", "run", "shipped_objects"]

_LIBRARY = "kopf"
_LOGIN_S = 30.0
_MODES = {"": None, API_VERSION: ClusterMode.V3, CrdMode.V1.value: ClusterMode.V1}


def main() -> None:
    """Run ``netplug-operator``."""
    sys.exit(run(sys.argv[1:], os.environ))


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Keep the cluster as its Installation says until a signal comes; return the exit status of the process."""
    options = parse_arguments(arguments)
    if find_spec(_LIBRARY) is None:
        sys.stderr.write(f"netplug-operator needs netplug[operator]: not installed here: {_LIBRARY}\n")
        return 1
    try:
        settings = _settings(options, environ)
    except ConfigurationError as error:
        sys.stderr.write(f"netplug-operator: {error}\n")
        return 2
    return _serve(options, settings, environ)


def shipped_objects() -> Shipped:
    """The objects of this release that depend on no setting."""
    return Shipped(
        node_accounts=node_role(),
        plugin_accounts=plugin_role(),
        definitions={mode: dict(definitions(CrdMode[mode.name])) for mode in ClusterMode},
        operator_definitions=tuple(definition for _, definition in operator_definitions()),
    )


def _settings(options: OperatorArguments, environ: Mapping[str, str]) -> OperatorSettings:
    group = environ.get("NETPLUG_API_GROUP", "")
    if group not in _MODES:
        raise ConfigurationError("NETPLUG_API_GROUP", group, " or ".join(filter(None, _MODES)))
    if environ.get("NAMESPACE") == SYSTEM_NAMESPACE:
        accepted = "the operator deletes this namespace with an Installation; run it in another one"
        raise ConfigurationError("NAMESPACE", SYSTEM_NAMESPACE, accepted)
    return OperatorSettings(
        version=__version__, manages_definitions=options.manages_definitions, asked_mode=_MODES[group]
    )


def _serve(options: OperatorArguments, settings: OperatorSettings, environ: Mapping[str, str]) -> int:
    clock, log = SystemClock(), Logger("operator", open_log_file)
    access, stop, has_crashed = KubernetesAccess(kubeconfig=environ.get("KUBECONFIG", "")), Event(), Event()

    def end_after_crash() -> None:
        has_crashed.set()
        stop.set()

    with (
        closing(open_cluster_objects(access, environ, clock=clock)) as cluster,
        closing(StoredPools(access, clock)) as pools,
    ):
        observer = Observer(cluster=cluster, pools=pools, shipped=shipped_objects(), settings=settings, clock=clock)
        loop = OperatorLoop(
            observer=observer,
            actor=Actor(cluster=cluster, pools=pools, clock=clock),
            is_leading=lambda: election.is_leading,
            on_crash=end_after_crash,
            clock=clock,
            log=log,
        )
        name, on_change = _identity(environ), loop.wake
        election = Election(
            cluster=cluster, identity=name, on_change=on_change, on_crash=end_after_crash, clock=clock, log=log
        )
        election.start()
        loop.start()
        try:
            _watch(options, loop, election, lambda: log_in(access, environ, deadline=_login_deadline()), stop)
        except Exception as error:  # noqa: BLE001  kopf raises whatever ended one of its tasks
            log(Level.ERROR, "the cluster is not watched any more", cause=repr(error))
            has_crashed.set()
        finally:
            if loop.stop():
                election.stop()
            else:
                log(Level.WARNING, "an action lasts; the process ends without it, and its Lease ends by itself")
    return 1 if has_crashed.is_set() else 0


def _watch(
    options: OperatorArguments, loop: OperatorLoop, election: Election, log_in: Callable[[], Login], stop: Event
) -> None:
    from netplug_cli.operator.watching import Watcher, watch  # heavy, and installed only with the operator

    watcher = Watcher(
        log_in=log_in,
        find_problem=lambda: loop.find_problem() or ("" if election.is_alive else "the election has ended"),
        on_change=loop.wake,
    )
    watch(_watched(loop.observer.shipped), watcher, stop=stop, port=options.health_port, log=loop.log)


def _login_deadline() -> Deadline:
    return Deadline.after(SystemClock(), _LOGIN_S)


def _identity(environ: Mapping[str, str]) -> str:
    """The name of this process in the Lease; the name of a pod alone may come again after a restart."""
    machine = HostMachine()
    return f"{environ.get('POD_NAME') or machine.host_name()}_{machine.new_uid()}"


def _watched(shipped: Shipped) -> Watched:
    """The Installations, the components, the pools of either API group, and everything that is installed."""
    from netplug_cli.operator.watching import Watched

    pools = ((mode.value, "ippools") for mode in CrdMode)
    crds = (definition for mode in ClusterMode for definition in shipped.definitions[mode].values())
    refs = (*installed_refs(shipped), *map(ref_of, (*shipped.operator_definitions, *crds)))
    components = ((ref.api_version, ref.plural) for ref in COMPONENT_REFS.values())
    kinds = ((INSTALLATION_API_VERSION, "installations"), *components, *pools)
    return Watched(kinds, refs, SYSTEM_NAMESPACE)


if __name__ == "__main__":
    main()
