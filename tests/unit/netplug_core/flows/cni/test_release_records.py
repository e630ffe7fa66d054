"""Release records: a DEL without its datastore cleans the node and succeeds; what is left is done later, and once."""

import json

import pytest

from netplug_core.cni.dispatch import Plugin
from netplug_core.dataplane.protocol import KernelError
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import ConfigurationError, NetplugError, Unavailable, UnusableFile
from netplug_core.flows.cni.add import DeletedMeanwhile
from netplug_core.flows.cni.release_records import DRAIN_S, drain
from netplug_core.log import Level
from netplug_core.names import attachment_lock_offset
from netplug_core.netconf.model import NetConf
from netplug_core.testing.faults import FaultyDatastore, LostReply, LostRequest, ProcessDeath, ProcessDied
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

FOLDER = NetConf().release_record_dir
OTHER = ContainerInterface(id="c2", netns="/run/netns/c2")
CONTAINERS = tuple(ContainerInterface(id=f"old-{n}", netns=f"/run/netns/old-{n}", args=POD) for n in range(3))


class AwayStore(HookedStore):
    """A store that does not answer."""

    def __init__(self, inner: Datastore, error: NetplugError) -> None:
        def fail() -> None:
            raise error

        super().__init__(inner, before_read=fail, before_commit=fail)


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


def drain_all(harness: CNINodeHarness, **changes: object) -> None:
    """What a call does after its own work."""
    _request, netconf = harness.make_call("DEL", DEFAULT_CONTAINER, Plugin.MAIN, **changes)
    drain(harness.world, netconf)


def warnings(harness: CNINodeHarness) -> list[tuple[str, object]]:
    return [(message, fields["path"]) for level, message, fields in harness.log.lines if level is Level.WARNING]


# --- written -------------------------------------------------------------------------------------------------------


def test_a_del_in_an_outage_leaves_a_clean_node_and_one_record(harness: CNINodeHarness) -> None:
    pod = ContainerInterface(args=f"{POD};K8S_POD_UID=u-1")
    harness.add(pod, ipam=DUAL_STACK)
    delete_in_an_outage(harness, pod)
    assert (harness.dataplane.names(), harness.dataplane.host_routes()) == ((), ())
    assert harness.handles() == ["net1.c1"]
    (name,) = harness.release_records()
    path = f"{FOLDER}/{name}"
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
    drain_all(harness)
    harness.assert_nothing_left()


@pytest.mark.parametrize(
    "error", [UnusableFile("etcd_cert_file", "/gone.pem", "it does not exist"), Unavailable("the store", "401")]
)
def test_a_store_that_cannot_be_used_is_an_outage_too(harness: CNINodeHarness, error: NetplugError) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER, error=error)
    assert (harness.dataplane.names(), len(harness.release_records())) == ((), 1)
    drain_all(harness)
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
    assert int(name.partition("-")[0]) == harness.clock.now_ns() - 10**9
    drain_all(harness)
    harness.assert_nothing_left()


