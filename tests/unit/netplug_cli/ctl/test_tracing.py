"""What is logged of a store, and what is not."""

import pytest

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_cli.ctl.session import TracedDatastore, TraceLevel
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.ipam.model import BLOCK, Block
from netplug_core.records import AlreadyExists, Create, Get, Kind, List, RequireUnchanged, Revision, Write
from netplug_core.resources.ippool import IPPOOL
from netplug_core.testing.clock import ManualClock

BLOCK_ = Block.new(Prefix.parse("10.0.0.0/26"), owner="host:not-to-be-told", now_ns=1)


@pytest.mark.parametrize(
    "level, tracing",
    [("panic", TraceLevel.OFF), ("warn", TraceLevel.OFF), ("info", TraceLevel.STORE), ("Debug", TraceLevel.CALLS)],
)
def test_levels_ask_for_more_and_more(level: str, tracing: TraceLevel) -> None:
    assert TraceLevel.of_level(level) is tracing


def test_every_call_is_a_line_with_its_keys_and_no_value(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    inner = MemoryDatastore(clock=clock)
    store, deadline = TracedDatastore(inner, clock), Deadline.after(clock, 5)
    assert store.description is inner.description
    snapshot = store.read([List(IPPOOL), Get(BLOCK_.key), List(BLOCK, ("ipv4",))], deadline=deadline)
    writes: list[Write] = [Create(BLOCK_.key, BLOCK_), RequireUnchanged(IPPOOL, snapshot.revision(IPPOOL))]
    assert len(store.commit(writes, deadline=deadline)) == 2
    with pytest.raises(AlreadyExists) as refusal:
        store.commit(writes, deadline=deadline)
    start: dict[Kind[object], Revision] = {BLOCK: Revision(str(snapshot.revision(BLOCK)))}
    assert [change.key for change in store.watch(start, deadline=Deadline.after(clock, 0))] == [BLOCK_.key]
    out, err = capsys.readouterr()
    assert out == ""
    key = BLOCK_.key
    assert err.splitlines() == [
        f"netplugctl: read IPPool(*), {key}, {BLOCK}(ipv4/*) in 0.0 ms",
        f"netplugctl: commit create {key}, requireunchanged IPPool in 0.0 ms",
        f"netplugctl: commit create {key}, requireunchanged IPPool in 0.0 ms: {refusal.value}",
    ]
    assert "not-to-be-told" not in err
