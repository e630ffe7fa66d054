"""A user who runs ``netplugctl`` commands on a real store, through a configuration file."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import yaml
from attrs import define, evolve, field, frozen

from netplug_backends.host.machine import SystemClock
from netplug_cli.ctl.main import run
from netplug_cli.ctl.session import Session
from netplug_cli.wiring.ctl import make_session
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.records import Get, Key, Record, Update
from netplug_core.resources.kinds import Resource

__all__ = ["CommandResult", "ToolUser"]

API_VERSION = "projectnetplug.org/v3"


class HastyClock(SystemClock):
    """A clock on which nobody waits for long.

    A deleted pool of an ordered store waits ten seconds for assignments that may still run. These tests run none.
    """

    def sleep(self, seconds: float) -> None:
        """Wait that long, or a moment."""
        super().sleep(min(seconds, 0.2))


@frozen
class CommandResult:
    """What one command printed, and how it exited."""

    status: int
    out: str
    err: str

    @property
    def all_output(self) -> str:
        """Both outputs."""
        return self.out + self.err


@define
class ToolUser:
    """A user with a folder for files and a configuration that leads to a store. ``spec`` is its content."""

    folder: Path
    spec: Mapping[str, object]
    results: list[CommandResult] = field(factory=list)

    @property
    def session(self) -> Session:
        """What the tool would make on a machine without an environment."""
        return evolve(make_session(), environ={}, default_config_file=self.write_configuration(), clock=HastyClock())

    def write_configuration(self) -> str:
        """The configuration file."""
        document = {"kind": "NetplugAPIConfig", "apiVersion": API_VERSION, "spec": dict(self.spec)}
        return self.file(yaml.safe_dump(document), "netplugctl.cfg")

    def run_command(self, *argv: str, stdin: str = "") -> CommandResult:
        """Run one command line."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err), mock.patch("sys.stdin", io.StringIO(stdin)):
            status = run(argv, lambda: self.session)
        result = CommandResult(status, out.getvalue(), err.getvalue())
        assert "Traceback" not in result.all_output
        self.results.append(result)
        return result

    def get_object(self, *words: str) -> dict[str, object]:
        """One object as the tool shows it."""
        result = self.run_command("get", *words, "-o", "yaml")
        assert result.status == 0, result
        found = yaml.safe_load(result.out)
        assert isinstance(found, dict)
        return found

    def file(self, text: str, name: str = "some.yaml") -> str:
        """Write a file; its path."""
        path, part = self.folder / name, self.folder / f"{name}.part"
        part.write_text(text)
        part.replace(path)  # another process may read it at any time
        return str(path)

    @contextmanager
    def store(self) -> Iterator[Datastore]:
        """The store itself, for what people cannot write."""
        with self.session.open_datastore() as opened:
            yield opened

    def rewrites(self, key: Key[Resource], change: Callable[[Resource], Resource]) -> None:
        """Change a stored value as a controller of the cluster would."""
        with self.store() as store:
            found: Record[Resource] | None = store.read([Get(key)], deadline=self.deadline).find(key)
            assert found is not None
            store.commit([Update(key, change(found.value), found.revision)], deadline=self.deadline)

    @property
    def deadline(self) -> Deadline:
        """Some seconds from now."""
        return Deadline.after(SystemClock(), 10.0)

    @property
    def pace(self) -> Pace:
        """How to retry until then."""
        return Pace(clock=SystemClock(), deadline=self.deadline, chance=random.random)


def document(kind: str, name: str, spec: str, metadata: str = "") -> str:
    """One resource as YAML."""
    more = f", {metadata}" if metadata else ""
    return f"---\napiVersion: {API_VERSION}\nkind: {kind}\nmetadata: {{name: {name}{more}}}\nspec: {{{spec}}}\n"


def environment_without(*prefixes: str) -> dict[str, str]:
    """This process's environment without some variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
