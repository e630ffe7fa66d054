"""Release records: what a DEL could not do because the datastore was away, kept on the node until it is done.

A DEL always cleans the node. If it cannot release the addresses, it writes a record and succeeds. A process that
reaches the datastore later replays the record: it does the whole DEL again, and then removes the record. So a record
may be done twice, by a process that is killed or by two processes, and the second time finds nothing. It releases what
the handle of its attachment holds; by then another container may have the address, and keeps it.

An attachment has one record, in the folder of its store, so a call opens that one path and looks at no other record.
The folder is that of the store's identity, which the same store has over any address. While no process on this node has
asked the store for it, the folder is that of the configured location; the first replay renames it.

Only the next ADD of the same attachment has the same handle. It does the record first, under the attachment's lock. It
looks once more before it answers: a DEL that could not wait for it has left a record, and then it undoes what it made.

The node process replays in a task of its own, never in a call. A process that serves one call replays after its own
work, and only the records of its own store. Records that cannot be done here cost a call nothing: one line a day names
them, and after 30 days they are put away.
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection
from functools import cache

from attrs import evolve, frozen

from netplug_core.clock import SECOND_NS, Clock, Deadline
from netplug_core.datastore.protocol import Datastore, HasIdentity
from netplug_core.decoding.codecs import BOOLEAN, NONEMPTY_STRING, NONNEGATIVE_INTEGER, STRING
from netplug_core.decoding.tables import Decoder, Field, Table, document_error, fields_of, find_member
from netplug_core.errors import (
    ConfigurationError,
    ContentionExhausted,
    NetplugError,
    Unauthorized,
    Unavailable,
    UnusableFile,
)
from netplug_core.flows.cni.call import RELEASE_S, REMOVE_S, attachment_lock, detach_by_host_end
from netplug_core.flows.world import CNIWorld, RecordFiles, ReplayTime
from netplug_core.ipam.allocation.request import ReleaseRequest
from netplug_core.locks import AttachmentBusy
from netplug_core.log import Level, Log
from netplug_core.netconf.model import HOST_LOCAL_IPAM, NetConf
from netplug_core.records import Malformed
from netplug_core.workload import WorkloadIdentity

__all__ = [
    "ORPHANED_AFTER_NS", "POSTPONED", "REPLAY_S", "REPORT_EVERY_NS", "ReleaseRecord", "finish_own", "forget_own",
    "has_own", "has_work", "keep_house", "locations_of", "postpone", "release_request_of", "replay",
    "replay_after_call", "replay_after_delete", "take_over",
]  # fmt: skip

REPLAY_S = 0.2
"""The most time that a process that serves one call spends on records after its own work."""

_DAY_NS = 24 * 3600 * SECOND_NS

REPORT_EVERY_NS = _DAY_NS
"""How often records that cannot be done here are named in the log."""

ORPHANED_AFTER_NS = 30 * _DAY_NS
"""How old such a record becomes before it is put away."""

_AWAY = (Unavailable, ContentionExhausted, UnusableFile)  # the datastore, or a file without which it is not reached

POSTPONED = (*_AWAY, AttachmentBusy, Malformed)
"""Why a DEL leaves a record: the datastore is away, locked or refuses us, a file of its configuration is gone, an ADD
of the attachment does not end, or a stored record of the attachment cannot be read, so that its pod could never go."""

_FINGERPRINT = re.compile(r"[0-9a-f]{16}")
_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_DIGITS = 16


class _Outcome(enum.Enum):
    """What became of a record: done or left to others, set aside as damaged, or damaged and not to be moved."""

    LOOKED_AT = "looked at"
    SET_ASIDE = "set aside"
    STUCK = "stuck"


@frozen(kw_only=True)
class ReleaseRecord:
    """A DEL that is not finished. ``datastore`` is the fingerprint of the location at which it did not reach its store.

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


def release_request_of(workload: WorkloadIdentity) -> ReleaseRequest:
    """The release of all that a workload's attachment holds."""
    return ReleaseRequest(handle=workload.handle, node=workload.node, owner=workload.allocation_attributes)


