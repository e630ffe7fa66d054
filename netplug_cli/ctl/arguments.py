"""The words of a command line as values: kinds, names, selectors and files, and the options that name them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click
from attrs import frozen

from netplug_cli.ctl.completion import complete_one_resource, complete_resources
from netplug_cli.ctl.documents import MANIFEST_SUFFIXES, find_files
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.global_options import DEFAULT_NAMESPACE, LOG_LEVELS, SEPARATOR, log_level_advice
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.resources.read import list_in_pages
from netplug_core.records import Key
from netplug_core.resources.kinds import Resource, ResourceKind, ResourceScope, UnknownKind, get_kind
from netplug_core.selectors import And, Everything, Selector, SelectorError, parse_either

__all__ = [
    "ALL", "DRY_RUN", "FILES", "FORCE", "IGNORE_NOT_FOUND", "NAMESPACE", "NAME_OUTPUT", "ONE_RESOURCE", "RESOURCES",
    "SELECTOR", "TRUTH", "Named", "Selected", "files_with", "find_keys", "format_key", "parse_cidr", "parse_key",
    "parse_keys", "parse_kind", "selected_of",
]  # fmt: skip


# --- kinds and names -------------------------------------------------------------------------------------------------


_WAYS = f"give every resource as KIND{SEPARATOR}NAME, or one KIND and its NAMEs"


class _Truth(click.ParamType[bool]):
    """True or false; click's own type lists a dozen spellings when it refuses a word."""

    name = "boolean"

    def convert(self, value: str | bool, param: click.Parameter | None, ctx: click.Context | None) -> bool:  # noqa: FBT001 - click's signature
        """The value; an error of the command line for another word."""
        if isinstance(value, bool):
            return value
        word = value.strip().lower()
        if word not in _TRUTH_WORDS:
            self.fail(f"{value!r} is neither true nor false", param, ctx)
        return _TRUTH_WORDS[word]


_TRUTH_WORDS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}
TRUTH = _Truth()
"""The type of an option that is true or false."""


def parse_kind(text: str, verb: str) -> ResourceKind:
    """The kind that was typed after a verb.

    Raises:
        InputError: there is no such kind.
    """
    try:
        return get_kind(text)
    except UnknownKind as error:
        raise InputError(f"failed to {verb} resources", text, f"{error}") from error


def parse_keys(words: Sequence[str], verb: str, namespace: str) -> tuple[Key[Resource], ...]:
    """The keys of the resources that were named after a verb: as KIND NAME..., or as KIND/NAME, each of its own kind.

    None for a KIND alone.

    Raises:
        InputError: there is no such kind.
        click.UsageError: a kind or a name is empty, or both forms are mixed.
    """
    if any(SEPARATOR in word for word in words):
        return tuple(_parse_pair(word, words, verb, namespace) for word in words)
    kind, names = parse_kind(words[0], verb), words[1:]
    if not all(names):
        raise click.UsageError("A NAME must not be empty.")
    return tuple(kind.key(name, namespace) for name in names)


def format_key(key: Key[object]) -> str:
    """Kind and name as one word, which :func:`parse_keys` reads; the namespace is not in it, as in kubectl."""
    return f"{key.kind.name.lower()}{SEPARATOR}{key.name}"


def parse_key(words: Sequence[str], verb: str, namespace: str) -> Key[Resource]:
    """The key of the one resource that was named after a verb, as KIND NAME or as KIND/NAME.

    Raises:
        InputError: there is no such kind.
        click.UsageError: none is named, or several are.
    """
    keys = parse_keys(words, verb, namespace) if words else ()
    if len(keys) != 1:
        found = ", ".join(map(str, keys)) or "none"
        raise click.UsageError(f"{verb} takes one resource, as KIND NAME or KIND{SEPARATOR}NAME; found {found}.")
    return keys[0]


def _parse_pair(word: str, words: Sequence[str], verb: str, namespace: str) -> Key[Resource]:
    kind, separator, name = word.partition(SEPARATOR)
    if not separator:
        pair = next(other for other in words if SEPARATOR in other)
        raise click.UsageError(f"{word!r} has no {SEPARATOR!r}, and {pair!r} has one: {_WAYS}.")
    if not kind or not name or SEPARATOR in name:
        raise click.UsageError(f"{word!r} is no KIND{SEPARATOR}NAME: {_WAYS}.")
    return parse_kind(kind, verb).key(name, namespace)


# --- selection -------------------------------------------------------------------------------------------------------


_SELECTORS_META_KEY = "netplugctl.selectors"
_Command = Callable[..., Any]


@frozen
class Selected:
    """The resources that all of some selectors select, as they were typed; all resources without one."""

    texts: tuple[str, ...] = ()
    selector: Selector = Everything.ALL

    @property
    def clause(self) -> str:
        """What a message adds about them; empty without a selector."""
        return f" with labels that match {' and '.join(map(repr, self.texts))}" if self.texts else ""


def SELECTOR(command: _Command) -> _Command:  # noqa: N802 - beside the other options, which are values
    """``-l`` and ``--selector``, as in kubectl. The bare name of a log level after ``-l`` is refused."""
    short = click.option(
        "-l", "short_selectors", multiple=True, metavar="SELECTOR", expose_value=False, callback=_take_short,
        help="The same as --selector.",
    )  # fmt: skip
    long = click.option(
        "--selector", "long_selectors", multiple=True, metavar="SELECTOR", expose_value=False, callback=_take,
        help="Only those with these labels: 'app=x,tier!=y,rack in (r1,r2),!old', or a selector as pools have it.",
    )  # fmt: skip
    return long(short(command))


