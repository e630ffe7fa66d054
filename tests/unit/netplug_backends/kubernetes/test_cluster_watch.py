"""The watch of the operator, against a server that follows a script."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.installing import watch as watching_module
from netplug_backends.kubernetes.installing.watch import collection_of, open_cluster_watch
from netplug_core.log import Level
from netplug_core.settings.model import KubernetesAccess
from tests.harness.servers.http_stub import (
    CloseConnection,
    HTTPStubServer,
    NeverReply,
    ReceivedRequest,
    SendReply,
    SendStream,
    StubAction,
    open_http_stub,
)
from tests.harness.waiting import wait_until

THINGS = ("example.org/v1", "things")


class Seen:
    """How often a change was told, the lines of the log, and what no watch may raise. ``mistake`` is raised."""

    def __init__(self, mistake: Exception | None = None) -> None:
        self.changes = 0
        self.lines: list[str] = []
        self.crashes: list[Exception] = []
        self.mistake = mistake

    def on_change(self) -> None:
        self.changes += 1
        if self.mistake is not None:
            raise self.mistake

    def log(self, level: Level, message: str, /, **values: object) -> None:
        self.lines.append(f"{message} {values.get('cause', '')}")


def thing(name: str, version: int) -> dict[str, object]:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": THINGS[0], "kind": "Thing", "metadata": metadata}


def listed(version: int, *items: dict[str, object]) -> SendReply:
    return SendReply(200, {"kind": "ThingList", "metadata": {"resourceVersion": str(version)}, "items": list(items)})


def event(kind: str, found: dict[str, object]) -> dict[str, object]:
    return {"type": kind, "object": found}


def following(lists: Sequence[StubAction], watches: Sequence[StubAction]) -> Callable[[ReceivedRequest], StubAction]:
    """Lists and watches in turn; the last list again and again, and after the last watch silence."""
    left_lists, left_watches = list(lists), list(watches)

    def script(received: ReceivedRequest) -> StubAction:
        if "watch=1" in received.path:
            return left_watches.pop(0) if left_watches else NeverReply()
        if "limit=1&" in f"{received.path}&":
            return left_lists[0]
        return left_lists.pop(0) if len(left_lists) > 1 else left_lists[0]

    return script


@contextmanager
def watching(server: HTTPStubServer, *names: str, mistake: Exception | None = None) -> Iterator[Seen]:
    seen = Seen(mistake)
    access = KubernetesAccess(api_root=server.url, token="t")  # noqa: S106  # of a stub
    watch = open_cluster_watch(access, {}, seen.on_change, seen.crashes.append, clock=SystemClock(), log=seen.log)
    watch.start([collection_of(*THINGS, names=names)])
    try:
        yield seen
    finally:
        assert watch.stop()
    assert not [one for one in threading.enumerate() if one.name.startswith("watch /apis/example.org")]


def watches_of(server: HTTPStubServer) -> list[str]:
    return [path for path in server.calls if "watch=1" in path]


def run(
    lists: Sequence[StubAction],
    watches: Sequence[StubAction],
    until: Callable[[HTTPStubServer, Seen], bool],
    *names: str,
) -> tuple[HTTPStubServer, Seen]:
    """Watch until a state is reached."""
    with open_http_stub(following(lists, watches)) as server:
        with watching(server, *names) as seen:
            wait_until(lambda: until(server, seen), "the watch has come that far")
        return server, seen


def test_a_mistake_ends_no_watch_unnoticed() -> None:
    mistake = KeyError("a rule")
    with open_http_stub(following([listed(1, thing("a", 1))], [])) as server, watching(server, mistake=mistake) as seen:
        wait_until(lambda: bool(seen.crashes), "the mistake is told")
        assert seen.crashes == [mistake]


def test_a_change_is_reported_and_the_watch_resumes_after_it() -> None:
    stream = SendStream([event("MODIFIED", thing("a", 7))])
    server, seen = run([listed(5, thing("a", 5))], [stream], lambda server, _: len(watches_of(server)) == 2)
    assert "resourceVersion=5" in watches_of(server)[0]
    assert "resourceVersion=7" in watches_of(server)[1]
    assert seen.changes == 2


@pytest.mark.parametrize(
    "ended",
    [
        SendReply(410, {"kind": "Status", "code": 410, "reason": "Expired"}),
        SendStream([{"type": "ERROR", "object": {"kind": "Status", "code": 410}}]),
        SendStream([]),
        SendStream([event("BOOKMARK", thing("", 8))]),
    ],
    ids=["refused", "expired", "silent", "bookmark"],
)
def test_after_an_expiry_or_a_stream_without_events_it_lists_again(ended: StubAction) -> None:
    lists = [listed(5), listed(9, thing("a", 9))]
    server, seen = run(lists, [ended], lambda server, _: len(watches_of(server)) == 2)
    assert "resourceVersion=9" in watches_of(server)[1]
    assert seen.changes == 2


def test_a_list_that_shows_nothing_new_reports_nothing() -> None:
    _, seen = run([listed(5, thing("a", 5))], [SendStream([])] * 2, lambda server, _: len(watches_of(server)) == 3)
    assert seen.changes == 1


def test_other_names_are_not_reported() -> None:
    stream = SendStream([event("ADDED", thing("b", 6)), event("DELETED", thing("b", 7))])
    _, seen = run([listed(5, thing("a", 5))], [stream], lambda server, _: len(watches_of(server)) == 2, "a")
    assert seen.changes == 1


def test_a_failure_is_one_line_and_so_is_its_end() -> None:
    refused = SendReply(500, {"kind": "Status", "code": 500, "message": "no leader"})
    served = [refused, refused, listed(5)]
    count = iter(range(100))

    def script(received: ReceivedRequest) -> StubAction:
        return NeverReply() if "watch=1" in received.path else served[min(next(count) // 2, 2)]

    with open_http_stub(script) as server, watching(server) as seen:
        wait_until(lambda: len(watches_of(server)) == 1, "it is watched")
    assert [line.split(" ")[:3] for line in seen.lines] == [["a", "watch", "fails"], ["a", "watch", "works"]]
    assert "no leader" in seen.lines[0]


NOT_SERVED = SendReply(404, {"kind": "Status", "code": 404, "reason": "NotFound"})


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses are those of a test."""
    monkeypatch.setattr(watching_module, "_UNSERVED_S", 0.01)
    monkeypatch.setattr(watching_module, "_FIRST_RETRY_S", 0.01)


