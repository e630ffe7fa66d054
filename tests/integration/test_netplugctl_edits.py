"""``netplugctl diff``, ``edit`` and completion on every store, as processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.tool_stores import SERVERS, make_tool_user
from tests.harness.tool_user import ToolUser, document, environment_without
from tests.harness.waiting import EMERGENCY_STOP_S

POOL = document("IPPool", "main", "cidr: 10.68.0.0/16", "labels: {tier: gold}")
CHANGED = document("IPPool", "main", "cidr: 10.68.0.0/16, disabled: true", "labels: {tier: gold}")


@pytest.fixture(params=("sqlite", *SERVERS))
def user(request: pytest.FixtureRequest, tmp_path: Path) -> ToolUser:
    made = make_tool_user(request, tmp_path, request.param)
    assert made.run_command("apply", "-f", "-", stdin=POOL).status == 0
    return made


def run_tool(user: ToolUser, *argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """One command in a process of its own, with some variables."""
    plain = environment_without("ETCD_", "K8S_", "KUBECONFIG", "DATASTORE_", "SQLITE_", "NETPLUG_", "VISUAL")
    command = [sys.executable, "-m", "netplug_cli.wiring.ctl", *argv]
    return subprocess.run(command, env=plain | variables, capture_output=True, text=True, check=False)


def test_diff_shows_what_apply_then_does(user: ToolUser) -> None:
    assert user.run_command("diff", "-f", user.file(POOL)).status == 0
    different = user.run_command("diff", "-f", user.file(CHANGED))
    assert different.status == 1
    assert [line for line in different.out.splitlines()[2:] if line[0] in "+-"] == ["+  disabled: true"]
    assert user.run_command("apply", "-f", user.file(CHANGED)).status == 0
    assert user.run_command("diff", "-f", user.file(CHANGED)).status == 0
    refused = user.run_command("diff", "-f", user.file(document("IPPool", "main", "cidr: 10.70.0.0/16")))
    assert (refused.status, refused.out) == (2, "")
    assert "cannot be modified" in refused.err


def test_edit_stores_what_is_saved_and_finds_a_conflict(user: ToolUser) -> None:
    config = user.write_configuration()
    save = Path(user.file("#!/bin/sh\necho '  disabled: true' >>\"$1\"\n", "save"))
    tool = f"{sys.executable} -m netplug_cli.wiring.ctl -c {config}"
    race = Path(
        user.file(f"#!/bin/sh\n{tool} label pool main tier=silver --overwrite >&2\nsed -i 's/gold/lead/' $1\n", "race")
    )
    for script in (save, race):
        script.chmod(0o700)
    lost = run_tool(user, "-c", config, "edit", "pool", "main", EDITOR=str(race), TMPDIR=str(user.folder))
    assert lost.returncode == 1
    assert "was changed by another writer since it was read" in lost.stderr
    (kept,) = user.folder.glob("netplugctl-edit-ippool-*.yaml")
    assert "tier: lead" in kept.read_text()
    saved = run_tool(user, "-c", config, "edit", "pool", "main", EDITOR=str(save), TMPDIR=str(user.folder))
    assert (saved.returncode, saved.stdout) == (0, "IPPool(main) updated\n")
    stored = user.get_object("pool", "main")
    assert stored["spec"]["disabled"] is True  # type: ignore[index] # an object
    assert stored["metadata"]["labels"] == {"tier": "silver"}  # type: ignore[index] # an object


def test_names_are_completed(user: ToolUser) -> None:
    words = f"netplugctl -c {user.write_configuration()} get pool m"
    completed = run_tool(
        user,
        _NETPLUGCTL_COMPLETE="bash_complete",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split()) - 1),
        NETPLUG_COMPLETION_SECONDS=str(EMERGENCY_STOP_S),
    )
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "plain,main\n", "")
