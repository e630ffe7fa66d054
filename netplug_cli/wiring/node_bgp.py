"""Opens what the node process speaks BGP through: the daemon, and the passwords of sessions.

``netplug_cli.wiring.node_network`` asks for it, beside the other controllers of the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from typing import Final

from attrs import frozen

from netplug_backends.host.machine import SystemClock
from netplug_backends.host.placing import RunInContainer, run_here
from netplug_backends.linux.addresses import BIRD_PROTOCOL, count_routes, remove_routes
from netplug_cli.node.bgp import NodeBgp
from netplug_cli.wiring.backends import open_registry
from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.bgp import BgpDaemon, BgpPlan, BgpStatus
from netplug_core.datastore.view import View
from netplug_core.hookspecs import BgpContext
from netplug_core.log import Log
from netplug_core.reconcile.peers import SecretName

__all__ = [
    "DAEMON_VARIABLE", "FOLDER_VARIABLE", "ROUTER_ID_VARIABLE", "UNIT_VARIABLE", "NodeContainer", "node_bgp",
    "remove_bgp",
]  # fmt: skip

DAEMON_VARIABLE: Final = "NETPLUG_BGP_DAEMON"
"""The BGP daemon: the name of a backend. ``bird`` unless given."""

FOLDER_VARIABLE: Final = "NETPLUG_BGP_DIR"
"""The folder for the files of the daemon, which has to be empty after the next start of the machine."""

UNIT_VARIABLE: Final = "NETPLUG_BGP_UNIT"
"""The service of systemd that runs the daemon, for its files in the default folder; without it this process does."""

ROUTER_ID_VARIABLE: Final = "NETPLUG_ROUTER_ID"
"""An IPv4 address in place of the node's own, or ``hash``."""

_DAEMON: Final = "bird"
_FOLDER: Final = "/run/netplug/bird"
_REMOVAL_S: Final = 30.0


@frozen(kw_only=True)
class NodeContainer:
    """The container of this process: how work is done there, where it has the root of the host, and its account.

    The defaults are those of a process on a host. An empty ``account_folder`` is the usual one of a pod.
    """

    run: RunInContainer = run_here
    host_root: str = ""
    account_folder: str = ""


@contextmanager
def node_bgp(
    environ: Mapping[str, str],
    view: View,
    find_name: Callable[[], str | None],
    log: Log,
    container: NodeContainer,
) -> Iterator[NodeBgp]:
    """What speaks BGP for this node, as long as the context lasts; the daemon goes on.

    In a container the daemon is a program of the image, and its folder is the host's.
    """
    clock = SystemClock()
    with _open_daemon(environ, container.host_root, clock, log) as daemon:
        yield NodeBgp(
            view=view,
            find_name=find_name,
            daemon=_InContainer(daemon, container.run),
            read_password=partial(_read_password, environ, container),
            clock=clock,
            router_id=environ.get(ROUTER_ID_VARIABLE, ""),
        )


def _open_daemon(
    environ: Mapping[str, str], host_root: str, clock: Clock, log: Log
) -> AbstractContextManager[BgpDaemon]:
    folder = environ.get(FOLDER_VARIABLE) or _FOLDER
    context = BgpContext(
        folder=f"{host_root}{folder}",
        clock=clock,
        log=log,
        count_routes=partial(count_routes, BIRD_PROTOCOL),
        remove_routes=partial(remove_routes, BIRD_PROTOCOL),
        unit=environ.get(UNIT_VARIABLE, "") if folder == _FOLDER else "",
    )
    return open_registry().open_bgp(environ.get(DAEMON_VARIABLE) or _DAEMON, context)


def remove_bgp(environ: Mapping[str, str], log: Log) -> bool:
    """End the BGP daemon of this machine, so that neither it nor any of its routes is left; whether it ran.

    Raises:
        NetplugError: it does not end, or the kernel keeps its routes.
    """
    clock = SystemClock()
    deadline = Deadline.after(clock, _REMOVAL_S)
    with _open_daemon(environ, "", clock, log) as daemon:
        has_run = daemon.find_status(deadline=deadline) is not None
        daemon.stop(deadline=deadline)
    return has_run


@frozen
class _InContainer:
    """A BGP daemon whose program, and the libraries of it, are in the image of this process."""

    inner: BgpDaemon
    run: RunInContainer

    def find_status(self, *, deadline: Deadline) -> BgpStatus | None:
        return self.run(lambda: self.inner.find_status(deadline=deadline))

    def apply(self, plan: BgpPlan, *, deadline: Deadline) -> bool:
        return self.run(lambda: self.inner.apply(plan, deadline=deadline))

    def pause(self, *, deadline: Deadline) -> None:
        self.run(lambda: self.inner.pause(deadline=deadline))

    def stop(self, *, deadline: Deadline) -> None:
        self.run(lambda: self.inner.stop(deadline=deadline))


def _read_password(
    environ: Mapping[str, str],
    container: NodeContainer,
    name: SecretName,
    deadline: Deadline,
) -> str | None:
    """The member of a Secret beside this pod; None outside a pod, where there are no Secrets."""
    if not environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    # Loads the client of the API server, which no process outside a cluster needs.
    from netplug_backends.kubernetes.client.access import SERVICE_ACCOUNT_FOLDER
    from netplug_backends.kubernetes.service_account import find_service_account

    def read() -> str | None:
        folder = container.account_folder or SERVICE_ACCOUNT_FOLDER
        account = find_service_account(environ, clock=SystemClock(), folder=folder)
        if account is None:
            return None
        with closing(account):
            return account.find_secret(*name, deadline=deadline)

    return container.run(read)
