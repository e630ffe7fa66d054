"""Release records: what a DEL could not do because the datastore was away, kept on the node until it is done.

A DEL always cleans the node. If it cannot release the addresses, it writes a record, one file of a folder, and
succeeds. A later call that reaches the datastore does the whole DEL again from the record, oldest record first, and
then removes it. So a record may be done twice, by a process that is killed or by two processes, and the second time
finds nothing. It releases what the handle of its attachment holds; by then another container may have the address, and
keeps it.

Only the next ADD of the same attachment has the same handle. It does the record first, under the attachment's lock. It
looks once more before it answers: a DEL that could not wait for it has left a record, and then it undoes what it made.
"""

from __future__ import annotations

import json
from functools import cache

from attrs import evolve, frozen

from netplug_core.clock import Deadline
from netplug_core.decoding.codecs import BOOLEAN, NONEMPTY_STRING, NONNEGATIVE_INTEGER, STRING
from netplug_core.decoding.errors import document_error
from netplug_core.decoding.tables import Decoder, Field, Table, fields_of, find_member
from netplug_core.errors import ConfigurationError, ContentionExhausted, NetplugError, Unavailable, UnusableFile
from netplug_core.flows.cni.call import RELEASE_S, REMOVE_S, attachment_lock, detach_by_host_end
from netplug_core.flows.locks import AttachmentBusy
from netplug_core.flows.world import CNIWorld
from netplug_core.ipam.allocation.request import ReleaseRequest
from netplug_core.log import Level
from netplug_core.netconf.model import HOST_LOCAL_IPAM, NetConf
from netplug_core.workload.identity import WorkloadIdentity

__all__ = [
    "DRAIN_S", "POSTPONED", "RECORD_SUFFIX", "ReleaseRecord", "drain", "finish_own", "has_own", "postpone",
    "release_request_of",
]  # fmt: skip

DRAIN_S = 0.2
"""The most time that a call spends on records after its own work."""

_AWAY = (Unavailable, ContentionExhausted, UnusableFile)  # the datastore, or a file without which it is not reached

POSTPONED = (*_AWAY, AttachmentBusy)
"""Why a DEL leaves a record: the datastore is away, locked or refuses us, a file of its configuration is gone, or an
ADD of the attachment does not end."""

RECORD_SUFFIX = ".json"
"""How the name of a record's file ends."""

_TEMPORARY = ".tmp"
_ABANDONED_NS = 60 * 10**9  # a file is renamed within milliseconds after it is made; its writer is dead
_DIGITS = 20  # of a time in nanoseconds: so the order of the names is that of the times


@frozen(kw_only=True)
class ReleaseRecord:
    """A DEL that is not finished. ``datastore`` is the fingerprint of the datastore that it could not use.

    With host-local the folder of the network follows in it: only a call with the same folder can release its files.
    With another plugin its name and the network do, if the plugin has still to be called: only a call with the same
    two has a configuration for it.
    ``has_interface``: whether an interface and an endpoint are netplug's too; a DEL of ``netplug-ipam`` has addresses
    only.
    """

    datastore: str
    has_interface: bool
    created_ns: int
    workload: WorkloadIdentity

    @property
    def name(self) -> str:
        """The name of its file: the time, and whose it is."""
        return f"{self.created_ns:0{_DIGITS}}{_own_suffix(self.workload)}"


def release_request_of(workload: WorkloadIdentity) -> ReleaseRequest:
    """The release of all that a workload's attachment holds."""
    return ReleaseRequest(handle=workload.handle, node=workload.node, owner=workload.allocation_attributes)


def postpone(
    world: CNIWorld, netconf: NetConf, workload: WorkloadIdentity, cause: NetplugError, *, has_interface: bool
) -> None:
    """Write the record of a DEL that could not be finished. It takes the place of those that the same DEL left before.

    Raises:
        NetplugError: the cause itself, because the record cannot be written. The runtime repeats the DEL.
    """
    # Another plugin has released its addresses before any error of the datastore comes here.
    needs_ipam = isinstance(cause, AttachmentBusy) or not netconf.ipam.is_delegated
    record = ReleaseRecord(
        datastore=_scope(netconf) if needs_ipam else netconf.datastore.fingerprint,
        has_interface=has_interface,
        created_ns=world.clock.now_ns(),
        workload=workload,
    )
    path = f"{netconf.release_record_dir}/{record.name}"
    try:
        world.host.write_durably(path, json.dumps(_decoder().encode(record)) + "\n")
    except OSError as error:
        world.log(Level.ERROR, "the release record cannot be written", path=path, cause=str(error))
        raise cause from error
    world.log(Level.WARNING, "addresses are released later: a record keeps them", path=path, cause=str(cause))
    _remove_older(world, netconf, record)


def _remove_older(world: CNIWorld, netconf: NetConf, record: ReleaseRecord) -> None:
    """Remove what the same DEL left before: runtimes repeat a DEL that succeeded, and one that was killed."""
    try:
        own = _own(world, netconf, record.workload)
    except ConfigurationError:
        return  # the call that does the records names the damaged one
    for path, other in own.items():
        if other.created_ns < record.created_ns and evolve(other, created_ns=record.created_ns) == record:
            _remove(world, path)


def has_own(world: CNIWorld, netconf: NetConf, workload: WorkloadIdentity) -> bool:
    """Whether this attachment has a record in this datastore."""
    return bool(_own(world, netconf, workload))


def finish_own(world: CNIWorld, netconf: NetConf, workload: WorkloadIdentity) -> None:
    """Do the records of an attachment whose lock is held, so that its ADD begins with nothing.

    Raises:
        NetplugError: a record cannot be done.
    """
    for path, record in _own(world, netconf, workload).items():
        _release(world, netconf, record, Deadline.after(world.clock, REMOVE_S + RELEASE_S))
        _remove(world, path)


