"""Release records: a DEL without its datastore cleans the node and succeeds; what is left is done later, and once."""

import json
import re
from collections.abc import Callable

import pytest

from netplug_core.clock import Deadline
from netplug_core.cni.dispatch import Plugin
from netplug_core.dataplane.protocol import KernelError
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import ConfigurationError, NetplugError, Unauthorized, Unavailable, UnusableFile
from netplug_core.flows.cni.add import DeletedMeanwhile
from netplug_core.flows.cni.release_records import (
    ORPHANED_AFTER_NS,
    REPLAY_S,
    REPORT_EVERY_NS,
    has_work,
    keep_house,
    locations_of,
    replay,
    replay_after_call,
    take_over,
)
from netplug_core.flows.world import RecordCounts, ReplayTime
from netplug_core.ipam.model import BLOCK, HANDLE
from netplug_core.keys import Kind
from netplug_core.log import Level
from netplug_core.names import attachment_lock_offset
from netplug_core.netconf.model import NetConf
from netplug_core.records import List
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.testing.faults import (
    DamagedDatastore,
    FaultyDatastore,
    LostReply,
    LostRequest,
    ProcessDeath,
    ProcessDied,
)
from tests.harness.cni_node import (
    DEFAULT_CONTAINER,
    DUAL_STACK,
    LOCK_FILE,
    POD,
    CNINodeHarness,
    ContainerInterface,
    RecordingLog,
)
from tests.harness.stores import HookedStore

NO_VALID_ATTACHMENTS: dict[str, object] = {"cni.dev/valid-attachments": []}
FOLDER = NetConf().release_record_dir
OTHER = ContainerInterface(id="c2", netns="/run/netns/c2")
CONTAINERS = tuple(ContainerInterface(id=f"old-{n}", netns=f"/run/netns/old-{n}", args=POD) for n in range(3))


class AwayStore(HookedStore):
    """A store that does not answer."""

    def __init__(self, inner: Datastore, error: NetplugError) -> None:
        def fail() -> None:
            raise error

        super().__init__(inner, before_read=fail, before_commit=fail)


class IdentifiedStore(HookedStore):
    """A store that says something else when it is asked which one it is."""

    def __init__(self, inner: Datastore, find_identity: Callable[..., str]) -> None:
        super().__init__(inner)
        self.find_identity = find_identity


def delete_in_an_outage(
    harness: CNINodeHarness,
    *containers: ContainerInterface,
    plugin: Plugin = Plugin.MAIN,
    error: NetplugError | None = None,
) -> None:
    """DEL of some containers while the datastore is away."""
    harness.store = AwayStore(harness.memory, error or Unavailable("the store", "connection refused"))
    for container in containers:
        harness.clock.sleep(1)
        harness.run("DEL", container, plugin)
    harness.store = harness.memory


def replay_all(harness: CNINodeHarness, **changes: object) -> None:
    """What a call does after its own work."""
    replay_after_call(harness.world, netconf_of(harness, **changes))


def netconf_of(harness: CNINodeHarness, **changes: object) -> NetConf:
    """The configuration of a call."""
    _request, netconf = harness.make_call("DEL", DEFAULT_CONTAINER, Plugin.MAIN, **changes)
    return netconf


def location_of(harness: CNINodeHarness, **changes: object) -> str:
    """The location of its records."""
    return locations_of(netconf_of(harness, **changes))[0]


def attachment_of(path: str) -> str:
    """The attachment that a record is called as."""
    return path.rpartition("/")[2].removesuffix(".json")


def damage(harness: CNINodeHarness, count: int, text: str | OSError = "{") -> None:
    """So many damaged records in the folder of this datastore."""
    for number in range(count):
        path = harness.record_files.write(location_of(harness), f"{number:026}", "")
        harness.host.texts[path] = text


def damaged(harness: CNINodeHarness) -> list[str]:
    return [path for path in harness.host.texts if path.endswith(".damaged")]


def warnings(harness: CNINodeHarness) -> list[tuple[str, object]]:
    return [(message, fields.get("path")) for level, message, fields in harness.log.lines if level is Level.WARNING]


# --- written -------------------------------------------------------------------------------------------------------