def locations_of(netconf: NetConf) -> tuple[str, ...]:
    """The locations of the records that a call with this configuration can do.

    With another plugin these are two: that of the plugin, and that of the datastore, for what needs the plugin no more.
    """
    locations = (_location_name(_scope(netconf)),)
    return (*locations, _location_name(netconf.datastore.fingerprint)) if netconf.ipam.is_delegated else locations


# --- what a call does about its own attachment ---------------------------------------------------------------------


def postpone(
    world: CNIWorld, netconf: NetConf, workload: WorkloadIdentity, cause: NetplugError, *, has_interface: bool
) -> None:
    """Write the record of a DEL that could not be finished. It replaces the one that the same DEL left before.

    Raises:
        NetplugError: the cause itself, because the record cannot be written. The runtime repeats the DEL.
    """
    # Another plugin has released its addresses before any error of the datastore comes here.
    needs_ipam = isinstance(cause, AttachmentBusy) or not netconf.ipam.is_delegated
    scope = _scope(netconf) if needs_ipam else netconf.datastore.fingerprint
    location, attachment = _location_name(scope), _attachment(workload)
    former = _find_readable(world.records, location, attachment)
    record = ReleaseRecord(
        datastore=scope,
        has_interface=has_interface or (former is not None and former.has_interface),
        created_ns=world.clock.now_ns(),
        workload=workload,
    )
    try:
        path = world.records.write(location, attachment, _encode(record))
    except OSError as error:
        path = world.records.path(location, attachment)
        world.log(Level.ERROR, "the release record cannot be written", path=path, cause=str(error))
        raise cause from error
    world.log(Level.WARNING, "addresses are released later: a record keeps them", path=path, cause=str(cause))


def has_own(world: CNIWorld, netconf: NetConf, workload: WorkloadIdentity) -> bool:
    """Whether this attachment has a record in this datastore, readable or not."""
    attachment = _attachment(workload)
    try:
        return any(world.records.find(location, attachment) is not None for location in locations_of(netconf))
    except OSError:
        return True


def finish_own(world: CNIWorld, netconf: NetConf, workload: WorkloadIdentity, *, has_interface: bool) -> None:
    """Do the record of an attachment whose lock is held, so that its ADD begins with nothing.

    A record that cannot be read is done too: its name says which attachment it is of, and the call knows the rest.

    Raises:
        NetplugError: the record cannot be done.
    """
    attachment = _attachment(workload)
    for name in _former_of(world, attachment):
        _take_over_one(world.records, world.log, name)
    for location in locations_of(netconf):
        try:
            text = world.records.find(location, attachment)
        except OSError:
            text = ""
        if text is None:
            continue
        record = _find_record(text) or ReleaseRecord(
            datastore=_scope(netconf), has_interface=has_interface, created_ns=0, workload=workload
        )
        deadline = Deadline.after(world.clock, REMOVE_S + RELEASE_S)
        _release(world, record, deadline, needs_ipam=_needs_ipam(netconf, location))
        _finish(world, location, attachment, text)


def forget_own(world: CNIWorld, netconf: NetConf, workload: WorkloadIdentity, *, has_interface: bool) -> None:
    """Remove the record of an attachment whose lock is held and whose DEL has just done all that it says.

    ``has_interface``: whether that was a DEL of the interface too; if not, a record that has one stays.
    """
    attachment = _attachment(workload)
    for name in _former_of(world, attachment):
        _take_over_one(world.records, world.log, name)
    for location in locations_of(netconf):
        try:
            text = world.records.find(location, attachment)
        except OSError:
            continue  # the next replay sets it aside
        if text is None:
            continue
        record = _find_record(text)
        if has_interface or record is None or not record.has_interface:
            _remove(world, location, attachment, text)


def _finish(world: CNIWorld, location: str, attachment: str, text: str) -> None:
    """Remove a record that was done; one that cannot be read is set aside.

    Raises:
        ConfigurationError: it can be neither read nor moved, so that each ADD would find it.
    """
    if text:
        _remove(world, location, attachment, text)
        return
    try:
        world.records.set_aside(location, attachment, None)
    except OSError as error:
        path, accepted = world.records.path(location, attachment), "a release record is expected; remove it"
        raise ConfigurationError(path, str(error), accepted) from error