def selected_of(context: click.Context) -> Selected:
    """What the options of a command select.

    Raises:
        InputError: one of them is no selector; the error has the position.
    """
    texts: tuple[str, ...] = tuple(context.meta.get(_SELECTORS_META_KEY, ()))
    terms = tuple(map(_parse, texts))
    if not terms:
        return Selected()
    return Selected(texts, terms[0] if len(terms) == 1 else And(terms))


def _take(context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> None:
    context.meta.setdefault(_SELECTORS_META_KEY, []).extend(values)


def _take_short(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> None:
    for value in values:
        if value.lower() in LOG_LEVELS:
            raise click.UsageError(f"{log_level_advice(value)} A label of that name is selected by --selector {value}.")
    _take(context, parameter, values)


def find_keys(store: Datastore, named: Named, selected: Selected, *, deadline: Deadline) -> tuple[Key[Resource], ...]:
    """The keys that were named, or those of all resources of the kind that are selected.

    Raises:
        Unavailable: the store does not answer.
    """
    if named.keys:
        return named.keys
    found = list_in_pages(store, named.kind, namespace=named.within, selector=selected.selector, deadline=deadline)
    return tuple(record.key for record in found)


@frozen(kw_only=True)
class Named:
    """The resources of a command line: some ``keys``, or those of a ``kind`` in a namespace if there are none."""

    kind: ResourceKind
    keys: tuple[Key[Resource], ...]
    within: str = ""

    @classmethod
    def of(cls, words: Sequence[str], verb: str, namespace: str, selected: Selected, *, is_all: bool = False) -> Named:
        """What the words of a command line name.

        Raises:
            InputError: there is no such kind.
            click.UsageError: no name is given, and neither a selector nor all are asked for; or both are.
        """
        keys = parse_keys(words, verb, namespace) if words else ()
        has_names = bool(keys)
        if not words or has_names is (bool(selected.texts) or is_all):
            raise click.UsageError(
                f"{verb} takes a KIND and NAMEs, or KIND{SEPARATOR}NAME; or a KIND with -l SELECTOR or --all."
            )
        kind = get_kind(keys[0].kind.name) if keys else parse_kind(words[0], verb)
        return cls(kind=kind, keys=keys, within=namespace if kind.scope is ResourceScope.NAMESPACED else "")


def _parse(text: str) -> Selector:
    try:
        return parse_either(text)
    except SelectorError as error:
        raise InputError("--selector", text, f"{text!r} is no selector: {error}") from None


# --- options ---------------------------------------------------------------------------------------------------------


_RECURSIVE_META_KEY = "netplugctl.recursive"


def _remember_recursive(context: click.Context, _parameter: click.Parameter, value: object) -> None:
    context.meta[_RECURSIVE_META_KEY] = bool(value)


def parse_cidr(text: str) -> Prefix:
    """The value of an option, with an error of the command line if it is no CIDR or has host bits."""
    try:
        return Prefix.parse(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}; a CIDR such as 10.1.0.0/16 is expected") from None


def FILES(command: _Command) -> _Command:  # noqa: N802 - beside the other options, which are values
    """``-f`` and ``-R``: the files to read, those of named folders among them."""
    return files_with(MANIFEST_SUFFIXES)(command)


def files_with(suffixes: tuple[str, ...]) -> Callable[[_Command], _Command]:
    """``-f`` and ``-R``, where the files of a folder are those whose names end in one of some suffixes."""

    def find(context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
        is_recursive = context.meta[_RECURSIVE_META_KEY]
        found = (find_files(named, is_recursive=is_recursive, suffixes=suffixes) for named in value)
        return tuple(file for files in found for file in files)

    return lambda command: _add_files(command, find)


def _add_files(command: _Command, find: Callable[..., tuple[str, ...]]) -> _Command:
    recursive = click.option(
        "-R", "--recursive", is_flag=True, is_eager=True, expose_value=False, callback=_remember_recursive,
        help="Take the files of folders in a folder too.",
    )  # fmt: skip
    files = click.option(
        "-f", "--filename", "files", type=click.Path(), multiple=True, metavar="FILE", callback=find,
        help="A file of YAML or JSON, or a folder with such files; - is standard input.",
    )  # fmt: skip
    kustomization = click.option(
        "-k",
        "--kustomize",
        "kustomization",
        metavar="DIR",
        hidden=True,
        expose_value=False,
        callback=_refuse_kustomization,
    )
    return files(recursive(kustomization(command)))


def _refuse_kustomization(_context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(f"-k is not offered; pipe it: kubectl kustomize {value} | netplugctl … -f -")


ALL = click.option(
    "--all", "is_all", is_flag=True, help="Every one of the KIND; of one with namespaces, in that of -n."
)
IGNORE_NOT_FOUND = click.option(
    "--ignore-not-found", "is_absence_ignored", is_flag=True, help="A resource that does not exist is no failure."
)
NAME_OUTPUT = click.option(
    "-o", "--output", "output", type=click.Choice(["name"]), help="Print only kind and name of what was done."
)
DRY_RUN = click.option(
    "--dry-run", "is_dry_run", is_flag=True, help="Say what would be done, and write nothing to the datastore."
)
FORCE = click.option(
    "--force", "is_forced", is_flag=True, help="Delete it though it is damaged and may hold addresses in use."
)
NAMESPACE = click.option(
    "-n", "--namespace", default=DEFAULT_NAMESPACE, metavar="NS", help="The namespace, for kinds that have one."
)
RESOURCES = click.argument(
    "words", nargs=-1, metavar="[KIND [NAME]... | KIND/NAME...]", shell_complete=complete_resources
)
ONE_RESOURCE = click.argument(
    "words", nargs=-1, required=True, metavar="(KIND NAME | KIND/NAME)", shell_complete=complete_one_resource
)
