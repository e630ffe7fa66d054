"""Gives the addresses that host-local holds on a node to netplug-ipam: each is assigned to its pod, then its file goes.

The plugin's configuration is changed before: then no call holds another address by a file. A run that was interrupted
is run again. Only a datastore that shows pods says whose an address is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from attrs import frozen

from netplug_core.clock import Pace
from netplug_core.datastore.protocol import EndpointStorage
from netplug_core.datastore.transaction import read_pages
from netplug_core.errors import AllocationError, ConfigurationError, NetplugError
from netplug_core.flows.ipam.collect import DatastoreLookup, read_pods
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.pools import is_enabled
from netplug_core.ipam.allocation.request import AssignRequest, Shortfall, Specific
from netplug_core.ipam.hostlocal.reserve import ImportedAttachment, ImportPlan, NetworkFolder, plan_import
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.resources.ippool import IPPOOL, AssignmentMode, IPPool
from netplug_core.workload import WorkloadIdentity

__all__ = ["HostLocalFolder", "ImportReport", "ImportRequest", "import_host_local"]


class HostLocalFolder(Protocol):
    """The files of one network on this host.

    Raises:
        Unavailable: a file cannot be read or written; every method may raise it.
    """

    def locked(self, pace: Pace) -> AbstractContextManager[None]:
        """No other call changes files meanwhile. The folder is made if it does not exist."""
        ...

    def read(self) -> NetworkFolder:
        """What the folder holds; nothing if it does not exist."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; one that is gone already is no error."""
        ...


@frozen(kw_only=True)
class ImportRequest:
    """The node and the network whose addresses are imported. ``keeps_files`` for a run that only tries."""

    node: str
    network: str
    keeps_files: bool = False


@frozen(kw_only=True)
class ImportReport:
    """What became of the files. ``refused`` are attachments that netplug-ipam does not take; their files stay."""

    plan: ImportPlan
    refused: tuple[tuple[ImportedAttachment, NetplugError], ...] = ()

    @property
    def imported(self) -> tuple[ImportedAttachment, ...]:
        """The attachments whose addresses are those of netplug-ipam now."""
        refused = [attachment for attachment, _error in self.refused]
        return tuple(one for one in self.plan.imported if one not in refused)


def import_host_local(
    ipam: BlockIPAM, folder: HostLocalFolder, request: ImportRequest, *, new_pace: Callable[[], Pace]
) -> ImportReport:
    """Import what the folder holds now. ``new_pace`` makes the pace of each change.

    Raises:
        ConfigurationError: the datastore shows no pods, or has no such node.
        Malformed: a pod or a pool cannot be understood.
        Unavailable: the folder, or the store, not now; what was imported until then is.
    """
    if not folder.read().files:
        return ImportReport(plan=ImportPlan())
    if ipam.datastore.description.endpoints is not EndpointStorage.PODS:
        name = ipam.datastore.description.name
        raise ConfigurationError("datastore", name, "it does not show pods; drain the node, and remove the files")
    if not DatastoreLookup(ipam.datastore).has_node(request.node, deadline=new_pace().deadline):
        raise ConfigurationError("the node", request.node, "there is none of that name; name this one")
    with folder.locked(new_pace()):
        found = folder.read()  # before the pods: a container without a pod has ended
        pods = read_pods(ipam.datastore, deadline=new_pace().deadline)
        plan = plan_import(found, pods, node=request.node, now_ns=ipam.clock.now_ns())
        if not request.keeps_files:
            folder.remove(one.name for one in plan.gone)
        refused = tuple(_import_all(ipam, folder, request, plan.imported, new_pace))
    return ImportReport(plan=plan, refused=refused)


def _import_all(
    ipam: BlockIPAM,
    folder: HostLocalFolder,
    request: ImportRequest,
    attachments: Iterable[ImportedAttachment],
    new_pace: Callable[[], Pace],
) -> Iterator[tuple[ImportedAttachment, NetplugError]]:
    """Import attachments one by one; those that are refused, and why."""
    pools = [record.value for record in read_pages(ipam.datastore, IPPOOL, deadline=new_pace().deadline)]
    for attachment in attachments:
        try:
            _import(ipam, request, attachment, pools, new_pace())
        except (ConfigurationError, AllocationError) as error:
            yield attachment, error
            continue
        if not request.keeps_files:
            folder.remove(one.name for one in attachment.files)


def _import(
    ipam: BlockIPAM, request: ImportRequest, attachment: ImportedAttachment, pools: Iterable[IPPool], pace: Pace
) -> None:
    workload = WorkloadIdentity(
        node=request.node,
        network=request.network,
        container_id=attachment.owner.container_id,
        interface=attachment.owner.interface,
        pod=attachment.pod.name,
        pod_namespace=attachment.pod.namespace,
    )
    if set(attachment.addresses) <= set(ipam.held(workload.handle, deadline=pace.deadline).addresses):
        return  # an earlier run ended before it removed the files
    _require_manual(attachment, pools)
    wanted = AssignRequest(
        handle=workload.handle,
        node=request.node,
        owner=workload.allocation_attributes,
        wanted=tuple(Specific(address=address) for address in attachment.addresses),
        shortfall=Shortfall.REFUSE,
    )
    ipam.assign(wanted, NO_ENDPOINT, deadline=pace.deadline)


def _require_manual(attachment: ImportedAttachment, pools: Iterable[IPPool]) -> None:
    """Until every node has imported its addresses, an automatic assignment may choose one of them for another pod."""
    for pool in pools:
        is_automatic = pool.spec.assignment_mode is AssignmentMode.AUTOMATIC and is_enabled(pool)
        if is_automatic and any(map(pool.spec.prefix.contains, attachment.addresses)):
            raise ConfigurationError(
                f"{pool.key}.spec.assignmentMode",
                pool.spec.assignment_mode.value,
                "set Manual until every node has imported its addresses: another pod could get one of them",
            )