def _former_of(world: CNIWorld, attachment: str) -> tuple[str, ...]:
    try:
        return world.records.find_former(attachment)
    except OSError as error:
        world.log(Level.WARNING, "release records cannot be listed", path=world.records.folder, cause=str(error))
        return ()


# --- replaying -----------------------------------------------------------------------------------------------------


def replay_after_call(world: CNIWorld, netconf: NetConf, *, seconds: float = REPLAY_S) -> None:
    """Replay the records of this datastore after a call, in a process that serves no other."""
    if world.replay_time is ReplayTime.AFTER_CALLS:
        replay(world, netconf, seconds=seconds)


def replay_after_delete(world: CNIWorld, netconf: NetConf) -> None:
    """The same after a DEL, and records of earlier releases first: an ADD, which a pod waits for, looks at none."""
    if world.replay_time is ReplayTime.AFTER_CALLS:
        take_over(world.records, world.log, Deadline.after(world.clock, REPLAY_S))
        replay(world, netconf, seconds=REPLAY_S)


def has_work(files: RecordFiles, netconf: NetConf) -> bool:
    """Whether a replay with this configuration may find something: the datastore need not be opened for nothing.

    Raises:
        OSError: a folder cannot be listed.
    """
    return any(files.names(location) or _may_be_elsewhere(files, location) for location in locations_of(netconf))


def replay(world: CNIWorld, netconf: NetConf, *, seconds: float) -> bool:
    """Do the records of this datastore, oldest first, for a time; what goes wrong is logged and stays for later.

    Returns:
        Whether the datastore did what it was asked, as far as it was asked.
    """
    deadline = Deadline.after(world.clock, seconds)
    outcomes: Counter[_Outcome] = Counter()
    is_away = False
    try:
        for location in locations_of(netconf):
            for attachment in _names_in_store(world, netconf, location, deadline):
                if deadline.has_passed:
                    break
                outcomes[_replay_one(world, netconf, location, attachment, deadline)] += 1
    except _AWAY as error:
        world.log(Level.INFO, "release records stay for later", folder=world.records.folder, cause=str(error))
        is_away = True
    if outcomes[_Outcome.SET_ASIDE] or outcomes[_Outcome.STUCK]:
        _report(world.records, locations_of(netconf), world.clock, world.log, stuck=outcomes[_Outcome.STUCK])
    return not is_away


def _names_in_store(world: CNIWorld, netconf: NetConf, location: str, deadline: Deadline) -> tuple[str, ...]:
    """The attachments with records of the store at a location, whose folder has the name of the store from now on.

    Raises:
        Unavailable: the store does not say which one it is.
    """
    files = world.records
    names: tuple[str, ...] = ()
    try:
        names = files.names(location)
        if not names and not _may_be_elsewhere(files, location):
            return ()
        identity = _find_identity(world.datastore, deadline)
        if identity is not None:
            files.lead(location, _store_folder(netconf.datastore.type, identity, location))
            names = files.names(location)
    except OSError as error:
        text = "the folder of release records cannot be listed or renamed"
        world.log(Level.WARNING, text, path=files.folder, cause=str(error))
    return names


def _may_be_elsewhere(files: RecordFiles, location: str) -> bool:
    """Whether there are records in folders of stores, one of which may be the unknown store at this location."""
    return files.find_store(location) is None and files.has_stores()


def _find_identity(datastore: Datastore, deadline: Deadline) -> str | None:
    if not isinstance(datastore, HasIdentity):
        return None
    try:
        return datastore.find_identity(deadline=deadline)
    except Unauthorized:
        return None  # a right is missing that nothing else needs


