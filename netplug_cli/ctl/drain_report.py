"""The output of ``pool drain`` and ``pool resize``: lines for a person, or an event in JSON on each line."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click
from attrs import define

from netplug_cli.formatting import format_columns, format_json, print_error, truncate
from netplug_core.clock import format_time
from netplug_core.datastore.transaction import LATEST_COMMIT_S
from netplug_core.flows.resources.drain import DrainProgress, ResizePlan
from netplug_core.ipam.reporting.drain_plan import (
    DrainedPool,
    DrainStep,
    DrainView,
    HeldAddress,
    is_draining,
)

__all__ = ["EXIT_WAITING", "DrainReport", "holder_lines", "plan_document", "plan_lines"]

EXIT_WAITING = 3
"""The exit status of a drain that waits for workloads."""

_MAX_CELL_LENGTH = 60
_HEADERS = ("NODE", "NAMESPACE", "ADDRESSES", "HELD BY")
_ERASE_LINE = "\r\x1b[K"


@define
class DrainReport:
    """Reports the progress of one drain. On a terminal, the line about what is left to wait for is updated in place.

    ``pool`` is the pool as messages name it, ``name`` its name, ``outcome`` what becomes of it.
    """

    pool: str
    name: str
    is_json: bool
    outcome: DrainedPool = DrainedPool.DELETED
    _waiting: DrainView | None = None
    _problem: str = ""
    _has_open_line: bool = False

    def warn(self, text: str) -> None:
        """Report a warning."""
        if self.is_json:
            self._event("warning", message=text)
        else:
            print_error(f"warning: {text}")

    def created(self, successor: str, cidr: str) -> None:
        """Report that the successor of the pool is stored."""
        if self.is_json:
            self._event("created", successor=successor, cidr=cidr)
        else:
            click.echo(f"IPPool({successor}) created: {cidr}")

    def gone(self, text: str) -> None:
        """Report that the pool was gone before."""
        if self.is_json:
            self._event("deleted")
        else:
            print_error(text)

    def show(self, progress: DrainProgress) -> None:
        """Report a step."""
        view = progress.view
        if progress.problem is not None:
            self._show_problem(str(progress.problem))
            return
        self._problem = ""
        if view is None:
            self._waiting = None
            self._step("deleted", f"{self.pool} deleted")
        elif progress.step is DrainStep.KEEP:
            self._waiting = None
            command = f"netplugctl pool drain {self.name}"
            ways = f"{command} --delete deletes it, {command} --undo enables it again"
            self._step("empty", f"{self.pool} is empty, and disabled: {ways}")
        elif progress.step is DrainStep.DISABLE:
            cidr = view.pool.value.spec.prefix
            self._step("disabled", f"{self.pool} disabled: no new address of {cidr} is assigned", cidr=str(cidr))
        elif progress.step is DrainStep.SETTLE:
            self._settle()
        elif progress.step is DrainStep.RELEASE:
            count = view.unused_count
            self._step("released", f"{self.pool}: unused blocks released: {count}", blocks=count)
        else:
            self._wait(view)

    def end(self) -> int:
        """Report what is left to be done, if anything; the exit status."""
        self.close()
        if self._waiting is None:
            return 0
        if not self.is_json:
            again = f"run the command again to go on; netplugctl pool drain {self.name} --undo enables the pool again"
            end = "deleted" if self.outcome is DrainedPool.DELETED else "empty"
            print_error(f"{self.pool} is not {end} yet: it waits for {_left(self._waiting)}; {again}")
        return EXIT_WAITING

    def close(self) -> None:
        """End the line that is updated in place."""
        if self._has_open_line:
            click.echo(err=True)
            self._has_open_line = False

    def _settle(self) -> None:
        if self.is_json:
            self._event("settling", seconds=LATEST_COMMIT_S)
        else:
            self.close()
            print_error(f"waiting {LATEST_COMMIT_S:g} s, until every ADD that began before has ended")

    def _wait(self, view: DrainView) -> None:
        before, self._waiting = self._waiting, view
        if before is not None and _left(before) == _left(view) and before.held == view.held:
            return
        if self.is_json:
            self._event("waiting", **_waiting_members(view))
        elif before is None:
            click.echo(f"{self.pool} waits for {_left(view)}")
            for line in holder_lines(view.held):
                click.echo(line)
        elif sys.stderr.isatty():
            click.echo(f"{_ERASE_LINE}netplugctl: {self.pool} waits for {_left(view)}", err=True, nl=False)
            self._has_open_line = True
        else:
            print_error(f"{self.pool} waits for {_left(view)}")

    def _show_problem(self, text: str) -> None:
        """Report why nothing can be done now; once, as long as it stays the same."""
        if text == self._problem:
            return
        self._problem = text
        if self.is_json:
            self._event("retrying", problem=text)
        else:
            self.close()
            print_error(f"{self.pool}: {text}; it is tried again")

    def _step(self, event: str, text: str, **members: object) -> None:
        if self.is_json:
            self._event(event, **members)
        else:
            self.close()
            click.echo(text)

    def _event(self, event: str, **members: object) -> None:
        click.echo(format_json({"event": event, "pool": self.name, **members}))


def plan_lines(
    view: DrainView, plan: ResizePlan | None = None, outcome: DrainedPool = DrainedPool.DELETED
) -> list[str]:
    """What a drain, or with ``plan`` a resize, will do."""
    pool = view.pool.value
    steps: list[str] = []
    if plan is not None:
        spec = plan.successor.spec
        done = "done: " if plan.is_created else ""
        steps.append(f"{done}create {plan.successor.key}: {spec.prefix}, blockSize {spec.block_length}")
    done = "done: " if is_draining(pool) else ""
    steps.append(f"{done}disable {pool.key}: no new address of {pool.spec.prefix} is assigned")
    if view.unused_count:
        steps.append(f"release its unused blocks: {view.unused_count}")
    if not view.is_empty:
        steps.append(f"wait for {_left(view)}")
    if outcome is DrainedPool.DELETED:
        steps.append("delete it")
    return [*(f"{number}. {step}" for number, step in enumerate(steps, 1)), *holder_lines(view.held)]


def plan_document(view: DrainView, plan: ResizePlan | None = None) -> dict[str, object]:
    """The same as members of a JSON object."""
    pool = view.pool.value
    document: dict[str, object] = {"event": "plan", "pool": pool.metadata.name, "cidr": str(pool.spec.prefix)}
    if plan is not None:
        spec = plan.successor.spec
        document["successor"] = {
            "name": plan.successor.metadata.name,
            "cidr": str(spec.prefix),
            "blockSize": spec.block_length,
            "created": plan.is_created,
        }
    return {**document, "disabled": is_draining(pool), "unusedBlocks": view.unused_count, **_waiting_members(view)}


def holder_lines(held: Iterable[HeldAddress]) -> list[str]:
    """The table of who holds addresses, per node and namespace; no line if none is held."""
    groups: dict[tuple[str, str], list[HeldAddress]] = {}
    for each in held:
        groups.setdefault((each.node, each.namespace), []).append(each)
    rows = (
        (node or "-", namespace or "-", str(len(group)), truncate(_names(group), _MAX_CELL_LENGTH))
        for (node, namespace), group in sorted(groups.items())
    )
    return format_columns(_HEADERS, rows) if groups else []


def _names(group: Iterable[HeldAddress]) -> str:
    return ", ".join(sorted({each.name or str(each.address) for each in group}))


def _left(view: DrainView) -> str:
    """What a drain waits for, in words."""
    words = []
    if view.held:
        words.append(f"{_count(len(view.held), 'address')} in use, in {_count(view.blocks_in_use, 'block')}")
    if view.cooling and view.cooldown_ends_ns is not None:
        until = format_time(view.cooldown_ends_ns)
        words.append(f"{_count(view.cooling, 'address')} in cooldown until {until}")
    if not words:
        words.append(f"the finalizers of its deletion: {', '.join(view.pool.value.metadata.finalizers)}")
    return " and ".join(words)


def _count(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}es" if noun.endswith("s") else f"{number} {noun}s"


def _waiting_members(view: DrainView) -> dict[str, object]:
    held = [
        {
            "address": str(each.address),
            "node": each.node,
            "namespace": each.namespace,
            "name": each.name,
            "handle": each.handle,
        }
        for each in view.held
    ]
    ends = None if view.cooldown_ends_ns is None else format_time(view.cooldown_ends_ns)
    return {
        "addresses": len(held),
        "blocks": view.blocks_in_use,
        "cooling": view.cooling,
        "cooldownEnds": ends,
        "finalizers": list(view.pool.value.metadata.finalizers),
        "held": held,
    }
