"""What a process remembers of records that it cannot read: settings, and what it said already."""

from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.ipam.outcome import (
    FORGOTTEN_AFTER_S,
    BlockOutcome,
    BlockTrace,
    PoolOutcome,
    PoolTrace,
    RecordMemory,
    RecordTrace,
)
from netplug_core.records import Get, Malformed, ReadResult, Record, Revision, Snapshot
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPAM_CONFIGURATION_KEY, IPAMConfiguration, IPAMConfigurationSpec

SETTINGS = IPAMConfiguration(metadata=Metadata(name="default"), spec=IPAMConfigurationSpec(cooldown_s=7))
QUERY = Get(IPAM_CONFIGURATION_KEY)
ERROR = Malformed("IPAMConfiguration(default)", "no JSON", Revision("2"))
POOL = PoolTrace(
    pool="main", prefix=Prefix.parse("10.0.0.0/24"), outcome=PoolOutcome.UNREADABLE_SELECTOR, detail="spec.nodeSelector"
)
NODE = RecordTrace(kind="Node", record="Node(a)", problem="the stored record Node(a) is malformed: no JSON")


def read(result: ReadResult) -> Snapshot:
    return Snapshot({QUERY: result}, {})


STORED = read(ReadResult((Record(IPAM_CONFIGURATION_KEY, SETTINGS, Revision("1")),)))
DAMAGED = read(ReadResult((), malformed=(ERROR,)))


def counted(memory: RecordMemory) -> object | None:
    (error,) = memory.completed(DAMAGED).malformed(QUERY)
    assert error.revision == "2"
    return error.counts_as


def test_settings_that_cannot_be_read_count_as_they_were_last_known() -> None:
    memory = RecordMemory()
    assert counted(memory) is None
    assert memory.completed(STORED) is STORED
    assert counted(memory) is SETTINGS
    assert memory.completed(Snapshot.empty()).results == {}
    assert counted(memory) is SETTINGS
    memory.completed(read(ReadResult(())))
    assert counted(memory) is None, "they were gone before they were damaged"


def test_each_change_is_said_once() -> None:
    memory, other = RecordMemory(), evolve(POOL, detail="spec.namespaceSelector")
    block = BlockTrace(block=Prefix.parse("10.0.0.0/26"), outcome=BlockOutcome.UNREADABLE)
    assert memory.note((block,), 0) == (str(block),)
    assert memory.note((POOL, block, NODE), 1) == (str(POOL), str(NODE))
    assert memory.note((NODE, POOL), 2) == ()
    assert memory.note((other, NODE), 3) == (str(other),)
    assert memory.note((POOL,), 4) == (str(POOL),)


def test_what_was_not_passed_over_for_a_while_counts_as_repaired() -> None:
    memory = RecordMemory()
    memory.note((POOL, NODE), 0)
    memory.note((NODE,), 60)
    assert memory.counts(FORGOTTEN_AFTER_S) == {"IPPool": 1, "Node": 1}
    assert memory.counts(FORGOTTEN_AFTER_S + 1) == {"IPPool": 0, "Node": 1}
    assert memory.note((POOL, NODE), FORGOTTEN_AFTER_S + 1) == (str(POOL),)


def test_it_remembers_no_more_than_so_many() -> None:
    memory = RecordMemory()
    many = [evolve(NODE, record=f"Node({number})", problem=str(number)) for number in range(10_001)]
    assert len(memory.note(many, 0)) == len(many)
    assert memory.counts(0) == {"Node": 10_000}
