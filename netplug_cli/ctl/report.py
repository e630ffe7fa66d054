"""The output of verbs that change resources: a line for each document, a summary, and the exit status."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager

import click
from attrs import Factory, define

from netplug_cli.formatting import print_error
from netplug_core.errors import NetplugError
from netplug_core.flows.resources.outcome import Effect, Outcome

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


_CONDITIONALS = {
    Effect.CREATED: "would create",
    Effect.UPDATED: "would change",
    Effect.UNCHANGED: "would not change",
    Effect.DELETED: "would delete",
    Effect.REPAIRED: "would repair",
}


@define
class ChangeReport:
    """The results of one run of a verb. Successes are printed at once, failures with the summary.

    ``is_dry_run``: they are what would have happened.
    """

    verb: Verb
    is_dry_run: bool = False
    _kinds: set[str] = Factory(set)
    _success_count: int = 0
    _failures: list[tuple[str, NetplugError]] = Factory(list)

    def add_success(self, outcome: Outcome) -> None:
        """Print the outcome of a document."""
        self._success_count += 1
        if self.is_dry_run:
            click.echo(f"{_CONDITIONALS[outcome.effect]} {outcome.key}")
        else:
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
        done, failed, verb = self._success_count, len(self._failures), self.verb.imperative
        kind = f"'{next(iter(self._kinds))}' " if len(self._kinds) == 1 else ""
        past = f"would {verb}" if self.is_dry_run else self.verb.value
        fail = f"would fail to {verb}" if self.is_dry_run else f"failed to {verb}"
        end = "; nothing was written" if self.is_dry_run else ""
        if not failed:
            click.echo(f"{'Dry run:' if self.is_dry_run else 'Successfully'} {past} {done} {kind}resource(s){end}")
            return 0
        if failed == 1 and not done:
            where, error = self._failures[0]
            print_error(f"{fail} {kind}resource: {where}{error}")
            return 1
        for where, error in self._failures:
            print_error(f"{where}{error}")
        if done:
            click.echo(f"Partial success: {past} {done} out of {done + failed} {kind}resources{end}")
        else:
            print_error(f"{fail} any {kind}resources")
        return 1
