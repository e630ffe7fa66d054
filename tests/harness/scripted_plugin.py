"""An IPAM plugin that is a shell script: it notes every call, and a test says what it does instead."""

from __future__ import annotations

import json
import os
from pathlib import Path

from attrs import frozen

__all__ = ["ScriptedPlugin"]

_SCRIPT = """#!/bin/sh
cd {folder}
cat > stdin.$CNI_COMMAND
env > environ.$CNI_COMMAND
echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME" >> calls
held=held/$CNI_CONTAINERID.$CNI_IFNAME
[ ! -e do.$CNI_COMMAND ] || . ./do.$CNI_COMMAND
case $CNI_COMMAND in
ADD) touch $held; cat result ;;
DEL) rm -f $held ;;
CHECK) [ -e $held ] || {{ echo '{{"code": 4711, "msg": "not held", "details": "any more"}}'; exit 1; }} ;;
esac
"""


@frozen
class ScriptedPlugin:
    """The plugin ``my-ipam`` in a folder of CNI_PATH. By default it holds an attachment from ADD to DEL."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> ScriptedPlugin:
        """A plugin whose result has one address."""
        made = cls(folder)
        (folder / "held").mkdir(parents=True)
        made.path.write_text(_SCRIPT.format(folder=folder), encoding="utf-8")
        made.path.chmod(0o755)
        made.answer({"cniVersion": "1.0.0", "ips": [{"address": "10.88.0.5/24", "gateway": "10.88.0.1"}]})
        return made

    @property
    def path(self) -> Path:
        """The program."""
        return self.folder / "my-ipam"

    def answer(self, result: object) -> None:
        """What ADD prints: a result, or any text."""
        text = result if isinstance(result, str) else json.dumps(result)
        (self.folder / "result").write_text(text, encoding="utf-8")

    def script(self, command: str, text: str) -> None:
        """What it does first for a command, as shell commands; it goes on with the usual unless they exit."""
        (self.folder / f"do.{command}").write_text(text, encoding="utf-8")

    def forget_script(self, command: str) -> None:
        """Do nothing but the usual."""
        (self.folder / f"do.{command}").unlink()

    def calls(self) -> list[str]:
        """Every call: command, container and interface."""
        path = self.folder / "calls"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def held(self) -> list[str]:
        """The attachments that hold an address: ``container.interface``."""
        return sorted(os.listdir(self.folder / "held"))

    def stdin(self, command: str) -> bytes:
        """What its last call of a command read."""
        return (self.folder / f"stdin.{command}").read_bytes()

    def environ(self, command: str) -> dict[str, str]:
        """The variables of that call."""
        lines = (self.folder / f"environ.{command}").read_text(encoding="utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)
