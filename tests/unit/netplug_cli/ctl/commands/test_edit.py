"""``edit``: an editor that is a script, and what becomes of its text."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from attrs import define, field

from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.resources.delete import delete
from netplug_core.flows.resources.write import Overwriting, change_marks
from netplug_core.resources.codec import Mark
from netplug_core.resources.ippool import ippool_key
from netplug_core.settings.model import DatastoreSettings
from tests.harness.ctl import ToolHarness

POOL = ("main", "10.0.0.0/16")


@define(slots=False)
class EditHarness(ToolHarness):
    """A person who edits while others change the store: ``before_opening`` has what happens before each opening."""

    before_opening: list[Callable[[], object]] = field(factory=list)

    @contextmanager
    def open_store(self, settings: DatastoreSettings) -> Iterator[Datastore]:
        if self.before_opening:
            self.before_opening.pop(0)()
        with super().open_store(settings) as store:
            yield store

    def remove_pool(self) -> None:
        delete(self.store, ippool_key("main"), pace=self.make_session().pace())


@pytest.fixture
def pool(harness: ToolHarness, monkeypatch: pytest.MonkeyPatch) -> EditHarness:
    """A person with one pool, and a folder for temporary files that is empty."""
    harness = EditHarness(harness.folder, harness.capsys, harness.clock, harness.store)
    harness.run_command("create", "-f", harness.write_pools(POOL))
    (harness.folder / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(harness.folder / "tmp"))
    return harness


def set_editor(harness: EditHarness, *scripts: str) -> None:
    """The editor runs these shell scripts, one after another, on the file ``$1``; it counts its calls."""
    cases = "".join(f"{number}) {script} ;;\n" for number, script in enumerate(scripts, start=1))
    path = harness.folder / "editor"
    count = harness.folder / "count"
    path.write_text(
        f'#!/bin/sh\necho x >>{count}\nn=$(wc -l <{count})\ncp "$1" {harness.folder}/shown-$n\n'
        f"case $((n)) in\n{cases}*) exit 99 ;;\nesac\n"
    )
    path.chmod(0o700)
    harness.environ["EDITOR"] = f"{path}"


def shown(harness: ToolHarness, number: int) -> str:
    """What the editor was given the n-th time."""
    return (harness.folder / f"shown-{number}").read_text()


def kept(harness: ToolHarness) -> list[Path]:
    return list((harness.folder / "tmp").iterdir())


def stored_pool(harness: ToolHarness) -> dict[str, object]:
    harness.run_command("get", "pool", "main", "-o", "yaml")
    spec = yaml.safe_load(harness.out)["spec"]
    assert isinstance(spec, dict)
    return spec


DISABLE = "echo '  disabled: true' >>\"$1\""


def test_what_is_saved_is_stored_and_the_file_is_removed(pool: EditHarness) -> None:
    set_editor(pool, DISABLE)
    assert pool.run_command("edit", "pool", "main") == 0
    assert (pool.out, pool.err) == ("IPPool(main) updated\n", "")
    assert stored_pool(pool)["disabled"] is True
    assert kept(pool) == []
    assert shown(pool, 1).startswith("# IPPool(main): saving changes it;")


def test_kind_and_name_may_be_one_word(pool: EditHarness) -> None:
    set_editor(pool, DISABLE)
    assert pool.run_command("edit", "ippool/main") == 0
    assert (pool.out, pool.err) == ("IPPool(main) updated\n", "")
    assert pool.run_command("edit", "ippool/main", "ippool/other") == 2
    assert "edit takes one resource, as KIND NAME or KIND/NAME; found IPPool(main), IPPool(other)." in pool.err


def test_visual_wins_and_may_have_arguments(pool: EditHarness) -> None:
    set_editor(pool, DISABLE)
    pool.environ["VISUAL"] = f"sh -e '{pool.environ['EDITOR']}'"
    pool.environ["EDITOR"] = "false"
    assert pool.run_command("edit", "pool", "main") == 0
    assert stored_pool(pool)["disabled"] is True


@pytest.mark.parametrize("script", ["true", ': >"$1"', 'rm "$1"; echo "# nothing" >"$1"'])
def test_a_text_that_is_left_as_it_was_or_emptied_changes_nothing(pool: EditHarness, script: str) -> None:
    set_editor(pool, script)
    assert pool.run_command("edit", "pool", "main") == 0
    assert (pool.out, pool.err) == ("Edit cancelled, no changes made.\n", "")
    assert kept(pool) == []


@pytest.mark.parametrize(
    "wrong, right, error",
    [
        ("sed -i 's/blockSize: 26/blockSize: 7/' \"$1\"", "sed -i 's/blockSize: 7/blockSize: 26/' \"$1\"", "blockSize"),
        ("echo '  bogus: 1' >>\"$1\"", "sed -i '/bogus/d' \"$1\"", "bogus"),
        ("echo ']' >>\"$1\"", "sed -i '/^]$/d' \"$1\"", "neither YAML nor JSON"),
        ("sed -i 's/name: main/name: other/' \"$1\"", "sed -i 's/name: other/name: main/' \"$1\"", "IPPool(other)"),
        ('echo \'---\' >>"$1"; cat "$1" >>"$1.2"; cat "$1.2" >>"$1"; rm "$1.2"', ': >"$1"', "alone"),
    ],
    ids=["rule", "unknown", "yaml", "name", "two"],
)
def test_a_text_that_is_refused_is_shown_again_with_the_error_on_top(
    pool: EditHarness, wrong: str, right: str, error: str
) -> None:
    set_editor(pool, wrong, f'{right}; [ ! -s "$1" ] || {DISABLE}')
    assert pool.run_command("edit", "pool", "main") == 0, pool.err
    first = shown(pool, 2).splitlines()[0]
    assert first.startswith("# error: ")
    assert error in first
    assert kept(pool) == []


def test_a_text_that_is_refused_and_left_so_is_kept(pool: EditHarness) -> None:
    set_editor(pool, "echo '  bogus: 1' >>\"$1\"", "true")
    assert pool.run_command("edit", "pool", "main") == 1
    (file,) = kept(pool)
    assert "bogus: 1" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    lines = pool.err.splitlines()
    assert lines[0] == f"netplugctl: the text is kept in {file}"
    assert "bogus" in lines[1]
    assert "disabled" not in stored_pool(pool)


def test_a_resource_that_another_writer_changed_meanwhile_is_a_conflict(pool: EditHarness) -> None:
    """The other writer's change stays, and the text is kept."""
    set_editor(pool, DISABLE)

    def change() -> None:
        change_marks(
            pool.store,
            ippool_key("main"),
            Mark.LABEL,
            {"tier": "gold"},
            overwriting=Overwriting.REFUSED,
            pace=pool.make_session().pace(),
        )

    pool.before_opening = [lambda: None, change]
    assert pool.run_command("edit", "pool", "main") == 1
    (file,) = kept(pool)
    assert pool.err.splitlines() == [
        f"netplugctl: the text is kept in {file}",
        "netplugctl: IPPool(main) was changed by another writer since it was read: edit it again",
    ]
    assert "disabled: true" in file.read_text()
    assert "disabled" not in stored_pool(pool)


