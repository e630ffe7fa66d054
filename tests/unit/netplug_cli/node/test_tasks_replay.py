"""For which configurations release records are replayed, how often, and what is opened for it."""

from pathlib import Path

from attrs import define, evolve, field

from netplug_backends.host.release_records import ReleaseRecordFolder
from netplug_cli.node.tasks import LONGEST_PAUSE_S, MAX_CONFIGURATIONS, REPLAY_EVERY_S, RecordReplay
from netplug_core.cni.request import CNIRequest
from netplug_core.flows.cni.release_records import locations_of
from netplug_core.flows.world import RecordCounts
from netplug_core.log import Level
from netplug_core.netconf.model import HOST_LOCAL_IPAM, IPAMConfig, NetConf
from netplug_core.reconcile.controller import Outcome
from netplug_core.settings.model import DatastoreSettings
from netplug_core.testing.clock import ManualClock
from tests.harness.controllers import DrivenControllers
from tests.harness.node_server import Lines


@define
class Scene:
    """A process with a controller whose passes a test makes."""

    folder: Path
    is_reached: bool = True
    failure: Exception | None = None
    log: Lines = field(factory=Lines)
    clock: ManualClock = field(factory=ManualClock)
    replayed: list[NetConf] = field(factory=list)
    records: RecordReplay = field(init=False)
    outcome: Outcome = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.records = RecordReplay(self._replay, ReleaseRecordFolder, clock=self.clock, log=self.log)

    def _replay(self, netconf: NetConf, request: CNIRequest | None) -> bool:
        assert request is None
        self.replayed.append(netconf)
        if self.failure:
            raise self.failure
        return self.is_reached

    def netconf(self, name: str, ipam: IPAMConfig = IPAMConfig()) -> NetConf:  # noqa: B008  it is a value
        """A configuration of a datastore."""
        settings = DatastoreSettings(type="sqlite", sqlite_path=f"/{name}.db")
        return NetConf(datastore=settings, ipam=ipam, release_record_dir=str(self.folder))

    def note(self, *configurations: NetConf, has_record: bool = True) -> None:
        """A call comes with each, and leaves a record."""
        for each in configurations:
            self.records.note(each, None)
            if has_record:
                ReleaseRecordFolder(str(self.folder)).write(locations_of(each)[0], "a" * 26, "{}")

    def run(self) -> list[NetConf]:
        """One look at the records; whose were replayed."""
        self.replayed.clear()
        self.outcome = self.records.controller().reconcile(self.clock, lambda: True)
        return list(self.replayed)


def test_the_newest_of_each_configuration_is_used(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    newer = scene.netconf("a", IPAMConfig(assign_ipv6=True))
    scene.note(scene.netconf("a"), newer, scene.netconf("b"))
    assert scene.run() == [newer, scene.netconf("b")]


def test_no_datastore_is_opened_for_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.note(scene.netconf("a"), has_record=False)
    assert scene.run() == []
    scene.note(scene.netconf("b"))  # one of another store, which may be the same: a asks once
    assert scene.run() == [scene.netconf("a"), scene.netconf("b")]
    ReleaseRecordFolder(str(tmp_path)).lead(locations_of(scene.netconf("a"))[0], "sqlite-1")
    assert scene.run() == [scene.netconf("b")]


def test_those_of_another_ipam_are_replayed_too(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    both = (
        scene.netconf("b", IPAMConfig(type="static", is_delegated=True)),
        scene.netconf("c", IPAMConfig(type=HOST_LOCAL_IPAM)),
    )
    scene.note(*both)
    assert tuple(scene.run()) == both


def test_beyond_so_many_configurations_the_oldest_is_forgotten(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    noted = [scene.netconf(f"{number}") for number in range(MAX_CONFIGURATIONS + 2)]
    scene.note(*noted)
    assert scene.run() == noted[2:]


def test_a_datastore_that_stays_away_is_tried_less_and_less_often_until_a_call_comes(tmp_path: Path) -> None:
    scene = Scene(tmp_path, is_reached=False)
    scene.note(scene.netconf("dead"), scene.netconf("live"))
    tries = 0
    for _ in range(360):  # an hour
        scene.note(scene.netconf("live"))
        found = scene.run()
        assert scene.netconf("live") in found
        tries += scene.netconf("dead") in found
        scene.clock.sleep(REPLAY_EVERY_S)
    assert 3600 / LONGEST_PAUSE_S < tries < 15
    scene.note(scene.netconf("dead"))
    assert scene.netconf("dead") in scene.run()


def test_a_failure_of_one_configuration_is_a_problem_and_stops_no_other_one(tmp_path: Path) -> None:
    scene = Scene(tmp_path, failure=ZeroDivisionError())
    scene.note(scene.netconf("a"), scene.netconf("b"))
    assert scene.run() == [scene.netconf("a"), scene.netconf("b")]
    assert {each.message for each in scene.outcome.problems} == {"release records: an unexpected error"}
    assert {each.level for each in scene.outcome.problems} == {Level.ERROR}
    assert scene.run() == [], "each is tried again after a pause"
    scene.clock.sleep(REPLAY_EVERY_S)
    assert scene.run() == [scene.netconf("a"), scene.netconf("b")]


def test_the_records_are_looked_at_every_few_seconds(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    driven = DrivenControllers([scene.records.controller()], clock=scene.clock, log=scene.log)
    driven.pass_time()
    scene.note(scene.netconf("a"))
    driven.pass_time(REPLAY_EVERY_S - 1)
    assert scene.replayed == []
    driven.pass_time(1)
    assert scene.replayed == [scene.netconf("a")]


def test_records_are_counted_and_taken_over_in_the_folders_of_known_configurations(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "one")
    assert scene.records.count() == RecordCounts()
    scene.note(scene.netconf("a"), scene.netconf("b"))
    scene.records.note(evolve(scene.netconf("c"), release_record_dir=str(tmp_path / "none")), None)
    files = ReleaseRecordFolder(str(tmp_path / "one"))
    files.write("f" * 16, "b" * 26, "{}")
    files.write("f" * 16, "c" * 26, "{")
    files.set_aside("f" * 16, "c" * 26, None)
    (tmp_path / "one" / f"{7:020}-{'c' * 26}.json").write_text("{")
    assert scene.records.count() == RecordCounts(own=2, foreign=1, damaged=1)
    scene.run()
    assert scene.records.count() == RecordCounts(own=2, foreign=1, damaged=2)


def test_what_nobody_can_do_is_named_after_a_minute_and_then_once_a_day(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.note(scene.netconf("a"), has_record=False)
    for number in range(500):
        ReleaseRecordFolder(str(tmp_path)).write("f" * 16, f"{number:026}", "{}")

    def lines_of(seconds: float) -> list[str]:
        end = scene.clock.monotonic() + seconds
        while scene.clock.monotonic() < end:
            scene.run()
            scene.clock.sleep(600)
        return scene.log.texts

    scene.run()
    assert scene.log.texts == []
    lines = lines_of(23 * 3600)
    assert len(lines) == 1
    assert lines[0].startswith("WARNING release records wait that cannot be done here")
    assert len(lines_of(3 * 3600)) == 2
