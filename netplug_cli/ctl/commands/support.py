"""``support``: what those who help need to see of an installation."""

from __future__ import annotations

from itertools import chain

import click

from netplug_cli.ctl.documents import STDIN, render_json, render_yaml
from netplug_cli.ctl.editor import require_free, write_private_file
from netplug_cli.ctl.session import session_of
from netplug_cli.ctl.support.parts import Machine, pack, read_store_parts
from netplug_cli.formatting import print_error
from netplug_core import __version__
from netplug_core.clock import SECOND_NS, Deadline, format_time
from netplug_core.support.bundle import Bundle, Limits, assemble
from netplug_core.support.redaction import Redactor

__all__ = ["support"]

_CONFIGURATIONS = "/etc/cni/net.d"
_DEFAULT_TIMEOUT_S = 60
_INCOMPLETE = 3


@click.group()
def support() -> None:
    """Collect what those who help need to see."""


@support.command(short_help="Write a file for those who help, without secrets.")
@click.option(
    "-f", "--filename", "file", metavar="FILE",
    help="The archive to write. Default: netplug-support-TIME.tar.gz in this folder.",
)  # fmt: skip
@click.option("--overwrite", "is_replacing", is_flag=True, help="Replace a FILE that exists.")
@click.option(
    "--cni-conf-dir", "configurations", metavar="DIR", default=_CONFIGURATIONS, show_default=True,
    help="The folder of network configurations.",
)  # fmt: skip
@click.option(
    "--timeout", "timeout_s", type=click.IntRange(1, 3600), metavar="SECONDS", default=_DEFAULT_TIMEOUT_S,
    show_default=True, help="How long to read. What is not read by then is left out.",
)  # fmt: skip
@click.pass_context
def bundle(context: click.Context, *, file: str | None, is_replacing: bool, configurations: str, timeout_s: int) -> int:
    """Write one .tar.gz with what those who help need to see, without passwords, tokens, keys and certificates.

    It has versions, the configuration, all resources, how full pools are, what ipam check finds, the network
    configurations of this machine, the end of the logs that they name, and the status of the node process. Its
    index.json says what became of each part. Nothing is changed. The exit status is 3 if a part could not be read.
    """
    session = session_of(context)
    now_ns = session.clock.now_ns()
    stamp = format_time(now_ns - now_ns % SECOND_NS)
    folder = f"netplug-support-{stamp.replace(':', '').replace('-', '')}"
    path = file or f"{folder}.tar.gz"
    if path == STDIN:
        raise click.UsageError("A bundle is written to a file; name one.")
    require_free(path, is_replacing=is_replacing)
    redactor, deadline = Redactor(), Deadline.after(session.clock, timeout_s)
    machine = Machine(session=session, redactor=redactor, configurations=configurations)
    parts = tuple(chain(machine.read_parts(deadline), read_store_parts(session, deadline)))
    made = assemble(
        parts,
        redactor,
        header={"created": stamp, "client": f"v{__version__}"},
        render=_render,
        limits=Limits(),
        deadline=deadline,
    )
    content = pack(made, folder, now_ns // SECOND_NS)
    write_private_file(path, (content,), is_replacing=is_replacing)
    _print_failures(made)
    click.echo(f"wrote {path}: {len(made.files)} files, {len(content)} bytes")
    print_error("names, addresses, labels and annotations are in it as they are stored; look at it before you send it")
    return _INCOMPLETE if made.failed else 0


def _print_failures(made: Bundle) -> None:
    """Print what is missing, a line for each reason: a datastore that does not answer costs many parts."""
    paths: dict[str, list[str]] = {}
    for entry in made.failed:
        paths.setdefault(entry.reason, []).append(entry.path)
    for reason, missing in paths.items():
        print_error(f"not in the bundle: {', '.join(missing)}: {reason}")


def _render(path: str, document: object) -> str:
    """A document as its file has it: YAML, several of them after another, or JSON for a network configuration."""
    return f"---\n{render_yaml(document)}" if path.endswith(".yaml") else render_json(document)
