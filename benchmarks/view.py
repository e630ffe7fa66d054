"""A view of 100,000 records, beside a plain dict of them in the same run: an event, the memory, and wake-ups.

An event is applied, and the key that has changed is asked for, as a controller does. Memory is what ``tracemalloc``
counts: of the records alone in a list, and of them in a view. Wake-ups are those of one controller, which gathers them,
and of 1,000 controllers in turn. What it takes to wait so often is measured without a controller, and taken off.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable
from statistics import median

from netplug_backends.host.machine import SystemClock
from netplug_cli.runtime.controllers import Runtime
from netplug_core.addressing import Prefix
from netplug_core.datastore.view import START, View
from netplug_core.ipam.model import BLOCK, Block, block_key
from netplug_core.log import Level
from netplug_core.reconcile.controller import Controller, Plan, Source, Timing
from netplug_core.records import List, ReadResult, Record, Revision, Snapshot, WatchEvent

_RECORDS = 100_000
_EVENTS = 2_000
_CONTROLLERS = 1_000
_WAKES = 1_000
_WAKE_S = 5.0
_EVENT_GOAL_S, _MEMORY_GOAL, _WAKE_GOAL = 50e-6, 1.2, 0.05


def measure(rounds: int) -> None:
    """Measure that many rounds and print."""
    records_bytes, view_bytes, view, records = _measure_memory()
    event_s = median(_event_s(view, records) for _ in range(rounds))
    dict_s = median(_dict_s(records) for _ in range(rounds))
    small_s = median(_event_s(_new_view(records[:100]), records[:100]) for _ in range(rounds))
    idle, one, each = _wake_share(0), _wake_share(1), _wake_share(_CONTROLLERS)
    memory = view_bytes / records_bytes
    print(f"{_RECORDS} records, {rounds} rounds of {_EVENTS} events; medians\n")
    print(f"an event, and the key that it changed    {event_s * 1e6:8.1f} us  goal <= {_EVENT_GOAL_S * 1e6:.0f}")
    print(f"  times the same with 100 records        {event_s / small_s:8.2f}")
    print(f"  times an assignment to a plain dict    {event_s / dict_s:8.2f}")
    print(f"memory of the view / of its records      {memory:8.2f}     goal <= {_MEMORY_GOAL}")
    print(f"{_WAKES} wake-ups a second of one controller {one - idle:8.1%}     of a core, goal <= {_WAKE_GOAL:.0%}")
    print(f"1,000 controllers, each woken once       {each - idle:8.1%}     of a core: nothing to gather")


def _make_records() -> list[Record[object]]:
    made: list[Record[object]] = []
    for number in range(_RECORDS):
        high, middle, low = number >> 10, number >> 2 & 255, (number & 3) << 6
        prefix = Prefix.parse(f"10.{high}.{middle}.{low}/26")
        block = Block.new(prefix, owner=f"worker-{number}", now_ns=number)
        made.append(Record(block_key(prefix), block, Revision(f"r{number}")))
    return made


def _new_view(records: list[Record[object]]) -> View:
    view = View(clock=SystemClock(), uncached_kinds=frozenset())
    in_order = tuple(sorted(records, key=lambda record: record.key.path))
    view.follow_lists(Snapshot({List(BLOCK): ReadResult(in_order)}, {BLOCK: Revision("1")}), now_s=0.0)
    return view


def _measure_memory() -> tuple[int, int, View, list[Record[object]]]:
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    records = _make_records()
    gc.collect()
    alone = tracemalloc.get_traced_memory()[0] - before
    view = _new_view(records)
    view.apply_event(_event(records[0], 0), now_s=0.0)  # the list in order is not kept for who does not ask for it
    gc.collect()
    whole = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return alone, whole, view, records


def _event(record: Record[object], number: int) -> WatchEvent[object]:
    return WatchEvent(record.key, record.value, Revision(f"e{number}"))


def _event_s(view: View, records: list[Record[object]]) -> float:
    events = [_event(records[number * 7919 % len(records)], number) for number in range(_EVENTS)]
    mark, _ = view.changes_since(START)

    def apply(event: WatchEvent[object]) -> None:
        nonlocal mark
        view.apply_event(event, now_s=0.0)
        mark, _ = view.changes_since(mark)

    return _each_s(apply, events)


def _dict_s(records: list[Record[object]]) -> float:
    held = {record.key: record for record in records}
    events = [_event(records[number * 7919 % len(records)], number) for number in range(_EVENTS)]

    def apply(event: WatchEvent[object]) -> None:
        held[event.key] = Record(event.key, event.value, event.revision)

    return _each_s(apply, events)


def _each_s(apply: Callable[[WatchEvent[object]], None], events: list[WatchEvent[object]]) -> float:
    began = time.perf_counter()
    for event in events:
        apply(event)
    return (time.perf_counter() - began) / len(events)


def _wake_share(count: int) -> float:
    """The share of a core that 1,000 wake-ups a second take, of so many controllers, whose passes do nothing.

    Without a controller it is what it takes to wait 1,000 times a second.
    """
    controllers = tuple(_idle_controller(number) for number in range(count))
    runtime = Runtime(controllers, clock=SystemClock(), log=_log_nothing)
    with runtime.running():
        time.sleep(1.0)  # the first passes
        began, used = time.perf_counter(), time.process_time()
        for number in range(int(_WAKE_S * _WAKES)):
            runtime.wake(Source(str(number % max(1, count))))
            pause_s = began + number / _WAKES - time.perf_counter()
            if pause_s > 0:
                time.sleep(pause_s)
        return (time.process_time() - used) / (time.perf_counter() - began)


def _idle_controller(number: int) -> Controller[None, None]:
    return Controller(
        name=str(number),
        observe=lambda _deadline: None,
        plan=lambda _state: Plan(),
        act=lambda _action, _deadline: None,
        failure="",
        inputs=frozenset((Source(str(number)),)),
        timing=Timing(),
    )


def _log_nothing(level: Level, message: str, /, **fields: object) -> None:
    del level, message, fields
