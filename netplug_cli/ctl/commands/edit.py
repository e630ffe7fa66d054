"""``edit``, ``patch``, ``label`` and ``annotate``: changes of stored resources, in an editor or from the command line.

In an editor the change is judged as ``replace`` judges it, at the revision that the person saw. A text that is
refused is shown again with the error on top. Whatever happens, a text that was changed and not stored is kept in its
file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypedDict, Unpack

import click
from attrs import define, evolve

from netplug_backends.host.atomic_files import read_file
from netplug_cli.ctl.arguments import (
    ALL,
    DRY_RUN,
    NAME_OUTPUT,
    NAMESPACE,
    ONE_RESOURCE,
    SELECTOR,
    Named,
    find_keys,
    format_key,
    parse_key,
    selected_of,
)
from netplug_cli.ctl.completion import complete_resources
from netplug_cli.ctl.documents import parse_text, render_yaml, require_manifests
from netplug_cli.ctl.editor import EditedFile
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.reports import ChangeReport, Verb
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.formatting import escape_unprintable, print_error
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import ConfigurationError, NetplugError
from netplug_core.flows.resources.outcome import Outcome, ResourceMissing, ResourceOutdated
from netplug_core.flows.resources.read import find
from netplug_core.flows.resources.write import MarkEffect, Overwriting, change_marks, replace, require_writable
from netplug_core.flows.resources.write import edit as edit_resource
from netplug_core.records import Key, Record
from netplug_core.resources.codec import Mark, apply_merge_patch, to_mapping, without_unknown
from netplug_core.resources.kinds import Resource, key_of

__all__ = ["annotate", "edit", "label", "patch"]


# --- edit ------------------------------------------------------------------------------------------------------------


_HEAD = "# {key}: saving changes it; nothing is changed if the text stays as it is or has no lines but comments.\n"


@click.command()
@ONE_RESOURCE
@NAMESPACE
@NAME_OUTPUT
@click.pass_context
def edit(context: click.Context, words: tuple[str, ...], namespace: str, output: str | None) -> int:
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
        click.echo("Edit cancelled, no changes made.", err=output is not None)
        return 0
    click.echo(escape_unprintable(format_key(outcome.key)) if output else f"{outcome.key} {outcome.effect.value}")
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


# --- label and annotate ----------------------------------------------------------------------------------------------


_IMPERATIVES = {
    MarkEffect.SET: "set",
    MarkEffect.UPDATED: "update",
    MarkEffect.REMOVED: "remove",
    MarkEffect.ABSENT: "not change",
}
_Command = Callable[..., Any]


class _MarkOptions(TypedDict):
    """The options of ``label`` and ``annotate`` as click hands them over."""

    namespace: str
    may_overwrite: bool
    is_removal: bool
    is_all: bool
    is_dry_run: bool
    output: str | None


def _mark_options(command: _Command) -> _Command:
    """The options that ``label`` and ``annotate`` have in common."""
    options = (
        NAMESPACE,
        SELECTOR,
        ALL,
        click.option("--overwrite", "may_overwrite", is_flag=True, help="Change the text of an existing one."),
        click.option("--remove", "is_removal", is_flag=True, help="Remove the one that is named, as NAME- does."),
        DRY_RUN,
        NAME_OUTPUT,
    )
    for option in reversed(options):
        command = option(command)
    return command


def _mark_words(name: str) -> Callable[[_Command], _Command]:
    return click.argument(
        "words",
        nargs=-1,
        required=True,
        metavar=f"(KIND NAME... | KIND/NAME...) ({name}=TEXT | {name}-)...",
        shell_complete=complete_resources,
    )


@click.command()
@_mark_words("LABEL")
@_mark_options
@click.pass_context
def label(context: click.Context, words: tuple[str, ...], **options: Unpack[_MarkOptions]) -> int:
    """Set labels of resources, or remove some: LABEL=TEXT sets one, LABEL- removes one; those of a resource at once."""
    return _change_marks(context, Mark.LABEL, words, options)


@click.command()
@_mark_words("NAME")
@_mark_options
@click.pass_context
def annotate(context: click.Context, words: tuple[str, ...], **options: Unpack[_MarkOptions]) -> int:
    """Set annotations of resources, or remove some: NAME=TEXT sets one, NAME- removes one."""
    return _change_marks(context, Mark.ANNOTATION, words, options)


def _change_marks(context: click.Context, mark: Mark, words: Sequence[str], options: _MarkOptions) -> int:
    verb = "label" if mark is Mark.LABEL else "annotate"
    named_words, changes = _split_words(words, mark, is_removal=options["is_removal"])
    selected = selected_of(context)
    named = Named.of(named_words, verb, options["namespace"], selected, is_all=options["is_all"])
    session = session_of(context, is_dry_run=options["is_dry_run"])
    overwriting = Overwriting.ALLOWED if options["may_overwrite"] else Overwriting.REFUSED
    status = 0
    with session.open_datastore() as store:
        for key in find_keys(store, named, selected, deadline=session.deadline()):
            try:
                effects = change_marks(store, key, mark, changes, overwriting=overwriting, pace=session.pace())
            except NetplugError as error:
                print_error(str(session.explain(store, error)))
                status = 1
                continue
            if options["output"]:
                click.echo(escape_unprintable(format_key(key)))
                continue
            for name, effect in effects.items():
                if effect is MarkEffect.ABSENT and options["is_removal"]:
                    print_error(f"cannot remove {mark.word} {name} from {key}: it has none of that name")
                    status = 1
                else:
                    click.echo(_mark_line(mark, name, effect, key, is_dry_run=session.is_dry_run))
    return status


def _split_words(words: Sequence[str], mark: Mark, *, is_removal: bool) -> tuple[Sequence[str], dict[str, str | None]]:
    """The words that name resources, and what is to become of which label or annotation.

    Raises:
        click.UsageError: none is given, or a word among them is neither NAME=TEXT nor NAME-.
    """
    first = next((at for at, word in enumerate(words) if at and _is_change(word)), len(words))
    if is_removal:
        first = len(words) - 1
        words = (*words[:first], f"{words[first]}-") if "=" not in words[first] else words
    named, assignments = words[:first], words[first:]
    changes: dict[str, str | None] = {}
    for word in assignments:
        name, equals, text = word.partition("=")
        if equals and not is_removal:
            changes[name] = text
        elif word.endswith("-") and not equals:
            changes[word[:-1]] = None
    if not assignments or len(changes) < len(assignments) or "" in changes:
        name = mark.name
        raise click.UsageError(f"Give {name}=TEXT to set {_A[mark]}, and {name}- to remove one, each once.")
    return named, changes


_A = {Mark.LABEL: "a label", Mark.ANNOTATION: "an annotation"}


def _is_change(word: str) -> bool:
    return "=" in word or word.endswith("-")


def _mark_line(mark: Mark, name: str, effect: MarkEffect, key: Key[Resource], *, is_dry_run: bool) -> str:
    """What became of a label or an annotation, or would."""
    subject = f"{key.kind.name} {key.name}"
    if effect is MarkEffect.ABSENT:
        return escape_unprintable(f"{mark.word} {name} is not on {subject}")
    place = f"{'from' if effect is MarkEffect.REMOVED else 'on'} {subject}"
    if is_dry_run:
        return escape_unprintable(f"would {_IMPERATIVES[effect]} {mark.word} {name} {place}; nothing was written")
    return escape_unprintable(f"Successfully {effect.value} {mark.word} {name} {place}")


# --- patch -----------------------------------------------------------------------------------------------------------


class _PatchOptions(TypedDict):
    """The options of ``patch`` as click hands them over."""

    changes: Mapping[str, object]
    namespace: str
    is_dry_run: bool
    output: str | None


def _parse_patch(_context: click.Context, _parameter: click.Parameter, value: str) -> Mapping[str, object]:
    try:
        (parsed,) = parse_text(value, "the patch")
    except InputError as error:
        raise click.BadParameter(error.accepted) from None
    except ValueError:
        raise click.BadParameter("one object in YAML or JSON is expected") from None
    if not isinstance(parsed, dict):
        raise click.BadParameter("an object in YAML or JSON is expected")
    return parsed


@click.command()
@ONE_RESOURCE
@click.option(
    "-p", "--patch", "changes", required=True, metavar="PATCH", callback=_parse_patch,
    help="The merge patch, in JSON or YAML.",
)  # fmt: skip
@click.option(
    "-t", "--type", type=click.Choice(["strategic", "merge"]), default="merge", expose_value=False,
    help="Both types replace lists as a whole.",
)  # fmt: skip
@NAMESPACE
@DRY_RUN
@NAME_OUTPUT
@click.pass_context
def patch(context: click.Context, words: tuple[str, ...], **options: Unpack[_PatchOptions]) -> int:
    """Change parts of the resource with a KIND and a NAME by a merge patch (RFC 7396).

    The patch may have labels, annotations and parts of the spec; everything else stays as it is.
    """
    key = parse_key(words, "patch", options["namespace"])
    session = session_of(context, is_dry_run=options["is_dry_run"])
    report = ChangeReport(Verb.PATCH, session.is_dry_run, options["output"])
    with session.open_datastore() as store, report.collect_errors(key.kind.name):
        report.explain = partial(session.explain, store)
        report.add_success(_patch(store, session, key, options["changes"]))
    return report.print_summary()


def _patch(store: Datastore, session: Session, key: Key[Resource], changes: Mapping[str, object]) -> Outcome:
    return edit_resource(store, key, partial(apply_merge_patch, patch=changes), pace=session.pace())