def _replay_one(world: CNIWorld, netconf: NetConf, location: str, attachment: str, deadline: Deadline) -> _Outcome:
    """Do one record, or set it aside if it cannot be read.

    Raises:
        Unavailable, ContentionExhausted, UnusableFile: the store is away again.
    """
    files = world.records
    try:
        text = files.find(location, attachment)
    except OSError:
        return _set_aside(files, location, attachment, None)
    record = None if text is None else _find_record(text)
    if text is not None and record is None:
        return _set_aside(files, location, attachment, text)
    if text is not None and record is not None:
        try:
            _release_locked(world, netconf, location, text, record, deadline=deadline)
        except AttachmentBusy:
            pass  # a call of the attachment does it
        except _AWAY:
            raise
        except NetplugError as error:
            # The DEL has warned of a stored record that cannot be read, and ``ipam check`` names it.
            level = Level.DEBUG if isinstance(error, Malformed) else Level.WARNING
            path = files.path(location, attachment)
            world.log(level, "a release record cannot be done", path=path, cause=str(error))
    return _Outcome.LOOKED_AT


def _release_locked(
    world: CNIWorld, netconf: NetConf, location: str, text: str, record: ReleaseRecord, *, deadline: Deadline
) -> None:
    """The DEL of a record under the attachment's lock, unless another process has done it.

    Raises:
        NetplugError: it cannot be done now.
    """
    workload = record.workload
    attachment = _attachment(workload)
    with attachment_lock(world, workload, wait_s=0):
        # Another call may have done it, and an ADD may have begun anew since.
        if not _is_there(world.records, location, attachment, text):
            return
        _release(world, record, deadline, needs_ipam=_needs_ipam(netconf, location))
        _remove(world, location, attachment, text)
    path = world.records.path(location, attachment)
    world.log(Level.INFO, "release record done", container=workload.container_id, network=workload.network, path=path)


def _set_aside(files: RecordFiles, location: str, attachment: str, text: str | None) -> _Outcome:
    """Set a damaged record aside, so that no later replay reads it again."""
    try:
        files.set_aside(location, attachment, text)
    except OSError:
        return _Outcome.STUCK
    return _Outcome.SET_ASIDE


def _is_there(files: RecordFiles, location: str, attachment: str, text: str) -> bool:
    try:
        return files.find(location, attachment) == text
    except OSError:
        return False


def _release(world: CNIWorld, record: ReleaseRecord, deadline: Deadline, *, needs_ipam: bool) -> None:
    """The DEL of a record."""
    wanted = release_request_of(record.workload)
    if not needs_ipam:
        wanted = evolve(wanted, owner=())  # the plugin that keeps its addresses has released them already
    detach_by_host_end(world, record.workload, wanted, has_interface=record.has_interface, deadline=deadline)


def _remove(world: CNIWorld, location: str, attachment: str, text: str) -> None:
    """Remove a record that was done. One that stays is done again, and nothing is found."""
    try:
        world.records.remove(location, attachment, text)
    except OSError as error:
        path = world.records.path(location, attachment)
        world.log(Level.WARNING, "a release record cannot be removed", path=path, cause=str(error))


# --- the folder as a whole -----------------------------------------------------------------------------------------


def take_over(files: RecordFiles, log: Log, deadline: Deadline | None = None) -> None:
    """Move the records of earlier releases, which are all in one folder, to the folders of their stores.

    What is not moved by the deadline is moved by a later call.
    """
    try:
        for name in files.list_former():
            if deadline is not None and deadline.has_passed:
                return
            _take_over_one(files, log, name)
        files.end_takeover()
    except OSError as error:
        log(Level.WARNING, "release records cannot be listed", path=files.folder, cause=str(error))


def _take_over_one(files: RecordFiles, log: Log, name: str) -> None:
    try:
        text = files.read_former(name)
        if text is None:
            return  # another process has moved it
        record = _find_record(text)
        location = None if record is None else _find_location(record.datastore)
        if record is None or location is None:
            files.set_former_aside(name)
            return
        attachment = _attachment(record.workload)
        present = _find_readable(files, location, attachment)
        if present is None:
            files.adopt(name, location, attachment)
            return
        newer, older = sorted((record, present), key=lambda each: each.created_ns, reverse=True)
        merged = evolve(newer, has_interface=newer.has_interface or older.has_interface)
        files.write(location, attachment, _encode(merged))
        files.remove_former(name)
    except OSError as error:
        log(Level.WARNING, "a release record cannot be moved", path=f"{files.folder}/{name}", cause=str(error))


