"""``edit``: changes one resource in a person's editor.

The change is judged as ``replace`` judges it, at the revision that the person saw. A text that is refused is shown
again with the error on top. Whatever happens, a text that was changed and not stored is kept in its file.
"""

from __future__ import annotations

import click
from attrs import define, evolve

from netplug_backends.host.atomic_files import read_file
from netplug_cli.ctl.arguments import parse_key
from netplug_cli.ctl.commands.resources import NAMESPACE, ONE_RESOURCE
from netplug_cli.ctl.documents import render_yaml, require_manifests
from netplug_cli.ctl.editor import EditedFile
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.formatting import print_error
from netplug_core.errors import ConfigurationError
from netplug_core.flows.resources.outcome import Outcome, ResourceMissing, ResourceOutdated
from netplug_core.flows.resources.read import find
from netplug_core.flows.resources.write import replace, require_writable
from netplug_core.records import Key, Record
from netplug_core.resources.codec import to_mapping
from netplug_core.resources.kinds import Resource, key_of
from netplug_core.resources.patch import without_unknown

__all__ = ["edit"]

_HEAD = "# {key}: saving changes it; nothing is changed if the text stays as it is or has no lines but comments.\n"


@click.command()
@ONE_RESOURCE
@NAMESPACE
@click.pass_context
def edit(context: click.Context, words: tuple[str, ...], namespace: str) -> int:
    """Change the resource with a KIND and a NAME in an editor: VISUAL, EDITOR, otherwise vi.

    A text that is refused is shown again with the error. A text that was changed and not stored is kept in a file.
    """
    key = parse_key(words, "edit", namespace)
    require_writable(key, "Update")
    session = session_of(context)
    record = _read(session, key)
    file = EditedFile.create(session.environ, prefix=f"netplugctl-edit-{key.kind.name.lower()}-")
    editing = _Editing(session, record, file)
    is_done = False
    try:
        outcome = editing.run()
        is_done = True
    finally:
        if is_done or not editing.has_changes():
            file.remove()
        else:
            print_error(f"the text is kept in {file.path}")
    if outcome is None:
        click.echo("Edit cancelled, no changes made.")
        return 0
    click.echo(f"{outcome.key} {outcome.effect.value}")
    for warning in outcome.warnings:
        print_error(f"warning: {warning}")
    return 0


def _read(session: Session, key: Key[Resource]) -> Record[Resource]:
    with session.open_datastore() as store:
        (record,) = find(store, [key], deadline=session.deadline())
    if record is None:
        raise ResourceMissing.of(key)
    return record


@define
class _Editing:
    """A resource as it was read (``record``), and its text, which is edited until it is stored."""

    session: Session
    record: Record[Resource]
    file: EditedFile

    def run(self) -> Outcome | None:
        """Edit until the text is stored; None if nothing was changed.

        Raises:
            NetplugError: the editor failed, the text was left as it was refused, or it cannot be stored.
        """
        text, refused = self._text(), ""
        problem: ConfigurationError | None = None
        while True:
            edited = _without_comments(self.file.edit(self._head(problem) + text))
            if problem is not None and edited == refused:
                raise problem
            if not edited.strip() or edited == _without_comments(self._text()):
                return None
            try:
                return self._store()
            except ResourceOutdated as error:
                raise InputError(
                    "", None, f"{self.record.key} was changed by another writer since it was read: edit it again"
                ) from error
            except ResourceMissing:
                raise
            except ConfigurationError as error:
                problem, text = error, edited
                refused = edited

    def has_changes(self) -> bool:
        """Whether the file has something that is not stored."""
        try:
            left = _without_comments(read_file(self.file.path).decode(errors="replace"))
        except FileNotFoundError:
            return False
        return bool(left.strip()) and left != _without_comments(self._text())

    def _text(self) -> str:
        return render_yaml(to_mapping(without_unknown(self.record.value), revision=self.record.revision))

    def _head(self, problem: ConfigurationError | None) -> str:
        head = _HEAD.format(key=self.record.key)
        if problem is None:
            return head
        lines = str(problem).splitlines()
        return "".join(f"# {'error: ' if not number else '  '}{line}\n" for number, line in enumerate(lines)) + head

    def _store(self) -> Outcome:
        (manifest, *others) = require_manifests([self.file.path])
        if others or key_of(manifest.resource) != self.record.key:
            found = ", ".join(str(key_of(one.resource)) for one in (manifest, *others))
            raise InputError("", None, f"the text has to be {self.record.key} alone, found {found}")
        manifest = evolve(manifest, revision=self.record.revision)
        with self.session.open_datastore() as store:
            return replace(store, manifest, pace=self.session.pace(), new_uid=self.session.new_uid)


def _without_comments(text: str) -> str:
    """The text without the comments at its beginning."""
    lines = text.splitlines(keepends=True)
    first = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return "".join(lines[first:])