def drain(world: CNIWorld, netconf: NetConf, *, seconds: float = DRAIN_S) -> None:
    """Do the records of this datastore, oldest first, for a time; what goes wrong is logged and stays for later.

    A DEL that succeeds does so with the records of its own attachment too, and finds nothing.
    """
    deadline = Deadline.after(world.clock, seconds)
    for name in _names(world, netconf):
        if deadline.has_passed:
            return
        path = f"{netconf.release_record_dir}/{name}"
        try:
            _drain_one(world, netconf, path, deadline)
        except AttachmentBusy:
            continue  # a call of the attachment does it
        except _AWAY as error:
            world.log(Level.INFO, "release records stay for a later call", path=path, cause=str(error))
            return
        except NetplugError as error:
            world.log(Level.WARNING, "a release record cannot be done", path=path, cause=str(error))


def _drain_one(world: CNIWorld, netconf: NetConf, path: str, deadline: Deadline) -> None:
    record = _find(world, path)
    if record is None or not _may_do(netconf, record):
        return
    with attachment_lock(world, record.workload, wait_s=0):
        # Another call may have done it, and an ADD may have begun anew since.
        if _find(world, path) is None:
            return
        _release(world, netconf, record, deadline)
        _remove(world, path)
    workload = record.workload
    world.log(Level.INFO, "release record done", container=workload.container_id, network=workload.network, path=path)


def _release(world: CNIWorld, netconf: NetConf, record: ReleaseRecord, deadline: Deadline) -> None:
    """The DEL of a record."""
    workload = record.workload
    wanted = release_request_of(workload)
    if record.datastore != _scope(netconf):
        wanted = evolve(wanted, owner=())  # the plugin that keeps its addresses has released them already
    detach_by_host_end(world, workload, wanted, has_interface=record.has_interface, deadline=deadline)


def _names(world: CNIWorld, netconf: NetConf) -> list[str]:
    """The names of all records, oldest first. Files whose writer was killed are removed."""
    folder = netconf.release_record_dir
    try:
        found = world.host.list_folder(folder)
    except OSError as error:
        world.log(Level.WARNING, "release records cannot be listed", path=folder, cause=str(error))
        return []
    for name in found:
        if name.endswith(_TEMPORARY) and _is_abandoned(name, world.clock.now_ns()):
            _remove(world, f"{folder}/{name}")
    return sorted(name for name in found if name.endswith(RECORD_SUFFIX))


def _own(world: CNIWorld, netconf: NetConf, workload: WorkloadIdentity) -> dict[str, ReleaseRecord]:
    """The records of an attachment in this datastore, by path."""
    suffix, found = _own_suffix(workload), {}
    for name in _names(world, netconf):
        if name.endswith(suffix):
            path = f"{netconf.release_record_dir}/{name}"
            record = _find(world, path)
            if record is not None and _may_do(netconf, record):
                found[path] = record
    return found


def _remove(world: CNIWorld, path: str) -> None:
    """Remove a file that is not needed any more. One that stays is done again, and nothing is found."""
    try:
        world.host.remove_file(path)
    except OSError as error:
        world.log(Level.WARNING, "a release record cannot be removed", path=path, cause=str(error))


def _scope(netconf: NetConf) -> str:
    """What a call must have in common with a record to do it."""
    store, network = netconf.datastore.fingerprint, netconf.own_keys.get("name", "")
    if netconf.ipam.is_delegated:
        return f"{store} {netconf.ipam.type} {network}"
    if netconf.ipam.type != HOST_LOCAL_IPAM:
        return store
    folder = find_member(netconf.own_keys, "ipam", "dataDir") or ""
    return f"{store} {HOST_LOCAL_IPAM} {folder} {network}"


def _may_do(netconf: NetConf, record: ReleaseRecord) -> bool:
    """Whether a call with this configuration can do a record. With another plugin, it can do what needs none too."""
    store = netconf.datastore.fingerprint
    return record.datastore == _scope(netconf) or (netconf.ipam.is_delegated and record.datastore == store)


def _own_suffix(workload: WorkloadIdentity) -> str:
    return f"-{workload.host_interface_alias.attachment}{RECORD_SUFFIX}"


def _is_abandoned(name: str, now_ns: int) -> bool:
    digits = name[:_DIGITS]
    return not (digits.isascii() and digits.isdigit()) or int(digits) + _ABANDONED_NS < now_ns


def _find(world: CNIWorld, path: str) -> ReleaseRecord | None:
    """The record in a file; None if it is done.

    Raises:
        ConfigurationError: the file is damaged, or cannot be read.
    """
    try:
        text = world.host.find_text(path)
        if text is None:
            return None
        value = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            path, str(error), "a release record is expected; if it is damaged, remove it"
        ) from None
    return _decoder().decode(value, ReleaseRecord, path)


@cache
def _decoder() -> Decoder:
    record = Table(
        cls=ReleaseRecord,
        fields={
            "datastore": Field("datastore", NONEMPTY_STRING),
            "has_interface": Field("hasInterface", BOOLEAN),
            "created_ns": Field("created", NONNEGATIVE_INTEGER),
            "workload": Field("workload", WorkloadIdentity),
        },
    )
    names = {"network": "network", "container_id": "containerID", "interface": "ifname", "node": "node"}
    workload = Table(
        cls=WorkloadIdentity,
        fields={
            **fields_of(NONEMPTY_STRING, **names),
            **fields_of(STRING, pod="pod", pod_namespace="podNamespace", pod_uid="podUID"),
        },
    )
    return Decoder((record, workload), document_error)
