"""``get --watch``: rows and objects that go on with every change, and its end."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import pytest
import yaml
from attrs import define, evolve

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import Unavailable
from netplug_core.records import Create, Delete, Get, Update
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPool, ippool_key
from netplug_core.resources.kinds import key_of
from netplug_core.settings.model import DatastoreSettings
from tests.harness.ctl import ToolHarness
from tests.harness.interrupted_store import InterruptedDatastore
from tests.harness.resources import ENDPOINT, make_pool
from tests.harness.scripted_clock import ScriptedClock, Step


@define(slots=False)
class WatchHarness(ToolHarness):
    """A person who watches while others change the store, a change in each wait."""

    @cached_property
    def interrupted(self) -> InterruptedDatastore:
        return InterruptedDatastore(self.store)

    @contextmanager
    def open_store(self, settings: DatastoreSettings) -> Iterator[Datastore]:
        with super().open_store(settings) as store:
            self.interrupted.datastore = store
            yield self.interrupted

    def watch(self, *argv: str, steps: list[Step]) -> int:
        assert isinstance(self.clock, ScriptedClock)
        self.clock.steps = steps
        return self.run_command("get", *argv, "--watch")

    def put(self, name: str, cidr: str) -> None:
        pool = make_pool(cidr, name)
        self.store_records(Create(pool.key, pool))

    def disable(self, name: str) -> None:
        deadline, key = Deadline.after(self.clock, 5), ippool_key(name)
        found = self.store.read([Get(key)], deadline=deadline).find(key)
        assert found is not None
        pool: IPPool = found.value
        changed = evolve(pool, spec=evolve(pool.spec, is_disabled=True))
        self.store.commit([Update(key, changed, found.revision)], deadline=deadline)

    def remove(self, name: str) -> None:
        deadline, key = Deadline.after(self.clock, 5), ippool_key(name)
        found = self.store.read([Get(key)], deadline=deadline).find(key)
        assert found is not None
        self.store.commit([Delete(key, found.revision)], deadline=deadline)


@pytest.fixture
def watched(harness: ToolHarness) -> WatchHarness:
    clock = ScriptedClock()
    return WatchHarness(harness.folder, harness.capsys, clock, MemoryDatastore(clock=clock))


def test_a_table_goes_on_with_every_change_until_it_is_interrupted(watched: WatchHarness) -> None:
    watched.put("a", "10.0.0.0/16")
    steps: list[Step] = [
        lambda: watched.put("b", "10.1.0.0/16"),
        lambda: watched.disable("a"),
        lambda: watched.remove("b"),
    ]
    assert watched.watch("pools", "-o", "wide", steps=steps) == 0
    assert [line.split()[:3] + line.split()[6:7] for line in watched.out.splitlines()] == [
        ["EVENT", "NAME", "CIDR", "DISABLED"],
        ["ADDED", "a", "10.0.0.0/16", "false"],
        ["ADDED", "b", "10.1.0.0/16", "false"],
        ["MODIFIED", "a", "10.0.0.0/16", "true"],
        ["DELETED", "b", "10.1.0.0/16", "false"],
    ]
    assert watched.err == ""


def test_columns_grow_with_a_row_that_is_wider(watched: WatchHarness) -> None:
    steps: list[Step] = [lambda: watched.put("a-long-name", "10.1.0.0/16"), lambda: watched.put("b", "10.2.0.0/16")]
    assert watched.watch("pools", steps=steps) == 0
    assert watched.out.splitlines() == [
        "EVENT      NAME   CIDR   SELECTOR",
        "ADDED      a-long-name   10.1.0.0/16   all()",
        "ADDED      b             10.2.0.0/16   all()",
    ]
    assert watched.err == "netplugctl: no IPPool found; waiting for one\n"


def test_json_is_an_object_a_line(watched: WatchHarness) -> None:
    watched.put("a", "10.0.0.0/16")
    assert watched.watch("pool", "a", "-o", "json", steps=[lambda: watched.remove("a")]) == 0
    events = [json.loads(line) for line in watched.out.splitlines()]
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
        ("ADDED", "a"),
        ("DELETED", "a"),
    ]
    assert events[0]["object"]["metadata"]["resourceVersion"]
    assert events[0]["object"]["spec"]["cidr"] == "10.0.0.0/16"


def change_twice(watched: WatchHarness) -> list[Step]:
    """One pool that is stored already, and what others do then."""
    watched.put("a", "10.0.0.0/16")
    return [lambda: watched.put("b", "10.1.0.0/16"), lambda: watched.remove("a")]


@pytest.mark.parametrize(
    "output, printed",
    [
        ("name", "ippool/a\nippool/b\nippool/a\n"),
        ('jsonpath={.kind}({.metadata.name}){"\\n"}', "IPPool(a)\nIPPool(b)\nIPPool(a)\n"),
        ("jsonpath={.metadata.name}", "aba"),
        ("jsonpath={.items[*].metadata.name}", ""),
        ("custom-columns=CIDR,N:.metadata.name", "CIDR   N\n10.0.0.0/16   a\n10.1.0.0/16   b\n10.0.0.0/16   a\n"),
    ],
)
def test_other_outputs_print_the_resource_of_each_event(watched: WatchHarness, output: str, printed: str) -> None:
    """As kubectl does: a template and a path begin at one resource, and the type of an event is not in them."""
    assert watched.watch("pools", "-o", output, steps=change_twice(watched)) == 0
    assert [" ".join(line.split()) for line in watched.out.split("\n")] == [
        " ".join(line.split()) for line in printed.split("\n")
    ]
    assert watched.err == ""


@pytest.mark.parametrize("option", [[], ["--output-watch-events"]])
def test_yaml_is_a_document_an_event(watched: WatchHarness, option: list[str]) -> None:
    assert watched.watch("pools", "-o", "yaml", *option, steps=change_twice(watched)) == 0
    assert watched.out.startswith("---\ntype: ADDED\nobject:\n  kind: IPPool\n")
    events = list(yaml.safe_load_all(watched.out))
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("DELETED", "a"),
    ]


@pytest.mark.parametrize("output", ["name", "yaml", "json", "jsonpath={.kind}", "custom-columns=NAME"])
def test_an_empty_selection_is_said_in_every_output(watched: WatchHarness, output: str) -> None:
    assert watched.watch("pools", "-o", output, steps=[]) == 0
    assert watched.out == ("NAME\n" if output.startswith("custom") else "")
    assert watched.err == "netplugctl: no IPPool found; waiting for one\n"


def test_resources_may_be_named_by_kind_and_name(watched: WatchHarness) -> None:
    steps: list[Step] = [lambda: watched.put("c", "10.2.0.0/16"), lambda: watched.put("b", "10.1.0.0/16")]
    watched.put("a", "10.0.0.0/16")
    assert watched.watch("pool/a", "ippool/b", "-o", "name", steps=steps) == 0
    assert watched.out == "ippool/a\nippool/b\n"
    assert watched.err == "netplugctl: resource does not exist: IPPool(b); waiting for it\n"


def test_a_name_that_does_not_exist_yet_is_waited_for(watched: WatchHarness) -> None:
    steps: list[Step] = [lambda: watched.put("b", "10.1.0.0/16"), lambda: watched.put("a", "10.0.0.0/16")]
    assert watched.watch("pool", "a", steps=steps) == 0
    assert [line.split()[:2] for line in watched.out.splitlines()] == [["EVENT", "NAME"], ["ADDED", "a"]]
    assert watched.err == "netplugctl: resource does not exist: IPPool(a); waiting for it\n"


def test_a_selector_is_watched_too(watched: WatchHarness) -> None:
    other = evolve(make_pool("10.1.0.0/16", "b"), metadata=Metadata(name="b", labels=(("tier", "gold"),)))
    steps: list[Step] = [
        lambda: watched.put("a", "10.0.0.0/16"),
        lambda: watched.store_records(Create(key_of(other), other)),
    ]
    assert watched.watch("pools", "--selector", "tier", steps=steps) == 0
    assert [line.split()[:2] for line in watched.out.splitlines()] == [["EVENT", "NAME"], ["ADDED", "b"]]
    assert watched.err == "netplugctl: no IPPool with labels that match 'tier' found; waiting for one\n"


def test_every_namespace_has_a_column_and_one_has_a_hint(watched: WatchHarness) -> None:
    other = evolve(ENDPOINT, metadata=Metadata(name="w", namespace="shop"))
    watched.store_records(Create(key_of(other), other))
    assert watched.watch("wep", "-A", steps=[]) == 0
    assert [line.split()[:2] for line in watched.out.splitlines()] == [["EVENT", "NAMESPACE"], ["ADDED", "shop"]]
    assert watched.watch("wep", steps=[]) == 0
    assert watched.err == (
        "netplugctl: no WorkloadEndpoint found in namespace default; -A shows all namespaces; waiting for one\n"
    )


def test_changes_that_the_store_no_longer_keeps_are_shown(watched: WatchHarness) -> None:
    watched.store = MemoryDatastore(clock=watched.clock, keep_changes=1)

    def change_much() -> None:
        watched.put("a", "10.0.0.0/16")
        watched.put("b", "10.1.0.0/16")

    assert watched.watch("pools", steps=[change_much, lambda: None]) == 0
    assert [line.split()[:2] for line in watched.out.splitlines()[1:]] == [["ADDED", "a"], ["ADDED", "b"]]


def test_a_store_that_is_away_for_a_while_is_said(watched: WatchHarness) -> None:
    watched.interrupted.watches = [Unavailable("the store", "away")]
    assert watched.watch("pools", steps=[lambda: watched.put("a", "10.0.0.0/16")]) == 0
    assert [line.split()[:2] for line in watched.out.splitlines()[1:]] == [["ADDED", "a"]]
    assert watched.err.splitlines()[1:] == [
        "netplugctl: the store: away; the watch goes on",
        "netplugctl: the datastore answers again; every change is shown",
    ]


def test_a_damaged_record_is_an_error(watched: WatchHarness) -> None:
    watched.put("a", "10.0.0.0/16")
    watched.damage[ippool_key("a")] = b"7"
    assert watched.watch("pools", steps=[]) == 1
    assert "IPPool(a) is malformed" in watched.err


@pytest.mark.parametrize(
    "argv, problem",
    [
        (["pool", "a", "--export"], "--watch follows resources of one KIND; leave out files, --export and --sort-by."),
        (["-f", "pool.yaml"], "--watch follows resources of one KIND; leave out files, --export and --sort-by."),
        (["pool/a", "node/n"], "--watch follows resources of one KIND; several are named."),
        (["pools", "-o", "custom-columns=NODE"], "IPPool has no column 'NODE'"),
    ],
)
def test_what_cannot_be_watched_is_wrong_usage(
    watched: WatchHarness, argv: list[str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(watched.folder)
    watched.write_pools(("a", "10.0.0.0/16"))
    assert watched.watch(*argv, steps=[]) == 2
    assert problem in watched.err
    assert (watched.out, watched.opened_settings) == ("", [])
