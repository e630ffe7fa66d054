"""``completion``: prints the script by which a shell completes commands, options, kinds and names."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from netplug_cli.ctl.global_options import COMPLETE_VARIABLE

__all__ = ["completion"]

_SHELLS = {shell.name: shell for shell in (BashComplete, ZshComplete, FishComplete)}


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the script that completes the words of this tool in a shell.

    \b
    bash:  source <(netplugctl completion bash)
           or write it to /etc/bash_completion.d/netplugctl
    zsh:   netplugctl completion zsh >"${fpath[1]}/_netplugctl"
    fish:  netplugctl completion fish >~/.config/fish/completions/netplugctl.fish
    """  # noqa: D301 - the mark is click's, for lines that stay as they are
    script = _SHELLS[shell](context.find_root().command, {}, "netplugctl", COMPLETE_VARIABLE)
    click.echo(script.source().strip())
    return 0