def keep_house(files: RecordFiles, locations: Collection[str], clock: Clock, log: Log) -> None:
    """Put away what could not be done here for 30 days, and report the rest of that once a day.

    ``locations`` are those whose records this process replays: records elsewhere are of other stores.
    """
    try:
        orphaned = files.orphan(locations, before_ns=clock.now_ns() - ORPHANED_AFTER_NS)
    except OSError as error:
        log(Level.WARNING, "release records cannot be put away", path=files.folder, cause=str(error))
    else:
        if orphaned:
            log(Level.WARNING, "old release records put away", count=orphaned, folder=f"{files.folder}/orphaned")
    _report(files, locations, clock, log)


def _report(files: RecordFiles, locations: Collection[str], clock: Clock, log: Log, *, stuck: int = 0) -> None:
    """Name the records that cannot be done here, in one line, unless a process has done so within a day.

    ``stuck``: so many could be neither read nor set aside.
    """
    now_ns = clock.now_ns()
    try:
        counts = files.count(locations)
        if not counts.foreign and not counts.damaged and not stuck:
            return
        last_ns = files.find_report_ns()
        if last_ns is not None and last_ns <= now_ns < last_ns + REPORT_EVERY_NS:
            return
        files.note_report(now_ns)
    except OSError as error:
        log(Level.WARNING, "release records cannot be counted", path=files.folder, cause=str(error))
        return
    log(
        Level.WARNING,
        "release records wait that cannot be done here",
        foreign=counts.foreign,
        damaged=counts.damaged + stuck,
        folder=files.folder,
    )


# --- names and texts -----------------------------------------------------------------------------------------------


def _scope(netconf: NetConf) -> str:
    """What a call must have in common with a record to do it."""
    store, network = netconf.datastore.fingerprint, netconf.own_keys.get("name", "")
    if netconf.ipam.is_delegated:
        return f"{store} {netconf.ipam.type} {network}"
    if netconf.ipam.type != HOST_LOCAL_IPAM:
        return store
    folder = find_member(netconf.own_keys, "ipam", "dataDir") or ""
    return f"{store} {HOST_LOCAL_IPAM} {folder} {network}"


def _location_name(scope: str) -> str:
    """The location of a scope: the fingerprint of the location, and a hash of what follows it."""
    location, _, rest = scope.partition(" ")
    return f"{location}.{_digest(rest)}" if rest else location


def _find_location(scope: str) -> str | None:
    """The location of a scope that was read from a file; None if it is none."""
    return _location_name(scope) if _FINGERPRINT.fullmatch(scope.partition(" ")[0]) else None


def _store_folder(datastore_type: str, identity: str, location: str) -> str:
    """The name of a store's folder, apart for what needs another IPAM than that of pools."""
    name = f"{datastore_type}-{identity}"
    if not _FOLDER_NAME.fullmatch(name):
        name = f"store-{_digest(name)}"
    _fingerprint, point, rest = location.partition(".")
    return f"{name}{point}{rest}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]


def _attachment(workload: WorkloadIdentity) -> str:
    return workload.host_interface_alias.attachment


def _needs_ipam(netconf: NetConf, location: str) -> bool:
    """Whether the IPAM has a part in the records of a location; another plugin has none in those of its datastore."""
    return not netconf.ipam.is_delegated or location == _location_name(_scope(netconf))


def _find_readable(files: RecordFiles, location: str, attachment: str) -> ReleaseRecord | None:
    """The record of an attachment; None if there is none, or none that can be read."""
    try:
        text = files.find(location, attachment)
    except OSError:
        return None
    return None if text is None else _find_record(text)


def _encode(record: ReleaseRecord) -> str:
    return json.dumps(_decoder().encode(record)) + "\n"


def _find_record(text: str) -> ReleaseRecord | None:
    """The record that a text is; None if it is damaged."""
    try:
        return _decoder().decode(json.loads(text), ReleaseRecord, "a release record")
    except (ValueError, RecursionError, NetplugError):
        return None


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
    return Decoder(document_error, tables=(record, workload))
