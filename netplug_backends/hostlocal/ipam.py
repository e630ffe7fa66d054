"""``host-local``: the core's rules, applied to the files of this host.

An address is held by its file before the endpoint is committed, and released after the endpoint is deleted. The lock
of the folder is held while addresses are chosen and files are made, never while the datastore is called.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

from attrs import evolve, field, frozen

from netplug_backends.hostlocal.files import NetworkFiles, current_boot
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Deadline, Pace
from netplug_core.cni.dispatch import ResultFormat, negotiate_version
from netplug_core.datastore.protocol import EndpointStorage
from netplug_core.datastore.transaction import read_pages
from netplug_core.errors import ConfigurationError, NetplugError, Unavailable
from netplug_core.flows.ipam.service import BlockIPAM, require_ready, settle_endpoint
from netplug_core.hookspecs import IPAMContext
from netplug_core.ipam.allocation.request import (
    AssignedAddress,
    Assignment,
    AssignRequest,
    Attachment,
    Released,
    ReleaseRequest,
    Specific,
)
from netplug_core.ipam.hostlocal.folder import AddressFile, Boot, NetworkFolder, Owner, attachments
from netplug_core.ipam.hostlocal.ranges import RangeSet, make_range_sets, require_one_set_per_family
from netplug_core.ipam.hostlocal.reserve import Reservation, reserve
from netplug_core.ipam.hostlocal.settings import (
    FolderSettings,
    HostLocalSettings,
    load_folder_settings,
    load_settings,
)
from netplug_core.ipam.protocol import EndpointWrites
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint

__all__ = ["LOCK_S", "HostLocalIPAM"]

LOCK_S = 10.0
"""The longest that a call waits for the lock of a folder."""

_CLEANUP_S = 5.0
_LONGEST_PAUSE_S = 0.01


@frozen
class HostLocalIPAM:
    """See :class:`~netplug_core.ipam.protocol.IPAM`. ``find_boot`` returns the current boot of the host."""

    context: IPAMContext
    find_boot: Callable[[], Boot | None] = field(default=current_boot, kw_only=True)

    def assign(self, request: AssignRequest, endpoint: EndpointWrites, *, deadline: Deadline) -> Assignment:
        """Hold one address of each range set, then commit the endpoint."""
        settings = load_settings(self.context.netconf)
        range_sets = self._range_sets(settings, request.node, deadline)
        owner = _owner_of(request)
        files = _files(settings.folder)
        with files.locked(self._lock_pace(deadline)):
            made = self._make_files(files, range_sets, owner, _requested(request, settings))
        with ExitStack() as undo:
            undo.callback(self._take_back, files, owner, made)
            assignment = Assignment(
                addresses=tuple(AssignedAddress(address=one.address, prefix=one.range.subnet) for one in made)
            )
            if all(one.is_new for one in made):
                undo.callback(self._delete_endpoint, endpoint)
            settle_endpoint(self.context.datastore, endpoint, assignment, pace=self._pace(deadline))
            undo.pop_all()
        return assignment

    def release(self, request: ReleaseRequest, endpoint: EndpointWrites, *, deadline: Deadline) -> Released:
        """Delete the endpoint, then the files of the handle.

        Addresses of pools that the handle holds go with the endpoint: ``ipam.type`` may have been another one when the
        container was attached.
        """
        of_pools = tuple(item for item in request.addresses if item.sequence is not None)  # files have no numbers
        freed = self._pools.release(evolve(request, addresses=of_pools), endpoint, deadline=deadline).addresses
        folder = load_folder_settings(self.context.netconf)
        files = _files(folder)
        if not files.exists:
            return Released(addresses=freed)
        with files.locked(self._lock_pace(deadline)):
            files.clean()
            held = files.read().files_of(request.handle, folder.network)
            files.remove(one.name for one in held)
        return Released(addresses=tuple(sorted({*freed, *_addresses(held)})))

    def held(self, handle: str, *, deadline: Deadline) -> Released:  # noqa: ARG002  files answer at once
        """The addresses whose files name the attachment of a handle."""
        folder = load_folder_settings(self.context.netconf)
        return Released(addresses=_addresses(_files(folder).read().files_of(handle, folder.network)))

    def probe(self, request: AssignRequest, *, deadline: Deadline) -> tuple[Family, ...]:
        """Choose addresses without holding them; the folder has to be writable, and the datastore has to answer."""
        settings = load_settings(self.context.netconf)
        range_sets = self._range_sets(settings, request.node, deadline)
        files = _files(settings.folder)
        files.require_writable()
        folder = files.read(len(range_sets))
        ended = folder.ended_files(self.find_boot())
        chosen = reserve(folder, range_sets, Owner("", ""), _requested(request, settings), ended)
        require_ready(self.context.datastore, pace=self._pace(deadline))
        return tuple(dict.fromkeys(one.address.family for one in chosen))

    def attachments(self, *, node: str, network: str, deadline: Deadline) -> tuple[Attachment, ...]:
        """Every attachment that a file of the network names, or that still holds addresses of pools.

        All files of the folder are this node's.
        """
        folder = _files(load_folder_settings(self.context.netconf)).read()
        found = attachments(folder, self._endpoints(deadline), node=node, network=network)
        of_pools = self._pools.attachments(node=node, network=network, deadline=deadline)
        return tuple(sorted((*found, *of_pools)))

    def forward(self, *, deadline: Deadline) -> None:
        """Nothing: the files say everything."""

    # --- parts ------------------------------------------------------------------------------------------------------

    @property
    def _pools(self) -> BlockIPAM:
        """The IPAM that the node may have had before."""
        context = self.context
        return BlockIPAM(datastore=context.datastore, clock=context.clock, chance=context.chance)

    def _range_sets(self, settings: HostLocalSettings, node: str, deadline: Deadline) -> tuple[RangeSet, ...]:
        pod_cidrs = self._pod_cidrs(node, deadline) if settings.uses_pod_cidrs else ()
        made = make_range_sets(settings, node, pod_cidrs)
        if negotiate_version(settings.version).result_format is ResultFormat.PER_FAMILY:
            require_one_set_per_family(settings, made)
        return made

    def _pod_cidrs(self, node: str, deadline: Deadline) -> tuple[Prefix, ...]:
        if self.context.find_node is None:
            accepted = "usePodCidr needs access to the Kubernetes API; set it, or name a CIDR in ipam"
            raise ConfigurationError("network configuration.kubernetes.kubeconfig", None, accepted)
        found = self.context.find_node(node, deadline)
        if found is None:
            raise Unavailable(f"node {node}", "the cluster has no node of that name, so it has no podCidr")
        return found.pod_cidrs

    def _make_files(
        self, files: NetworkFiles, range_sets: tuple[RangeSet, ...], owner: Owner, requested: tuple[Address, ...]
    ) -> tuple[Reservation, ...]:
        """Choose addresses and make their files, under the lock; if one cannot be made, none stays."""
        files.clean()
        folder = files.read(len(range_sets))
        boot = _note_boot(files, folder, self.find_boot())
        made = reserve(folder, range_sets, owner, requested, folder.ended_files(boot))
        with ExitStack() as undo:
            for one in made:
                if one.is_new:
                    files.remove(file.name for file in one.replaced)
                    undo.callback(files.create(one.address, owner))
                    files.note_last(one.range_set, one.address)
            undo.pop_all()
        return made

    def _take_back(self, files: NetworkFiles, owner: Owner, made: tuple[Reservation, ...]) -> None:
        """Remove the files that a failed call has made. The caller gets its own error, whatever happens here."""
        new = {one.address for one in made if one.is_new}
        if not new:
            return
        with suppress(Unavailable), files.locked(self._lock_pace(Deadline.after(self.context.clock, _CLEANUP_S))):
            files.remove(one.name for one in files.read().files if one.owner == owner and one.address in new)

    def _delete_endpoint(self, endpoint: EndpointWrites) -> None:
        """Delete what a commit without an answer may have stored."""
        deadline = Deadline.after(self.context.clock, _CLEANUP_S)
        with suppress(NetplugError):  # the runtime's DEL deletes it
            settle_endpoint(self.context.datastore, endpoint, None, pace=self._pace(deadline))

    def _endpoints(self, deadline: Deadline) -> Iterator[WorkloadEndpoint]:
        """The endpoints of the cluster, where they are records. As objects of pods they go with their pods."""
        if self.context.datastore.description.endpoints is EndpointStorage.RECORDS:
            records = read_pages(self.context.datastore, WORKLOAD_ENDPOINT, deadline=deadline, malformed=[])
            yield from (record.value for record in records)

    def _pace(self, deadline: Deadline) -> Pace:
        return Pace(clock=self.context.clock, deadline=deadline, chance=self.context.chance)

    def _lock_pace(self, deadline: Deadline) -> Pace:
        return Pace(
            clock=self.context.clock,
            deadline=deadline.capped(LOCK_S),
            chance=self.context.chance,
            first_s=0.0005,
            longest_s=_LONGEST_PAUSE_S,
        )


def _files(folder: FolderSettings) -> NetworkFiles:
    return NetworkFiles(os.path.join(folder.data_folder, folder.network))


def _note_boot(files: NetworkFiles, folder: NetworkFolder, boot: Boot | None) -> Boot | None:
    """Note, once in a boot, which files are older than it; None if that is not known.

    Without the note it would be judged anew at each call, and a clock that is set forward would make files of running
    containers look older than the boot.
    """
    if boot is None:
        return None
    record = folder.record_of(boot)
    return boot if record == folder.boot_record or files.note_boot(record) else None


def _owner_of(request: AssignRequest) -> Owner:
    attributes = dict(request.owner)
    return Owner(attributes.get("container", ""), attributes.get("interface", ""))


def _requested(request: AssignRequest, settings: HostLocalSettings) -> tuple[Address, ...]:
    """The addresses that are asked for: that of CNI_ARGS, and those of the configuration."""
    specific = (wanted.address for wanted in request.wanted if isinstance(wanted, Specific))
    return tuple(dict.fromkeys((*specific, *settings.requested)))


def _addresses(files: tuple[AddressFile, ...]) -> tuple[Address, ...]:
    return tuple(sorted({one.address for one in files}))
