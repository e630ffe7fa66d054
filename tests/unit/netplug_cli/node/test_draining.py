"""For which configurations release records are done, and how often."""

from pathlib import Path
from threading import Event, Thread

from attrs import evolve

from netplug_cli.node.draining import MAX_CONFIGURATIONS, RecordDrain
from netplug_core.netconf.model import HOST_LOCAL_IPAM, IPAMConfig, NetConf
from netplug_core.settings.model import DatastoreSettings
from tests.harness.node_server import Lines
from tests.harness.waiting import wait_until


def netconf(name: str, ipam: IPAMConfig = IPAMConfig()) -> NetConf:  # noqa: B008  it is a value
    return NetConf(datastore=DatastoreSettings(type="sqlite", sqlite_path=f"/{name}.db"), ipam=ipam)


def drained(*noted: NetConf, failing: str = "", log: Lines | None = None) -> list[NetConf]:
    """The configurations whose records are done, each at least twice."""
    found: list[NetConf] = []
    twice = Event()

    def drain(each: NetConf) -> None:
        found.append(each)
        if found.count(each) > 1:
            twice.set()
        if failing and failing in each.datastore.sqlite_path:
            raise ZeroDivisionError

    records = RecordDrain(drain, log=log or Lines(), every_s=0.001)
    for each in noted:
        records.note(each)
    records.task.start()
    assert twice.wait(60)
    records.task.stop()
    return found


def test_records_are_done_again_and_again_with_the_newest_of_each_configuration() -> None:
    newer = netconf("a", IPAMConfig(assign_ipv6=True))
    assert set(drained(netconf("a"), newer, netconf("b"))) == {newer, netconf("b")}


def test_another_ipam_keeps_its_records_for_a_call() -> None:
    delegated = netconf("b", IPAMConfig(type="static", is_delegated=True))
    assert set(drained(netconf("a"), delegated, netconf("c", IPAMConfig(type=HOST_LOCAL_IPAM)))) == {netconf("a")}


def test_only_so_many_configurations_are_kept() -> None:
    noted = [netconf(f"{number}") for number in range(MAX_CONFIGURATIONS + 2)]
    assert set(drained(*noted)) <= set(noted[:MAX_CONFIGURATIONS])


def test_a_failure_is_logged_and_not_the_end() -> None:
    log = Lines()
    assert len(drained(netconf("a"), failing="a", log=log)) > 1
    assert log.texts[0].startswith("ERROR release records could not be done\nTraceback ")


def test_it_ends_between_two_configurations() -> None:
    begun, end = Event(), Event()
    found: list[NetConf] = []

    def drain(each: NetConf) -> None:
        found.append(each)
        begun.set()
        end.wait(60)

    records = RecordDrain(drain, log=Lines(), every_s=0.001)
    records.note(netconf("a"))
    records.note(netconf("b"))
    records.task.start()
    assert begun.wait(60)
    stopping = Thread(target=records.task.stop)
    stopping.start()
    wait_until(lambda: records.task.is_stopping, "it is asked to end")
    end.set()
    stopping.join()
    assert found == [netconf("a")]


def test_records_are_counted_in_the_folders_of_known_configurations(tmp_path: Path) -> None:
    for name in ("1-a.json", "2-b.json", "3-c.tmp"):
        (tmp_path / name).touch()
    records = RecordDrain(lambda _netconf: None, log=Lines())
    assert records.count_waiting() == 0
    for name in ("a", "b"):
        records.note(evolve(netconf(name), release_record_dir=str(tmp_path)))
    records.note(evolve(netconf("c"), release_record_dir=str(tmp_path / "none")))
    assert records.count_waiting() == 2