def test_a_resource_that_was_deleted_meanwhile_is_not_created_again(pool: EditHarness) -> None:
    set_editor(pool, DISABLE)
    pool.before_opening = [lambda: None, pool.remove_pool]
    assert pool.run_command("edit", "pool", "main") == 1
    assert pool.err.endswith("netplugctl: resource does not exist: IPPool(main)\n")
    assert len(kept(pool)) == 1


def test_a_store_that_is_away_when_it_is_saved_loses_nothing(pool: EditHarness) -> None:
    set_editor(pool, DISABLE)
    pool.before_opening = [lambda: None, lambda: setattr(pool, "is_unavailable", True)]
    assert pool.run_command("edit", "pool", "main") == 1
    (file,) = kept(pool)
    assert "disabled: true" in file.read_text()
    assert "unable to open the file" in pool.err


def test_an_editor_that_removes_the_file_leaves_nothing_to_keep(pool: EditHarness) -> None:
    set_editor(pool, 'rm "$1"')
    assert pool.run_command("edit", "pool", "main") == 1
    assert "No such file" in pool.err
    assert kept(pool) == []


@pytest.mark.parametrize(
    "editor, problem",
    [
        ("/nowhere/editor", "/nowhere/editor cannot edit"),
        ("false", "false ended with status 1"),
        ("sh 'x", "EDITOR: No closing quotation: sh 'x"),
    ],
)
def test_an_editor_that_fails_changes_nothing(pool: EditHarness, editor: str, problem: str) -> None:
    pool.environ["EDITOR"] = editor
    assert pool.run_command("edit", "pool", "main") == 1
    assert problem in pool.err
    assert kept(pool) == []


def test_an_editor_that_fails_after_it_saved_loses_nothing(pool: EditHarness) -> None:
    set_editor(pool, f"{DISABLE}; exit 3")
    assert pool.run_command("edit", "pool", "main") == 1
    (file,) = kept(pool)
    assert "disabled: true" in file.read_text()
    assert "disabled" not in stored_pool(pool)


def test_a_text_that_is_no_text_is_kept(pool: EditHarness) -> None:
    set_editor(pool, "printf '\\377' >>\"$1\"")
    assert pool.run_command("edit", "pool", "main") == 1
    (file,) = kept(pool)
    assert f"{file}: not UTF-8 text" in pool.err


def test_what_cannot_be_edited_opens_no_editor(pool: EditHarness) -> None:
    pool.environ["EDITOR"] = "/nowhere/editor"
    assert pool.run_command("edit", "pool", "nope") == 1
    assert pool.err == "netplugctl: resource does not exist: IPPool(nope)\n"
    assert pool.run_command("edit", "clusterinfo", "default") == 1
    assert "operation Update is not supported" in pool.err
    assert pool.run_command("edit", "bogus", "main") == 1
    assert "failed to edit resources: resource type 'bogus'" in pool.err


def test_a_new_file_needs_a_folder(pool: EditHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    assert pool.run_command("edit", "pool", "main") == 1
    assert pool.err == "netplugctl: /nowhere: No such file or directory\n"
