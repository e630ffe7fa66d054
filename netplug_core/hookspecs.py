"""Every hook a backend may implement, the values that hooks take and return, and the two markers.

A backend is a module whose functions carry ``hookimpl``; ``registry`` registers exactly the one that a configuration
or a URL names, and wraps each hook in a typed function. A ``hookimpls`` module imports its client inside the hook's
body, so that registering costs nothing. Each hook that opens something returns None for a name that is not its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from attrs import field, frozen
from pluggy import HookimplMarker, HookspecMarker

from netplug_core.locks import no_lock

if TYPE_CHECKING:
    from netplug_core.clock import Clock, Deadline
    from netplug_core.cni.request import CNIRequest
    from netplug_core.dataplane.bgp import BgpDaemon
    from netplug_core.dataplane.protocol import Dataplane
    from netplug_core.datastore.batch import RequestQueue
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.datastore.view import View
    from netplug_core.ipam.outcome import RecordMemory
    from netplug_core.ipam.protocol import IPAM
    from netplug_core.log import Log
    from netplug_core.orchestrator.model import NodeFacts, Orchestrator
    from netplug_core.settings.model import DatastoreSettings

__all__ = [
    "PROJECT", "BackendDescription", "BgpContext", "HostServices", "IPAMContext", "hookimpl", "hookspec",
    "netplug_describe", "netplug_open_bgp", "netplug_open_dataplane", "netplug_open_datastore", "netplug_open_host",
    "netplug_open_ipam", "netplug_open_orchestrator",
]  # fmt: skip

PROJECT = "netplug"

hookspec = HookspecMarker(PROJECT)
hookimpl = HookimplMarker(PROJECT)


@frozen(kw_only=True)
class HostServices:
    """What a program takes from its machine. ``chance`` returns a number in [0, 1), ``new_uid`` a random UUID."""

    clock: Clock
    chance: Callable[[], float]
    new_uid: Callable[[], str]


@frozen(kw_only=True)
class IPAMContext:
    """What an IPAM is opened with.

    ``chance`` returns a number in [0, 1) and jitters waits. ``lock`` takes the host's lock, which spares assignments of
    one machine their conflicts. ``turn`` does the same for assignments and releases that one process serves at the same
    time. Both are held for one attempt, get the deadline of the call, and end their wait well before it. ``netconf`` is
    the network configuration as the runtime sent it, for an IPAM with settings of its own; empty where there is none.
    ``find_node`` looks a node up at the orchestrator; None where no access to it is configured. ``request`` is the call
    of a runtime that the IPAM is opened for, None for other programs: another plugin that is executed gets its text and
    its variables.
    ``queue`` collects the commits of calls that one process serves at the same time, for an IPAM that stores addresses
    in the datastore; None: each call commits by itself. ``cache`` is what the process remembers of the datastore, with
    a queue or without; None: it serves one call. ``write_stderr`` takes what another plugin writes to standard error;
    None: that of this process does. ``memory`` is what the process remembers of records that cannot be read; None: it
    serves one call. ``log`` takes the lines of the call; None: nothing is logged.
    """

    datastore: Datastore
    clock: Clock
    chance: Callable[[], float]
    lock: Callable[[Deadline], AbstractContextManager[object]] = no_lock
    turn: Callable[[Deadline], AbstractContextManager[object]] = no_lock
    netconf: Mapping[str, object] = field(factory=dict, repr=False)
    find_node: Callable[[str, Deadline], NodeFacts | None] | None = None
    request: CNIRequest | None = None
    queue: RequestQueue | None = None
    cache: View | None = None
    write_stderr: Callable[[bytes], None] | None = None
    memory: RecordMemory | None = None
    log: Log | None = None


@frozen(kw_only=True)
class BgpContext:
    """What a BGP daemon is opened with.

    ``folder`` is for its files, which outlive this process and not the machine's next start. ``count_routes`` says how
    many routes of the kernel's main table have the protocol ``bird``; ``remove_routes`` removes them. ``unit`` is the
    service of the host's systemd that runs the daemon; empty: this process starts it.
    """

    folder: str
    clock: Clock
    log: Log
    count_routes: Callable[[], int]
    remove_routes: Callable[[], int]
    unit: str = ""


@frozen(kw_only=True)
class BackendDescription:
    """What a backend offers: its version, and for each interface (``datastore``, ``ipam``, …) the names it opens."""

    version: str
    names: Mapping[str, tuple[str, ...]]


@hookspec(firstresult=True)
def netplug_open_datastore(
    name: str, settings: DatastoreSettings, clock: Clock
) -> AbstractContextManager[Datastore] | None:
    """The datastore with that ``datastore_type``, opened for as long as the context lasts."""


@hookspec(firstresult=True)
def netplug_open_ipam(name: str, context: IPAMContext) -> AbstractContextManager[IPAM] | None:
    """The IPAM with that ``ipam.type``."""


@hookspec(firstresult=True)
def netplug_open_dataplane(
    name: str, clock: Clock, log: Log, namespaces: Mapping[str, int]
) -> AbstractContextManager[Dataplane] | None:
    """The dataplane with that ``dataplane_options.type``.

    ``namespaces`` are descriptors of network namespaces that the caller has opened, by path; a dataplane uses them
    instead of the path, and leaves them open. Other namespaces it opens by their path.
    """


@hookspec(firstresult=True)
def netplug_open_orchestrator(
    name: str, settings: DatastoreSettings, clock: Clock
) -> AbstractContextManager[Orchestrator] | None:
    """The orchestrator of that kind, such as ``kubernetes``, reached as the settings say."""


@hookspec(firstresult=True)
def netplug_open_host(name: str) -> AbstractContextManager[HostServices] | None:
    """Time, chance and identifiers of this machine, for ``host``."""


@hookspec(firstresult=True)
def netplug_open_bgp(name: str, context: BgpContext) -> AbstractContextManager[BgpDaemon] | None:
    """The BGP daemon of that name, such as ``bird``. It goes on after the context has ended."""


@hookspec
def netplug_describe() -> BackendDescription | None:
    """What the module offers, at which version. It is called only to list the names that there are."""
