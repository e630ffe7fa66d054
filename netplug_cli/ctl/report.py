"""The output of verbs that change resources: a line for each document, a summary, and the exit status."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager

import click
from attrs import Factory, define

from netplug_cli.formatting import print_error
from netplug_core.errors import NetplugError
from netplug_core.flows.resources.outcome import Outcome

__all__ = ["ChangeReport", "Verb"]


class Verb(enum.Enum):
    """A verb; its value is the past participle."""

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
class ChangeReport:
    """The results of one run of a verb. Successes are printed at once, failures with the summary."""

    verb: Verb
    _kinds: set[str] = Factory(set)
    _success_count: int = 0
    _failures: list[tuple[str, NetplugError]] = Factory(list)

    def add_success(self, outcome: Outcome) -> None:
        """Print the outcome of a document."""
        self._success_count += 1
        click.echo(f"{outcome.key} {outcome.effect.value}")
        for warning in outcome.warnings:
            print_error(f"warning: {warning}")

    @contextmanager
    def collect_errors(self, kind: str, source: str = "") -> Iterator[None]:
        """Collect the error of one document, so that the next ones are still processed.

        ``source`` is the place of the document, empty for the command line.
        """
        self._kinds.add(kind)
        try:
            yield
        except NetplugError as error:
            self._failures.append((f"{source}: " if source else "", error))

    def print_summary(self) -> int:
        """Print the summary; return the exit status."""
        done, failed, past = self._success_count, len(self._failures), self.verb.value
        kind = f"'{next(iter(self._kinds))}' " if len(self._kinds) == 1 else ""
        if not failed:
            click.echo(f"Successfully {past} {done} {kind}resource(s)")
            return 0
        if failed == 1 and not done:
            where, error = self._failures[0]
            print_error(f"failed to {self.verb.imperative} {kind}resource: {where}{error}")
            return 1
        for where, error in self._failures:
            print_error(f"{where}{error}")
        if done:
            click.echo(f"Partial success: {past} {done} out of {done + failed} {kind}resources")
        else:
            print_error(f"failed to {self.verb.imperative} any {kind}resources")
        return 1