def each_look(*answers: StubAction) -> Callable[[ReceivedRequest], StubAction]:
    """What each look for the kind gets, the last one again and again. Watches are silent."""
    left = list(answers)

    def script(received: ReceivedRequest) -> StubAction:
        if "watch=1" in received.path:
            return NeverReply()
        return left.pop(0) if len(left) > 1 else left[0]

    return script


@pytest.mark.usefixtures("impatient")
def test_a_server_that_is_restarted_is_asked_again_and_what_it_has_changed_is_reported() -> None:
    lists = [listed(5, thing("a", 5)), listed(9, thing("a", 9))]
    cut = SendStream([], is_cut=True)
    follow = following(lists, [cut])
    refusals = iter([CloseConnection()] * 4)  # while it starts
    has_ended = threading.Event()

    def script(received: ReceivedRequest) -> StubAction:
        if "watch=1" in received.path:
            has_ended.set()
        elif has_ended.is_set() and (refusal := next(refusals, None)) is not None:
            return refusal
        return follow(received)

    with open_http_stub(script) as server, watching(server) as seen:
        wait_until(lambda: len(watches_of(server)) == 2, "it is watched again")
        assert "resourceVersion=9" in watches_of(server)[1]
        assert seen.changes == 2
        assert [line.split(" ")[2] for line in seen.lines][-1] == "works"


@pytest.mark.usefixtures("impatient")
def test_a_definition_that_is_deleted_and_made_again_is_watched_again() -> None:
    """What was watched is gone with it, which is a change; so are the objects of the new one, if they look the same."""
    first, again = thing("a", 5), thing("a", 5)
    again["metadata"] = {"name": "a", "uid": "another", "resourceVersion": "5"}
    script = following([listed(5, first)], [SendStream([])])
    left = [NOT_SERVED, NOT_SERVED, listed(12, again)]

    def after_the_watch(received: ReceivedRequest) -> StubAction:
        if not any("watch=1" in path for path in server.calls[:-1]) or "watch=1" in received.path:
            return script(received)
        return left.pop(0) if len(left) > 1 else left[0]

    with open_http_stub(after_the_watch) as server, watching(server) as seen:
        wait_until(lambda: len(watches_of(server)) == 2, "the new definition is watched")
        assert "resourceVersion=12" in watches_of(server)[1]
        assert seen.changes == 3, "the first list, the objects that are gone, the new one"
        assert seen.lines == []


@pytest.mark.usefixtures("impatient")
def test_a_kind_that_is_not_served_yet_is_asked_for_until_it_is() -> None:
    with open_http_stub(each_look(NOT_SERVED, NOT_SERVED, NOT_SERVED, listed(3))) as server, watching(server) as seen:
        wait_until(lambda: len(watches_of(server)) == 1, "it is watched")
        assert "resourceVersion=3" in watches_of(server)[0]
        assert (seen.lines, seen.crashes) == ([], [])


def test_a_definition_that_is_deleted_while_it_is_watched_ends_the_watch() -> None:
    lists = [listed(5, thing("a", 5)), listed(9)]
    server, seen = run(lists, [NOT_SERVED], lambda server, _: len(watches_of(server)) == 2)
    assert "resourceVersion=9" in watches_of(server)[1]
    assert (seen.changes, seen.lines) == (2, [])


@pytest.mark.usefixtures("impatient")
def test_a_connection_that_says_nothing_is_given_up_and_the_objects_are_listed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server ends a watch in time; where no end comes, the connection is broken."""
    monkeypatch.setattr(watching_module, "_STREAM_S", 0.1)
    monkeypatch.setattr(watching_module, "_STREAM_END_S", 0.1)
    lists = [listed(5, thing("a", 5)), listed(9, thing("a", 9))]
    server, seen = run(lists, [NeverReply()], lambda server, seen: len(watches_of(server)) >= 2 and seen.changes == 2)
    assert "resourceVersion=9" in watches_of(server)[1]
    assert "a watch fails and is tried again" in seen.lines[0]