def test_a_repeated_del_leaves_what_is_more_than_itself(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    harness.clock.sleep(1)
    delete_in_an_outage(harness, DEFAULT_CONTAINER, plugin=Plugin.IPAM)
    assert len(harness.release_records()) == 2
    drain_all(harness)
    harness.assert_nothing_left()


def test_a_repeated_del_leaves_a_damaged_record(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    (damaged,) = harness.release_records()
    harness.host.texts[f"{FOLDER}/{damaged}"] = "{"
    harness.clock.sleep(1)
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    assert len(harness.release_records()) == 2
    assert damaged in harness.release_records()


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
    names = harness.release_records()
    harness.store = HookedStore(harness.memory, before_read=lambda: harness.clock.sleep(0.05))
    began = harness.clock.monotonic()
    drain_all(harness)
    assert harness.clock.monotonic() - began < 2 * DRAIN_S
    left = harness.release_records()
    assert left == names[-len(left) :]
    assert 0 < len(left) < 3
    harness.store = harness.memory
    harness.run("GC", OTHER, Plugin.MAIN, **{"cni.dev/valid-attachments": []})
    harness.assert_nothing_left()


def test_without_time_none_is_begun(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    _request, netconf = harness.make_call("DEL", DEFAULT_CONTAINER, Plugin.MAIN)
    drain(harness.world, netconf, seconds=0)
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
    drain_all(harness)
    assert len(harness.release_records()) == 2
    assert "release records stay for a later call" in harness.log.of(Level.INFO)
    harness.store = harness.memory
    drain_all(harness)
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
        drain_all(harness)
    harness.host.locks.release_all()
    assert len(harness.release_records()) == 4 - number
    harness.store = harness.memory
    drain_all(harness)
    harness.assert_nothing_left()


def test_one_that_was_done_and_is_still_there_is_done_again_and_finds_nothing(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    harness.host.unwritable.add(FOLDER)
    drain_all(harness)
    assert harness.handles() == []
    assert "a release record cannot be removed" in harness.log.of(Level.WARNING)
    harness.add(OTHER)
    held = harness.allocations()
    harness.host.unwritable.clear()
    drain_all(harness)
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
    drain_all(harness)
    assert harness.allocations() == held
    assert other in held
    assert address.family is other.family


# --- passed over ---------------------------------------------------------------------------------------------------


def test_a_damaged_record_is_named_and_stops_no_other(harness: CNINodeHarness) -> None:
    harness.add(OTHER)
    delete_in_an_outage(harness, OTHER)
    texts = {"0": "{", "1": "{}", "2": '{"node": 1}', "3": "[" * 100_000}
    for number, text in texts.items():
        harness.host.texts[f"{FOLDER}/{number}-x.json"] = text
    drain_all(harness)
    assert harness.release_records() == [f"{number}-x.json" for number in texts]
    assert warnings(harness)[-4:] == [
        ("a release record cannot be done", f"{FOLDER}/{number}-x.json") for number in texts
    ]
    assert harness.handles() == []


def test_a_record_that_cannot_be_read_is_named(harness: CNINodeHarness) -> None:
    harness.host.texts[f"{FOLDER}/1-x.json"] = PermissionError(13, "Permission denied")
    drain_all(harness)
    assert warnings(harness) == [("a release record cannot be done", f"{FOLDER}/1-x.json")]


def test_a_folder_that_cannot_be_listed_stops_nobody(harness: CNINodeHarness) -> None:
    harness.host.texts[FOLDER] = PermissionError(13, "Permission denied")
    assert harness.add().ips
    assert ("release records cannot be listed", FOLDER) in warnings(harness)


def test_records_of_another_datastore_stay(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    drain_all(harness, datastore_type="sqlite", sqlite_path="/other.db")
    assert len(harness.release_records()) == 1
    harness.add(DEFAULT_CONTAINER, datastore_type="sqlite", sqlite_path="/other.db")
    assert len(harness.release_records()) == 1


def test_the_record_of_an_attachment_with_a_call_at_work_is_left_to_that(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    held = harness.host.locks.try_lock(LOCK_FILE, attachment_lock_offset("net1", "c1", "eth0"))
    drain_all(harness)
    assert len(harness.release_records()) == 1
    assert held is not None
    held.release()
    drain_all(harness)
    harness.assert_nothing_left()


def test_a_record_that_another_call_does_meanwhile_is_passed_over(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)

    def drain_first() -> None:
        harness.host.before_lock = lambda: None
        drain_all(harness)

    harness.host.before_lock = drain_first
    drain_all(harness)
    harness.assert_nothing_left()
    assert harness.log.of(Level.INFO).count("release record done") == 1


def test_a_file_whose_writer_was_killed_is_removed_after_a_minute(harness: CNINodeHarness) -> None:
    fresh = f"{harness.clock.now_ns():020}-x.json.tmp"
    harness.host.texts |= {f"{FOLDER}/{fresh}": "{", f"{FOLDER}/x.json.tmp": "{"}
    drain_all(harness)
    assert harness.release_records() == [fresh]
    harness.clock.sleep(61)
    drain_all(harness)
    assert harness.release_records() == []


# --- with an ADD of the same attachment ----------------------------------------------------------------------------


@pytest.mark.parametrize("plugin", Plugin)
def test_an_add_of_the_same_attachment_begins_with_nothing(harness: CNINodeHarness, plugin: Plugin) -> None:
    harness.dataplane.add_namespace(DEFAULT_CONTAINER.netns)
    harness.run("ADD", DEFAULT_CONTAINER, plugin)
    delete_in_an_outage(harness, DEFAULT_CONTAINER, plugin=plugin)
    result = harness.run("ADD", DEFAULT_CONTAINER, plugin)
    assert result is not None
    assert harness.release_records() == []
    drain_all(harness)
    assert set(harness.allocations()) == {config.address for config in result.ips}


def test_an_add_whose_own_record_is_damaged_names_the_file(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    (name,) = harness.release_records()
    harness.host.texts[f"{FOLDER}/{name}"] = ""
    with pytest.raises(ConfigurationError, match=name):
        harness.add()
    assert harness.dataplane.names() == ()


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
    drain_all(harness)
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
    drain_all(harness)
    harness.assert_nothing_left()


def test_netplug_ipam_takes_itself_back_too(harness: CNINodeHarness) -> None:
    def delete_first() -> None:
        store.before_commit = lambda: None
        harness.run("DEL", DEFAULT_CONTAINER, Plugin.IPAM)

    store = harness.store = HookedStore(harness.memory, before_commit=delete_first)
    with pytest.raises(DeletedMeanwhile):
        harness.run("ADD", DEFAULT_CONTAINER, Plugin.IPAM)
    assert harness.allocations() == {}
    drain_all(harness)
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


def test_a_del_succeeds_beside_a_damaged_record_of_its_own(harness: CNINodeHarness) -> None:
    harness.add()
    delete_in_an_outage(harness, DEFAULT_CONTAINER)
    (name,) = harness.release_records()
    harness.host.texts[f"{FOLDER}/{name}"] = "{"
    harness.run("DEL")
    assert (harness.handles(), harness.release_records()) == ([], [name])
    assert warnings(harness)[-1] == ("a release record cannot be done", f"{FOLDER}/{name}")