def test_a_del_in_an_outage_leaves_a_clean_node_and_one_record(harness: CNINodeHarness) -> None:
    pod = ContainerInterface(args=f"{POD};K8S_POD_UID=u-1")
    harness.add(pod, ipam=DUAL_STACK)
    delete_in_an_outage(harness, pod)
    assert (harness.dataplane.names(), harness.dataplane.host_routes()) == ((), ())
    assert harness.handles() == ["net1.c1"]
    (name,) = harness.release_records()
    path = f"{FOLDER}/{name}"
    assert name == f"stores/{location_of(harness)}/{attachment_of(name)}.json"
    assert warnings(harness) == [("addresses are released later: a record keeps them", path)]
    text = harness.host.find_text(path)
    assert text is not None
    assert text.endswith("\n")
    record = json.loads(text)
    fingerprint = record.pop("datastore")
    assert len(fingerprint) == 16
    assert record == {
        "hasInterface": True,
        "created": harness.clock.now_ns(),
        "workload": {
            "network": "net1",
            "containerID": "c1",
            "ifname": "eth0",
            "node": "node-1",
            "pod": "test-pod-1",
            "podNamespace": "test",
        },
    }
    replay_all(harness)
    harness.assert_nothing_left()


@pytest.mark.parametrize(
    "error", [UnusableFile("etcd_cert_file", "/gone.pem", "it does not exist"), Unavailable("the store", "401")]
)
def test_a_store_that_cannot_be_used_is_an_outage_too(harness: CNINodeHarness, error: NetplugError) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER, error=error)
    assert (harness.dataplane.names(), len(harness.release_records())) == ((), 1)
    replay_all(harness)
    harness.assert_nothing_left()


@pytest.mark.parametrize(
    "kind, plugin",
    [
        (HANDLE, Plugin.MAIN),
        (WORKLOAD_ENDPOINT, Plugin.MAIN),
        (BLOCK, Plugin.MAIN),
        (HANDLE, Plugin.IPAM),
        (BLOCK, Plugin.IPAM),
    ],
)
def test_a_damaged_record_of_the_attachment_keeps_no_pod_from_going(
    harness: CNINodeHarness, kind: Kind[object], plugin: Plugin
) -> None:
    """A runtime repeats a DEL that fails for ever. What cannot be released is, once the record is repaired."""
    harness.dataplane.add_namespace(DEFAULT_CONTAINER.netns)
    harness.run("ADD", DEFAULT_CONTAINER, plugin)
    (record,) = harness.memory.read([List(kind)], deadline=Deadline.after(harness.clock, 5)).list(List(kind))
    store = DamagedDatastore(harness.memory, damage={record.key: b"{"})
    harness.store = store
    harness.run("DEL", DEFAULT_CONTAINER, plugin)
    assert harness.dataplane.names() == ()
    later = "addresses are released later: a record keeps them"
    (cause,) = (str(fields["cause"]) for _level, message, fields in harness.log.lines if message == later)
    assert str(record.key) in cause
    said = warnings(harness)
    for _ in range(3):
        replay_all(harness)
    assert harness.record_files.count((location_of(harness),)).own == 1
    assert warnings(harness) == said, "once"
    store.damage.clear()
    replay_all(harness)
    assert harness.record_files.count((location_of(harness),)).own == 0
    harness.assert_nothing_left()


def test_netplug_ipam_leaves_a_record_of_addresses_alone(harness: CNINodeHarness) -> None:
    harness.run("ADD", DEFAULT_CONTAINER, Plugin.IPAM, type="bridge")
    delete_in_an_outage(harness, DEFAULT_CONTAINER, plugin=Plugin.IPAM)
    (name,) = harness.release_records()
    assert json.loads(harness.host.texts[f"{FOLDER}/{name}"].__str__())["hasInterface"] is False
    harness.run("DEL", OTHER, Plugin.IPAM, type="bridge")
    harness.assert_nothing_left()


def test_a_del_that_is_repeated_leaves_one_record(harness: CNINodeHarness) -> None:
    harness.add()
    for _ in range(3):
        delete_in_an_outage(harness, DEFAULT_CONTAINER)
        harness.clock.sleep(1)
    (name,) = harness.release_records()
    assert json.loads(str(harness.host.texts[f"{FOLDER}/{name}"]))["created"] == harness.clock.now_ns() - 10**9
    replay_all(harness)
    harness.assert_nothing_left()


def test_a_repeated_del_keeps_what_is_more_than_itself(harness: CNINodeHarness) -> None:
    """The interface of the first one, if that DEL was of ``netplug`` and the second is of ``netplug-ipam`` alone."""
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    delete_in_an_outage(harness, DEFAULT_CONTAINER, plugin=Plugin.IPAM)
    (name,) = harness.release_records()
    assert json.loads(str(harness.host.texts[f"{FOLDER}/{name}"]))["hasInterface"] is True
    replay_all(harness)
    harness.assert_nothing_left()


@pytest.mark.parametrize("text", ["{", PermissionError(13, "Permission denied")])
def test_a_repeated_del_replaces_a_damaged_record(harness: CNINodeHarness, text: str | OSError) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    (name,) = harness.release_records()
    harness.host.texts[f"{FOLDER}/{name}"] = text
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    assert harness.release_records() == [name]
    replay_all(harness)
    harness.assert_nothing_left()


