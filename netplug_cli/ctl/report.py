"""What the verbs that change things say: a line for each document, a summary, and the exit status."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager

import click
from attrs import Factory, define

from netplug_core.errors import NetplugError
from netplug_core.flows.outcome import Outcome

__all__ = ["Report", "Verb", "complain"]


class Verb(enum.Enum):
    """A verb; its value is what was done when it succeeded."""

    APPLY = "applied"
    CREATE = "created"
    DELETE = "deleted"
    PATCH = "patched"
    REPLACE = "replaced"
    VALIDATE = "validated"

    @property
    def imperative(self) -> str:
        """The verb as it is typed."""
        return self.name.lower()


@define
class Report:
    """What one run of a verb did so far. Lines of success go out at once, the rest waits for what it all comes to."""

    verb: Verb
    _kinds: set[str] = Factory(set)
    _done: int = 0
    _failures: list[tuple[str, NetplugError]] = Factory(list)

    def succeed(self, outcome: Outcome) -> None:
        """One document was dealt with."""
        self._done += 1
        click.echo(f"{outcome.key} {outcome.effect.value}")
        for warning in outcome.warnings:
            complain(f"warning: {warning}")

    @contextmanager
    def of(self, kind: str, where: str = "") -> Iterator[None]:
        """Deal with one document; an error in it is noted and ends just this one.

        ``where`` is the place it stood, empty for the command line.
        """
        self._kinds.add(kind)
        try:
            yield
        except NetplugError as error:
            self._failures.append((f"{where}: " if where else "", error))

    def close(self) -> int:
        """Say what it all came to; the exit status."""
        done, failed, past = self._done, len(self._failures), self.verb.value
        kind = f"'{next(iter(self._kinds))}' " if len(self._kinds) == 1 else ""
        if not failed:
            click.echo(f"Successfully {past} {done} {kind}resource(s)")
            return 0
        if failed == 1 and not done:
            where, error = self._failures[0]
            complain(f"failed to {self.verb.imperative} {kind}resource: {where}{error}")
            return 1
        for where, error in self._failures:
            complain(f"{where}{error}")
        if done:
            click.echo(f"Partial success: {past} {done} out of {done + failed} {kind}resources")
        else:
            complain(f"failed to {self.verb.imperative} any {kind}resources")
        return 1


def complain(text: str) -> None:
    """One line on standard error."""
    click.echo(f"netplugctl: {text}", err=True)