@pytest.mark.parametrize("plugin", Plugin)
def test_without_a_record_the_runtime_has_to_come_again(harness: CNINodeHarness, plugin: Plugin) -> None:
    harness.add()
    harness.host.unwritable.add(FOLDER)
    with pytest.raises(Unavailable, match="connection refused") as refusal:
        delete_in_an_outage(harness, DEFAULT_CONTAINER, plugin=plugin)
    assert refusal.value.code == 11
    assert "the release record cannot be written" in harness.log.of(Level.ERROR)
    assert harness.release_records() == []


# --- done ----------------------------------------------------------------------------------------------------------


def test_the_next_call_that_reaches_the_store_does_them(harness: CNINodeHarness) -> None:
    for container in CONTAINERS:
        harness.add(container)
    delete_in_an_outage(harness, *CONTAINERS)
    assert len(harness.release_records()) == 3
    harness.add(OTHER)
    assert harness.handles() == ["net1.c2"]
    assert harness.release_records() == []
    assert harness.log.of(Level.INFO).count("release record done") == 3
    harness.run("DEL", OTHER)
    harness.assert_nothing_left()


def test_the_oldest_comes_first_and_no_call_is_late(harness: CNINodeHarness) -> None:
    for container in CONTAINERS:
        harness.add(container)
    delete_in_an_outage(harness, *CONTAINERS)
    names = harness.record_files.names(location_of(harness))
    harness.store = HookedStore(harness.memory, before_read=lambda: harness.clock.sleep(0.05))
    began = harness.clock.monotonic()
    replay_all(harness)
    assert harness.clock.monotonic() - began < 2 * REPLAY_S
    left = harness.record_files.names(location_of(harness))
    assert left == names[-len(left) :]
    assert 0 < len(left) < 3
    harness.store = harness.memory
    harness.run("GC", OTHER, Plugin.MAIN, **{"cni.dev/valid-attachments": []})
    harness.assert_nothing_left()


def test_without_time_none_is_begun(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    assert replay(harness.world, netconf_of(harness), seconds=0) is False  # nor is the store asked for its identity
    assert len(harness.release_records()) == 1


def test_a_store_that_goes_away_again_ends_it(harness: CNINodeHarness) -> None:
    for container in CONTAINERS:
        harness.add(container)
    delete_in_an_outage(harness, *CONTAINERS)
    store = harness.store = HookedStore(harness.memory)

    def go_away() -> None:
        harness.store = AwayStore(harness.memory, Unavailable("the store", "connection refused"))
        store.before_read = harness.store.before_read

    store.after_commit = go_away
    replay_all(harness)
    assert len(harness.release_records()) == 2
    assert "release records stay for later" in harness.log.of(Level.INFO)
    harness.store = harness.memory
    replay_all(harness)
    harness.assert_nothing_left()


@pytest.mark.parametrize("applied", [0, None])
@pytest.mark.parametrize("number", range(1, 4))
def test_a_process_that_dies_over_one_leaves_it_to_the_next(
    harness: CNINodeHarness, number: int, applied: int | None
) -> None:
    for container in CONTAINERS:
        harness.add(container)
    delete_in_an_outage(harness, *CONTAINERS)
    harness.store = FaultyDatastore(harness.memory, {number: ProcessDeath(applied)})
    with pytest.raises(ProcessDied):
        replay_all(harness)
    harness.host.locks.release_all()
    assert len(harness.release_records()) == 4 - number
    harness.store = harness.memory
    replay_all(harness)
    harness.assert_nothing_left()


def test_one_that_was_done_and_is_still_there_is_done_again_and_finds_nothing(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    harness.host.unwritable.add(FOLDER)
    replay_all(harness)
    assert harness.handles() == []
    assert "a release record cannot be removed" in harness.log.of(Level.WARNING)
    harness.add(OTHER)
    held = harness.allocations()
    harness.host.unwritable.clear()
    replay_all(harness)
    assert harness.release_records() == []
    assert harness.allocations() == held


def test_an_address_that_another_container_has_since_stays(harness: CNINodeHarness) -> None:
    """Somebody released the address by hand, and another container got it."""
    (address,) = (config.address for config in harness.add().ips)
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    records = {path: harness.host.texts.pop(path) for path in list(harness.host.texts) if path.startswith(FOLDER)}
    harness.run("DEL")
    (other,) = (config.address for config in harness.add(OTHER).ips)
    held = harness.allocations()
    harness.host.texts |= records
    replay_all(harness)
    assert harness.allocations() == held
    assert other in held
    assert address.family is other.family


def test_none_is_begun_after_the_time_is_over(harness: CNINodeHarness) -> None:
    class SlowLog(RecordingLog):
        def __call__(self, level: Level, message: str, /, **fields: object) -> None:
            super().__call__(level, message, **fields)
            if message == "release record done":
                harness.clock.sleep(10)

    for container in CONTAINERS:
        harness.add(container)
    delete_in_an_outage(harness, *CONTAINERS)
    harness.log = SlowLog()
    assert replay(harness.world, netconf_of(harness), seconds=5)
    assert len(harness.release_records()) == 2


def test_one_that_is_gone_since_it_was_listed_is_passed_over(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)

    def remove_first(path: str) -> None:
        if path.endswith(".json"):
            harness.host.texts.pop(path, None)

    harness.host.before_read = remove_first
    before = len(harness.log.lines)
    assert replay(harness.world, netconf_of(harness), seconds=5)
    assert harness.log.lines[before:] == []


def test_one_that_cannot_be_read_under_the_lock_is_left(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)

    def damage_first() -> None:
        for path in list(harness.host.texts):
            if path.endswith(".json"):
                harness.host.texts[path] = PermissionError(13, "Permission denied")

    harness.host.before_lock = damage_first
    replay_all(harness)
    assert (harness.handles(), len(harness.release_records())) == (["net1.c1"], 1)


def test_one_that_the_kernel_refuses_is_named_and_stops_no_other(harness: CNINodeHarness) -> None:
    harness.dataplane.add_namespace(DEFAULT_CONTAINER.netns)
    harness.add(OTHER)

    def refuse_removal(effect: str) -> None:
        if effect.startswith("removing"):
            raise KernelError(effect, "Device or resource busy")

    def delete_first(_effect: str) -> None:
        harness.dataplane.before_effect = refuse_removal
        harness.run("DEL")

    harness.dataplane.before_effect = delete_first
    with pytest.raises(KernelError, match="busy"):
        harness.add()
    harness.dataplane.before_effect = lambda _effect: None
    delete_in_an_outage(harness, OTHER)
    harness.dataplane.before_effect = refuse_removal
    assert replay(harness.world, netconf_of(harness), seconds=5)
    assert harness.handles() == ["net1.c1"]
    (path,) = harness.release_records()
    assert warnings(harness)[-1][0] == "a release record cannot be done"
    assert attachment_of(path) in str(warnings(harness)[-1][1])
    harness.dataplane.before_effect = lambda _effect: None
    replay_all(harness)
    harness.assert_nothing_left()


# --- passed over ---------------------------------------------------------------------------------------------------


def test_damaged_records_stop_no_other_and_are_one_line_a_day(harness: CNINodeHarness) -> None:
    harness.add(OTHER)
    damage(harness, 2000)
    delete_in_an_outage(harness, OTHER)
    before = len(warnings(harness))
    replay_all(harness)
    assert (len(harness.release_records()), len(damaged(harness)), harness.handles()) == (0, 2000, [])
    assert harness.log.lines[-1] == (
        Level.WARNING,
        "release records wait that cannot be done here",
        {"foreign": 0, "damaged": 2000, "folder": FOLDER},
    )
    damage(harness, 1)
    replay_all(harness)
    assert len(warnings(harness)) == before + 1
    harness.clock.sleep(REPORT_EVERY_NS / 10**9)
    damage(harness, 1)
    replay_all(harness)
    assert len(warnings(harness)) == before + 2


@pytest.mark.parametrize("text", ["", "{}", '{"node": 1}', "[" * 100_000, PermissionError(13, "Permission denied")])
def test_whatever_cannot_be_read_is_set_aside(harness: CNINodeHarness, text: str | OSError) -> None:
    damage(harness, 1, text)
    replay_all(harness)
    assert (harness.release_records(), len(damaged(harness))) == ([], 1)
    assert [message for message, _path in warnings(harness)] == ["release records wait that cannot be done here"]


def test_a_damaged_record_that_cannot_be_moved_is_reported_too(harness: CNINodeHarness) -> None:
    damage(harness, 3)
    harness.store = FaultyDatastore(harness.memory, {})  # whose folder need not be renamed
    harness.host.unwritable.add(FOLDER)
    replay_all(harness)
    assert [message for message, _path in warnings(harness)] == [
        "release records cannot be counted"  # nor can the report be noted
    ]
    harness.host.unwritable.clear()
    replay_all(harness)
    assert len(damaged(harness)) == 3


def test_a_folder_that_cannot_be_listed_stops_nobody(harness: CNINodeHarness) -> None:
    harness.host.texts[FOLDER] = PermissionError(13, "Permission denied")
    assert harness.add().ips
    assert ("release records cannot be listed", FOLDER) in warnings(harness)


def test_records_of_another_datastore_stay(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    replay_all(harness, datastore_type="sqlite", sqlite_path="/other.db")
    assert len(harness.release_records()) == 1
    harness.add(DEFAULT_CONTAINER, datastore_type="sqlite", sqlite_path="/other.db")
    assert len(harness.release_records()) == 1


def test_the_record_of_an_attachment_with_a_call_at_work_is_left_to_that(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    held = harness.host.locks.try_lock(LOCK_FILE, attachment_lock_offset("net1", "c1", "eth0"))
    replay_all(harness)
    assert len(harness.release_records()) == 1
    assert held is not None
    held.release()
    replay_all(harness)
    harness.assert_nothing_left()


def test_a_record_that_another_call_does_meanwhile_is_passed_over(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)

    def drain_first() -> None:
        harness.host.before_lock = lambda: None
        replay_all(harness)

    harness.host.before_lock = drain_first
    replay_all(harness)
    harness.assert_nothing_left()
    assert harness.log.of(Level.INFO).count("release record done") == 1


# --- with an ADD of the same attachment ----------------------------------------------------------------------------


@pytest.mark.parametrize("plugin", Plugin)
def test_an_add_of_the_same_attachment_begins_with_nothing(harness: CNINodeHarness, plugin: Plugin) -> None:
    harness.dataplane.add_namespace(DEFAULT_CONTAINER.netns)
    harness.run("ADD", DEFAULT_CONTAINER, plugin)
    delete_in_an_outage(harness, DEFAULT_CONTAINER, plugin=plugin)
    result = harness.run("ADD", DEFAULT_CONTAINER, plugin)
    assert result is not None
    assert harness.release_records() == []
    replay_all(harness)
    assert set(harness.allocations()) == {config.address for config in result.ips}


@pytest.mark.parametrize("text", ["", "{", PermissionError(13, "Permission denied")])
@pytest.mark.parametrize("plugin", Plugin)
def test_an_add_does_its_own_record_even_if_that_is_damaged(
    harness: CNINodeHarness, plugin: Plugin, text: str | OSError
) -> None:
    """The name of the file says which attachment it is of, and the call knows the rest."""
    harness.dataplane.add_namespace(DEFAULT_CONTAINER.netns)
    harness.run("ADD", DEFAULT_CONTAINER, plugin)
    delete_in_an_outage(harness, DEFAULT_CONTAINER, plugin=plugin)
    (name,) = harness.release_records()
    harness.host.texts[f"{FOLDER}/{name}"] = text
    result = harness.run("ADD", DEFAULT_CONTAINER, plugin)
    assert result is not None
    assert harness.release_records() == []
    replay_all(harness)
    assert set(harness.allocations()) == {config.address for config in result.ips}


def test_an_add_whose_own_record_can_be_neither_read_nor_moved_names_the_file(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    (name,) = harness.release_records()
    harness.host.texts[f"{FOLDER}/{name}"] = PermissionError(13, "Permission denied")
    harness.host.unwritable.add(FOLDER)
    with pytest.raises(ConfigurationError, match=name):
        harness.add()
    assert harness.dataplane.names() == ()


def test_an_add_whose_record_cannot_be_read_at_the_end_takes_itself_back(harness: CNINodeHarness) -> None:
    harness.dataplane.add_namespace(DEFAULT_CONTAINER.netns)
    path = harness.record_files.write(location_of(harness), "x", "")
    own = []

    def damage_first(_effect: str) -> None:
        harness.dataplane.before_effect = lambda _effect: None
        harness.run("DEL")
        (name,) = (name for name in harness.release_records() if not path.endswith(name))
        own.append(f"{FOLDER}/{name}")
        harness.host.texts[own[0]] = PermissionError(13, "Permission denied")

    harness.dataplane.before_effect = damage_first
    with pytest.raises(DeletedMeanwhile):
        harness.add()
    assert (harness.allocations(), harness.dataplane.names()) == ({}, ())


def test_an_add_takes_itself_back_if_a_del_could_not_wait_for_it(harness: CNINodeHarness) -> None:
    harness.dataplane.add_namespace(DEFAULT_CONTAINER.netns)

    def delete_first(_effect: str) -> None:
        harness.dataplane.before_effect = lambda _effect: None
        harness.run("DEL")
        assert len(harness.release_records()) == 1

    harness.dataplane.before_effect = delete_first
    with pytest.raises(DeletedMeanwhile):
        harness.add()
    assert (harness.allocations(), harness.dataplane.names()) == ({}, ())
    replay_all(harness)
    harness.assert_nothing_left()


def test_an_add_whose_interface_cannot_be_removed_keeps_its_addresses(harness: CNINodeHarness) -> None:
    """They must not return to their pool while the interface answers for them; the record is still there."""
    harness.dataplane.add_namespace(DEFAULT_CONTAINER.netns)

    def refuse_removal(effect: str) -> None:
        if effect.startswith("removing"):
            raise KernelError(effect, "Device or resource busy")

    def delete_first(_effect: str) -> None:
        harness.dataplane.before_effect = refuse_removal
        harness.run("DEL")

    harness.dataplane.before_effect = delete_first
    with pytest.raises(KernelError, match="busy"):
        harness.add()
    assert (harness.handles(), len(harness.dataplane.names())) == (["net1.c1"], 1)
    harness.dataplane.before_effect = lambda _effect: None
    replay_all(harness)
    harness.assert_nothing_left()


def test_netplug_ipam_takes_itself_back_too(harness: CNINodeHarness) -> None:
    def delete_first() -> None:
        store.before_commit = lambda: None
        harness.run("DEL", DEFAULT_CONTAINER, Plugin.IPAM)

    store = harness.store = HookedStore(harness.memory, before_commit=delete_first)
    with pytest.raises(DeletedMeanwhile):
        harness.run("ADD", DEFAULT_CONTAINER, Plugin.IPAM)
    assert harness.allocations() == {}
    replay_all(harness)
    harness.assert_nothing_left()


def test_a_record_that_comes_after_the_last_look_is_done_next(harness: CNINodeHarness) -> None:
    class LateDelete(RecordingLog):
        def __call__(self, level: Level, message: str, /, **fields: object) -> None:
            super().__call__(level, message, **fields)
            if message == "container attached":
                delete_in_an_outage(harness, DEFAULT_CONTAINER)

    harness.log = LateDelete()
    harness.add()
    harness.assert_nothing_left()


def test_a_del_that_succeeds_takes_its_record_with_it(harness: CNINodeHarness) -> None:
    harness.add()
    harness.store = FaultyDatastore(harness.memory, {1: LostReply(), 2: LostRequest()})
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    harness.run("DEL")
    harness.assert_nothing_left()


@pytest.mark.parametrize("plugin", Plugin)
def test_a_del_that_succeeds_takes_a_damaged_record_with_it(harness: CNINodeHarness, plugin: Plugin) -> None:
    harness.dataplane.add_namespace(DEFAULT_CONTAINER.netns)
    harness.run("ADD", DEFAULT_CONTAINER, plugin)
    delete_in_an_outage(harness, DEFAULT_CONTAINER, plugin=plugin)
    (name,) = harness.release_records()
    harness.host.texts[f"{FOLDER}/{name}"] = "{"
    harness.run("DEL", DEFAULT_CONTAINER, plugin)
    assert (harness.handles(), harness.release_records(), damaged(harness)) == ([], [], [])


def test_a_del_that_succeeds_leaves_what_it_cannot_read(harness: CNINodeHarness) -> None:
    harness.replay_time = ReplayTime.BY_TASK
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    (name,) = harness.release_records()
    harness.host.texts[f"{FOLDER}/{name}"] = PermissionError(13, "Permission denied")
    harness.run("DEL")
    assert (harness.handles(), harness.release_records()) == ([], [name])


def test_where_nothing_can_be_locked_a_del_leaves_its_record_to_a_replay(harness: CNINodeHarness) -> None:
    """Another call of the attachment may be at work."""
    harness.replay_time = ReplayTime.BY_TASK
    harness.run("ADD", DEFAULT_CONTAINER, Plugin.IPAM)
    delete_in_an_outage(harness, DEFAULT_CONTAINER, plugin=Plugin.IPAM)
    harness.host.locks.errors[LOCK_FILE] = PermissionError(13, "Permission denied")
    harness.run("DEL", DEFAULT_CONTAINER, Plugin.IPAM)
    assert (harness.handles(), len(harness.release_records())) == ([], 1)


def test_a_del_of_addresses_leaves_a_record_of_the_interface(harness: CNINodeHarness) -> None:
    harness.replay_time = ReplayTime.BY_TASK
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    harness.run("DEL", DEFAULT_CONTAINER, Plugin.IPAM)
    assert len(harness.release_records()) == 1


# --- whose they are ------------------------------------------------------------------------------------------------


def test_a_call_of_a_process_with_a_task_replays_none(harness: CNINodeHarness) -> None:
    harness.replay_time = ReplayTime.BY_TASK
    for container in CONTAINERS:
        harness.add(container)
    delete_in_an_outage(harness, *CONTAINERS)
    before = harness.release_records()
    harness.add(OTHER)
    harness.run("DEL", OTHER)
    harness.run("GC", OTHER, Plugin.MAIN, **NO_VALID_ATTACHMENTS)
    assert harness.release_records() == before
    assert replay(harness.world, netconf_of(harness), seconds=5) is True
    harness.assert_nothing_left()


def test_the_first_replay_gives_the_folder_the_name_of_the_store(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    held = harness.host.locks.try_lock(LOCK_FILE, attachment_lock_offset("net1", "c1", "eth0"))
    assert held is not None
    replay_all(harness)
    identity = harness.memory.find_identity(deadline=Deadline.after(harness.clock, 1))
    (name,) = harness.release_records()
    assert name == f"stores/memory-{identity}/{attachment_of(name)}.json"
    held.release()
    replay_all(harness)
    harness.assert_nothing_left()


def test_a_record_is_found_by_another_address_of_the_same_store(harness: CNINodeHarness) -> None:
    """A member is added to the configured list of an etcd's."""
    one, two = ({"datastore_type": "etcdv3", "etcd_endpoints": f"http://{text}:1"} for text in ("a", "a:1,http://b"))
    assert location_of(harness, **one) != location_of(harness, **two)
    replay_all(harness, **one)
    for changes in (one, two):
        harness.add()
        harness.record_files.write(location_of(harness), "x", "")  # so that somebody asks which store it is
        replay_all(harness, **one)
        harness.record_files.remove(location_of(harness), "x", "")
        away = AwayStore(harness.memory, Unavailable("the store", "connection refused"))
        harness.store = away
        harness.run("DEL", DEFAULT_CONTAINER, Plugin.MAIN, **one)
        harness.store = harness.memory
        assert has_work(harness.record_files, netconf_of(harness, **changes))
        replay_all(harness, **changes)
        harness.assert_nothing_left()


def test_a_store_that_does_not_say_which_it_is_keeps_the_folder_of_its_place(harness: CNINodeHarness) -> None:
    def refuse(*, deadline: Deadline) -> str:
        raise Unauthorized("the store", f"a right is missing, {deadline.remaining_s:g} s")

    for store in (FaultyDatastore(harness.memory, {}), IdentifiedStore(harness.memory, refuse)):
        harness.add()
        delete_in_an_outage(harness, DEFAULT_CONTAINER)
        harness.store = store
        replay_all(harness)
        assert harness.record_files.find_store(location_of(harness)) is None
        harness.store = harness.memory
        harness.assert_nothing_left()


def test_an_identity_that_can_be_no_name_of_a_folder_is_hashed(harness: CNINodeHarness) -> None:
    damage(harness, 1)
    harness.store = IdentifiedStore(harness.memory, lambda *, deadline: f"../../etc/{'x' * 300 * bool(deadline)}")
    replay_all(harness)
    store = harness.record_files.find_store(location_of(harness))
    assert store is not None
    assert re.fullmatch(r"store-[0-9a-f]{16}", store)


def test_records_of_other_stores_cost_a_call_nothing_and_own_ones_are_done(harness: CNINodeHarness) -> None:
    for number in range(10_000):
        harness.host.texts[f"{FOLDER}/stores/etcdv3-{number % 7}/{number:026}.json"] = "{}"
    containers = tuple(ContainerInterface(id=f"own-{n}", netns=f"/run/netns/own-{n}") for n in range(10))
    for container in containers:
        harness.add(container)
    delete_in_an_outage(harness, *containers)
    read: list[str] = []
    harness.host.before_read = read.append
    harness.add()
    assert not [path for path in read if "/etcdv3-" in path]
    assert harness.handles() == ["net1.c1"]
    assert len(harness.release_records()) == 10_000


# --- of earlier releases -------------------------------------------------------------------------------------------


def as_of_earlier_releases(harness: CNINodeHarness) -> list[str]:
    """Bring the records to the form of earlier releases: all in one folder, each with its time in its name."""
    names = []
    for path in [f"{FOLDER}/{name}" for name in harness.release_records()]:
        text = str(harness.host.texts.pop(path))
        names.append(f"{json.loads(text)['created']:020}-{attachment_of(path)}.json")
        harness.host.texts[f"{FOLDER}/{names[-1]}"] = text
    for path in [path for path in harness.host.texts if path.startswith((f"{FOLDER}/loc", f"{FOLDER}/lay"))]:
        del harness.host.texts[path]
    return names


@pytest.mark.parametrize("command", ["DEL", "GC"])
def test_records_of_earlier_releases_are_taken_over(harness: CNINodeHarness, command: str) -> None:
    for container in CONTAINERS:
        harness.add(container)
    delete_in_an_outage(harness, *CONTAINERS)
    assert len(as_of_earlier_releases(harness)) == 3
    harness.run(command, OTHER, Plugin.MAIN, **NO_VALID_ATTACHMENTS)
    harness.assert_nothing_left()
    assert f"{FOLDER}/layout" in harness.host.texts


@pytest.mark.parametrize("command", ["ADD", "DEL"])
def test_a_call_does_that_of_its_own_attachment_first(harness: CNINodeHarness, command: str) -> None:
    harness.replay_time = ReplayTime.BY_TASK
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    as_of_earlier_releases(harness)
    harness.run(command)
    assert harness.release_records() == []
    assert len(harness.allocations()) == (command == "ADD")


def test_two_of_one_attachment_become_one(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    (first,) = as_of_earlier_releases(harness)
    delete_in_an_outage(harness, DEFAULT_CONTAINER, plugin=Plugin.IPAM)
    take_over(harness.record_files, harness.log)
    (name,) = harness.release_records()
    assert name != first
    record = json.loads(str(harness.host.texts[f"{FOLDER}/{name}"]))
    assert (record["hasInterface"], record["created"]) == (True, harness.clock.now_ns())
    replay_all(harness)
    harness.assert_nothing_left()


@pytest.mark.parametrize("text", ["{", '"x"', PermissionError(13, "Permission denied"), None])
def test_one_that_nobody_can_read_is_set_aside(harness: CNINodeHarness, text: str | OSError | None) -> None:
    """Or says a datastore that is none."""
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    (name,) = as_of_earlier_releases(harness)
    record = {**json.loads(str(harness.host.texts[f"{FOLDER}/{name}"])), "datastore": "../x"}
    harness.host.texts[f"{FOLDER}/{name}"] = json.dumps(record) if text is None else text
    take_over(harness.record_files, harness.log)
    if isinstance(text, OSError):  # the file may be readable again
        assert warnings(harness)[-1] == ("a release record cannot be moved", f"{FOLDER}/{name}")
    else:
        assert damaged(harness) == [f"{FOLDER}/stores/former/{name.removesuffix('.json')}.damaged"]


def test_one_that_another_process_moves_is_passed_over(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    (name,) = as_of_earlier_releases(harness)

    def move_first(path: str) -> None:
        if path.endswith(name):
            harness.host.texts.pop(path, None)

    harness.host.before_read = move_first
    take_over(harness.record_files, harness.log)
    assert (harness.release_records(), warnings(harness)[1:]) == ([], [])


def test_what_is_not_taken_over_in_time_waits(harness: CNINodeHarness) -> None:
    for container in CONTAINERS:
        harness.add(container)
    delete_in_an_outage(harness, *CONTAINERS)
    as_of_earlier_releases(harness)
    deadline = Deadline.after(harness.clock, 0.5)
    harness.host.before_read = lambda _path: harness.clock.sleep(1)
    take_over(harness.record_files, harness.log, deadline)
    assert len(harness.record_files.list_former()) == 2


def test_a_folder_that_cannot_be_listed_is_named(harness: CNINodeHarness) -> None:
    harness.host.texts[FOLDER] = PermissionError(13, "Permission denied")
    take_over(harness.record_files, harness.log)
    keep_house(harness.record_files, (), harness.clock, harness.log)
    assert warnings(harness) == [
        ("release records cannot be listed", FOLDER),
        ("release records cannot be put away", FOLDER),
        ("release records cannot be counted", FOLDER),
    ]


# --- housekeeping --------------------------------------------------------------------------------------------------


def test_what_nobody_can_do_is_reported_once_a_day_and_put_away_after_thirty(harness: CNINodeHarness) -> None:
    files, location = harness.record_files, location_of(harness)
    for number in range(500):
        files.write("f" * 16, f"{number:026}", "{}")
    damage(harness, 3)
    files.set_aside(location, f"{0:026}", None)
    own = files.write(location, "own", "{}")
    assert files.count((location,)) == RecordCounts(own=3, foreign=500, damaged=1)

    def keep(days: float) -> list[tuple[str, dict[str, object]]]:
        harness.log.lines.clear()
        harness.clock.sleep(days * 24 * 3600)
        keep_house(files, (location,), harness.clock, harness.log)
        return [(message, fields) for _level, message, fields in harness.log.lines]

    report = "release records wait that cannot be done here", {"foreign": 500, "damaged": 1, "folder": FOLDER}
    assert keep(0) == [report]
    assert keep(0.9) == []
    assert keep(0.1) == [report]
    assert keep(ORPHANED_AFTER_NS / 10**9 / 24 / 3600 - 1) == [report]
    assert keep(0.01) == [("old release records put away", {"count": 501, "folder": f"{FOLDER}/orphaned"})]
    assert keep(2) == []
    assert files.count((location,)) == RecordCounts(own=3)
    assert own in harness.host.texts


def test_without_records_there_is_nothing_to_do(harness: CNINodeHarness) -> None:
    assert not has_work(harness.record_files, netconf_of(harness))
    keep_house(harness.record_files, locations_of(netconf_of(harness)), harness.clock, harness.log)
    assert harness.log.lines == []
